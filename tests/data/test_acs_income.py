"""ACS income: people of US states, from one prepared CSV or from the files that folktables downloads."""

import gzip

import numpy as np
import pytest

from e2fl.config.experiment import load
from e2fl.data import DATASETS
from e2fl.data.sets.acs_income import ACSIncome, read
from e2fl.errors import ConfigError, DataError

HEADER = "STATE,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP"


def prepared(path, count=60, states=("NC", "AK")):
    """Made-up people; the label follows schooling."""
    rng = np.random.default_rng(0)
    lines = [HEADER]
    for row in range(count):
        school = int(rng.integers(10, 25))
        lines.append(
            f"{states[row % len(states)]},{rng.integers(17, 90)},{rng.integers(1, 9)},{school},{rng.integers(1, 6)},"
            f"{rng.choice([10, 440, 500, 9920, 4720])},{rng.choice([37, 110, 303])},{rng.integers(0, 18)},"
            f"{rng.integers(1, 80)},{rng.integers(1, 3)},{rng.integers(1, 10)},{int(school > 18)}"
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_states_are_groups_and_parts_of_states_are_clients(tmp_path):
    data = ACSIncome(path=prepared(tmp_path / "a.csv"), clients_per_state=3)
    assert data.group_names == ("AK", "NC")
    assert [data.client_name(number) for number in data.population.ids] == [
        "AK 1",
        "AK 2",
        "AK 3",
        "NC 1",
        "NC 2",
        "NC 3",
    ]
    assert list(data.population.declared.values()) == [0, 0, 0, 1, 1, 1]
    assert [(len(data.client(n).train), len(data.client(n).test)) for n in range(6)] == [(8, 2)] * 6
    train = np.concatenate([data.client(n).train.x for n in range(6)])
    assert train.shape[1:] == data.shape == (79,)
    assert train[:, :3].mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert train[:, :3].std(axis=0) == pytest.approx(1, abs=1e-6)
    assert (train[:, 3:].sum(axis=1) == 7).all()  # one category of each of seven columns
    assert train[:, 17 + 0].sum() > 0  # management: codes 10 and 440
    same = ACSIncome(path=str(tmp_path / "a.csv"), clients_per_state=3)
    assert np.array_equal(same.client(4).train.x, data.client(4).train.x)
    other = ACSIncome(path=str(tmp_path / "a.csv"), clients_per_state=3, seed=1)
    assert not np.array_equal(other.client(4).train.x, data.client(4).train.x)


@pytest.mark.parametrize(
    ("group", "names", "inputs"),
    [("sex", ("female", "male"), 77), ("race", ("not white", "white"), 70)],
)
def test_groups_may_lie_inside_clients_and_are_then_no_input(tmp_path, group, names, inputs):
    data = ACSIncome(path=prepared(tmp_path / "a.csv"), clients_per_state=2, group=group)
    assert data.group_names == names
    assert data.shape == (inputs,)
    assert set(data.population.declared.values()) == {None}
    assert data.client(0).groups() == [0, 1]
    assert data.client(0).train.x.shape[1] == inputs


def test_states_and_rows_can_be_chosen(tmp_path):
    path = prepared(tmp_path / "a.csv", states=("NC", "AK", "UT"))
    data = ACSIncome(path=path, states=("UT", "NC"), clients_per_state=2, rows_per_client=4)
    assert data.group_names == ("NC", "UT")
    assert data.about()["rows"] == 16
    with pytest.raises(ConfigError, match="has no state 'TX'; it has: AK, NC, UT"):
        ACSIncome(path=path, states=("TX",)).population  # noqa: B018
    with pytest.raises(ConfigError, match="state AK has 20 rows, too few for 11 clients"):
        ACSIncome(path=path, clients_per_state=11).population  # noqa: B018


def test_the_files_of_folktables_are_filtered_as_folktables_does(tmp_path):
    folder = tmp_path / "acs" / "2018" / "1-Year"
    folder.mkdir(parents=True)
    header = "RT,ST,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP"
    rows = [
        f"P,2,30,1,20,1,4720.0,2,0,40,{1 + row % 2},1,{40_000 + 1000 * row}.0" for row in range(20)
    ]
    rows += [
        "P,2,16,1,20,1,10,2,0,40,1,1,60000",
        "P,2,30,1,20,1,10,2,0,40,1,1,100",
        "P,2,30,,20,1,,2,0,,1,1,60000",
    ]
    (folder / "psam_p02.csv").write_text("\n".join([header, *rows]))
    with gzip.open(folder / "psam_p37.csv.gz", "wt") as file:
        file.write(
            "\n".join(
                [
                    header.replace("RELP", "RELSHIPP"),
                    *(
                        row.replace("P,2,", "P,37,").replace("2,0,40", "2,20,40")
                        for row in rows[:20]
                    ),
                ]
            )
        )
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
        (HEADER + "\nNC,x,1,20,1,10,2,0,40,1,1,1\n", "is not a file of folktables"),
        (HEADER + "\nNC,30,1,20,1,10,2,0,40,1,1,60000\n", "PINCP must be 0 or 1"),
        (HEADER + "\n", "has no rows"),
    ],
)
def test_what_is_not_acs_is_refused_with_the_line(tmp_path, text, reason):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=reason):
        ACSIncome(path=str(tmp_path / "a.csv")).population  # noqa: B018


def test_settings_are_checked_and_missing_files_explained(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.group is one of state, sex, race; not 'age'"):
        ACSIncome(group="age")
    with pytest.raises(ConfigError, match="clients_per_state must be at least 1"):
        ACSIncome(clients_per_state=0)
    with pytest.raises(DataError, match="download them there with folktables"):
        ACSIncome(dir=str(tmp_path)).population  # noqa: B018
    assert DATASETS["acs_income"] is ACSIncome
    for variant in ("e2fl", *load("acs_income").variants):
        load("acs_income").variant(variant).build_algorithm()


@pytest.mark.slow
def test_the_real_extract_has_18_states(real_data):
    if not (real_data / "acs").is_dir():
        pytest.skip("no folder acs in E2FL_DATA")
    data = ACSIncome(dir=str(real_data))
    assert data.about() | {"source": ""} == {
        "source": "",
        "rows": 403_545,
        "states": [
            "AK",
            "AZ",
            "CO",
            "CT",
            "HI",
            "IA",
            "MA",
            "MD",
            "MN",
            "NC",
            "NE",
            "NJ",
            "NM",
            "NV",
            "RI",
            "SC",
            "SD",
            "UT",
        ],
        "clients": 90,
        "inputs": 79,
    }
    assert data.people.groupby("SEX")["PINCP"].mean().round(3).tolist() == [0.464, 0.313]
