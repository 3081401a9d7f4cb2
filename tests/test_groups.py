"""How many groups there are: found where there are some, and a warning where there are none."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.experiment import from_dict
from e2fl.groups import Row, Survey, silhouette, survey
from e2fl.testing.toy import Toy


def experiment(**data):
    return from_dict(
        {
            "data": {"name": "e2fl.testing.toy:Toy", "clients": 24, "styles": True} | data,
            "model": {"name": "mlp", "hidden": [32]},
            "learner": {"learning_rate": 0.1},
            "algorithm": {"name": "e2fl", "grouping": {"name": "rank_clustering", "layers": ["all"]}},
        }
    )


def test_silhouette_by_hand():
    # Points 0 and 1, and 10: own distances 1 and 1, others 10 and 9; the third is alone and counts 0.
    distances = np.array([[0, 1, 10], [1, 0, 9], [10, 9, 0]], dtype=float)
    assert silhouette(distances, np.array([4, 4, 7])) == pytest.approx((9 / 10 + 8 / 9 + 0) / 3)
    assert silhouette(distances, np.array([1, 1, 1])) == 0


@pytest.mark.parametrize("groups", [2, 3])
def test_the_groups_of_a_toy_problem_are_counted_right(groups):
    found = survey(experiment(groups=groups), 2, 5)
    assert found.best is not None
    assert found.best.groups == groups
    assert f"Use {groups} groups" in found.advice()
    assert found.best.stability > 0.8


def test_declared_groups_tell_how_good_the_found_ones_are():
    (row,) = survey(experiment(groups=3), 3, 3).rows
    assert row.agreement is not None
    assert (row.agreement.matched, row.agreement.purity) == (100, 100)
    assert 40 < row.agreement.mean_matched <= row.agreement.mean_purity <= 100
    data = Toy(clients=24, groups=3, styles=True)
    unknown = replace(data.roll, declared=dict.fromkeys(data.roll.ids), groups=0)
    nameless = SimpleNamespace(roll=unknown, client=data.client, shape=data.shape, classes=data.classes, groups=())
    found = survey(experiment(groups=3), 3, 3, data=nameless)
    assert found.rows[0].agreement is None
    assert "declared" not in found.table()


def test_a_federation_without_groups_is_called_noise():
    found = survey(experiment(groups=1), 2, 4)
    assert found.best is None
    assert found.advice().startswith("Warning: these groups look like noise")


def test_one_start_alone_is_not_taken_for_agreement():
    once = experiment(groups=2)
    once.algorithm["grouping"]["restarts"] = 1
    found = survey(once, 2, 3)
    assert found.best is not None
    assert found.best.groups == 2


def test_a_tie_goes_to_fewer_groups():
    rows = tuple(Row(groups, 0.9, 0.2, 0.0, 0.0, 8, 0.8) for groups in (3, 2))
    assert Survey(rows).best.groups == 2


@pytest.mark.parametrize(("first", "last"), [(1, 3), (4, 3), (2, 24)])
def test_numbers_of_groups_that_make_no_sense_are_refused(first, last):
    with pytest.raises(ConfigError, match="--"):
        survey(experiment(), first, last, data=Toy(clients=24))


def test_the_command_prints_a_table_and_advice(tmp_path, capsys):
    config = tmp_path / "toy.toml"
    config.write_text(experiment().to_toml())
    assert main(["groups", str(config), "--from", "2", "--to", "3"]) == 0
    shown = capsys.readouterr()
    assert "stability" in shown.out
    assert "2 *" in shown.out
    assert "Use 2 groups" in shown.out
    assert "as declared" in shown.out
    steps = [line.split(" s  ")[1] for line in shown.err.splitlines()]
    assert steps[0] == "training 24 clients once"
    assert steps[-2:] == ["clustering into 3 groups", "done"]
    assert main(["groups", str(config), "--to", "99"]) == 2
    assert "fewer groups" in capsys.readouterr().err
