"""ACS income: people of US states, from one prepared CSV or from what folktables downloads."""

import gzip

import numpy as np
import pytest

from e2fl.config.experiment import load
from e2fl.data.sets.acs_income import ACSIncome, read
from e2fl.errors import ConfigError, DataError

HEADER = "STATE,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Made-up people of three states; the label follows schooling."""
    rng = np.random.default_rng(0)
    lines = [HEADER]
    for row in range(90):
        school = rng.integers(10, 25)
        cells = [("NC", "AK", "UT")[row % 3], rng.integers(17, 90), rng.integers(1, 9), school]
        cells += [rng.integers(1, 6), rng.choice([10, 440, 500, 9920]), rng.choice([37, 110, 303])]
        cells += [rng.integers(0, 18), rng.integers(1, 80), rng.integers(1, 3)]
        cells += [rng.integers(1, 10), int(school > 18)]
        lines.append(",".join(map(str, cells)))
    path = tmp_path_factory.mktemp("acs") / "a.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_states_are_groups_and_parts_of_states_are_clients(path):
    data = ACSIncome(path=path, states=("NC", "AK"), clients_per_state=3)
    assert data.group_names == ("AK", "NC")
    names = [data.client_name(number) for number in data.population.ids]
    assert names == ["AK 1", "AK 2", "AK 3", "NC 1", "NC 2", "NC 3"]
    assert list(data.population.declared.values()) == [0, 0, 0, 1, 1, 1]
    assert [(len(data.client(n).train), len(data.client(n).test)) for n in range(6)] == [(8, 2)] * 6
    train = np.concatenate([data.client(n).train.x for n in range(6)])
    assert train.shape[1:] == data.shape == (79,)
    assert train[:, :3].mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert train[:, :3].std(axis=0) == pytest.approx(1, abs=1e-6)
    assert (train[:, 3:].sum(axis=1) == 7).all()  # one category of each of seven columns
    assert train[:, 17 + 0].sum() > 0  # management: codes 10 and 440
    other = ACSIncome(path=path, states=("NC", "AK"), clients_per_state=3, seed=1)
    assert not np.array_equal(other.client(4).train.x, data.client(4).train.x)
    few = ACSIncome(path=path, states=("UT", "NC"), clients_per_state=2, rows_per_client=4)
    assert few.about()["rows"] == 16


@pytest.mark.parametrize(
    ("group", "names", "inputs"),
    [("sex", ("female", "male"), 77), ("race", ("not white", "white"), 70)],
)
def test_groups_may_lie_inside_clients_and_are_then_no_input(path, group, names, inputs):
    data = ACSIncome(path=path, clients_per_state=2, group=group)
    assert data.group_names == names
    assert data.shape == data.client(0).train.x.shape[1:] == (inputs,)
    assert set(data.population.declared.values()) == {None}
    assert data.client(0).groups() == [0, 1]


def test_the_files_of_folktables_are_filtered_as_folktables_does(tmp_path):
    folder = tmp_path / "acs" / "2018" / "1-Year"
    folder.mkdir(parents=True)
    header = "RT,ST,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP"
    kept = [
        f"P,2,30,1,20,1,4720.0,2,0,40,{1 + row % 2},1,{40_000 + 1000 * row}.0" for row in range(20)
    ]
    dropped = [
        "P,2,16,1,20,1,10,2,0,40,1,1,60000",
        "P,2,30,1,20,1,10,2,0,40,1,1,100",
        "P,2,30,,20,1,,2,0,,1,1,60000",
    ]
    (folder / "psam_p02.csv").write_text("\n".join([header, *kept, *dropped]))
    later = [row.replace("P,2,", "P,37,").replace("2,0,40", "2,20,40") for row in kept]
    with gzip.open(folder / "psam_p37.csv.gz", "wt") as file:
        file.write("\n".join([header.replace("RELP", "RELSHIPP"), *later]))
    people = read(tmp_path / "acs")
    assert people["STATE"].value_counts().to_dict() == {"AK": 20, "NC": 20}
    assert people["PINCP"].sum() == 2 * 9  # 51,000 and more
    assert set(people["RELP"]) == {0}
    assert len(ACSIncome(dir=str(tmp_path), clients_per_state=2).population) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A,B\n1,2\n", "is not a file of folktables"),
        (HEADER + "\nZZ,30,1,20,1,10,2,0,40,1,1,1\n", "unknown state"),
        (HEADER + "\nNC,30,1,20,1,10,2,0,40,1,1,60000\n", "PINCP other than 0 and 1"),
    ],
)
def test_what_is_not_acs_is_refused(tmp_path, text, reason):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=reason):
        ACSIncome(path=str(tmp_path / "a.csv")).population  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"group": "age"}, "state, sex, race"),
        ({"clients_per_state": 0}, "at least 1"),
        ({"states": ("TX",)}, "of AK, NC, UT, not 'TX'"),
        ({"clients_per_state": 16}, "at most 15, for state AK has 30 rows, not 16"),
    ],
)
def test_settings_are_checked(path, settings, reason):
    with pytest.raises(ConfigError, match=reason):
        ACSIncome(path=path, **settings).population  # noqa: B018


def test_missing_files_are_explained_and_the_experiment_can_be_built(tmp_path):
    with pytest.raises(DataError, match="with folktables"):
        ACSIncome(dir=str(tmp_path)).population  # noqa: B018
    for variant in ("e2fl", *load("acs_income").variants):
        load("acs_income").variant(variant).build.algorithm()


@pytest.mark.slow
def test_the_real_extract_has_18_states(real_data):
    if not (real_data / "acs").is_dir():
        pytest.skip("no folder acs in E2FL_DATA")
    data = ACSIncome(dir=str(real_data))
    states = "AK AZ CO CT HI IA MA MD MN NC NE NJ NM NV RI SC SD UT".split()  # noqa: SIM905
    expected = {"rows": 403_545, "states": states, "clients": 90, "inputs": 79}
    assert data.about() | {"source": ""} == {"source": "", **expected}
    assert data.people.groupby("SEX")["PINCP"].mean().round(3).tolist() == [0.464, 0.313]
