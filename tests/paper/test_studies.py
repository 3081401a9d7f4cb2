"""Studies: their overrides are those that the configuration finds, and missing runs are told."""

from dataclasses import replace

import pytest

from e2fl.errors import ConfigError
from paper.recipes import planned_runs
from paper.studies import DECLARED, complete, missing, needed, state
from tests.paper.conftest import make_run


@pytest.mark.parametrize("name", DECLARED)
def test_the_declared_runs_are_those_of_the_configuration(name):
    assert [run for run, _ in planned_runs(name)] == needed(name)


def test_the_first_seed_of_every_method_comes_first():
    runs = needed("table1")
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len(runs) == len({run.identity for run in runs}) == 43


def test_settings_methods_and_seeds_can_be_chosen():
    changes = ["data.samples_per_client=60", "rounds=4", "algorithm.q=0.5"]
    runs = [run for run, _ in planned_runs("table1", changes, [7], ["qffl", "e2fl"])]
    assert {(run.method, run.seed, run.rounds) for run in runs} == {("e2fl", 7, 4), ("qffl", 7, 4)}
    overrides = {run.method: run.overrides for run in runs}
    assert overrides["e2fl"] == {"data.samples_per_client": 60}
    assert overrides["qffl"] == {"data.samples_per_client": 60, "algorithm.q": 0.5}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"study": "table9"}, "table9"),
        ({"methods": ["fedavgg"]}, "fedavg"),
        ({"changes": ["seed=3"]}, "seeds"),
        ({"changes": ["data.alpa=3"]}, "alpa"),
        ({"changes": ["algorithm.nothing=3"]}, "nothing"),
        ({"changes": ["model.hidden=many"]}, "hidden"),
    ],
)
def test_a_mistake_is_named(arguments, word):
    with pytest.raises(ConfigError, match=word):
        planned_runs(**{"study": "table1"} | arguments)


def test_a_run_is_missing_until_it_has_its_last_round():
    planned = replace(needed("states")[0], experiment="demo", method="e2fl", rounds=60)
    short, whole = make_run(rounds=[(20, 1.0)], finished=False), make_run(rounds=[(60, 1.0)])
    assert missing([planned], [])[0].reached == 0
    assert missing([planned], [short])[0].reached == 20
    assert missing([planned], [whole]) == []


def test_local_is_complete_when_it_has_ended_by_itself():
    assert complete(make_run("local", rounds=[(10, 1.0)]), 3000)
    assert not complete(make_run(rounds=[(70, 1.0)]), 80)


def test_the_state_counts_every_study(ledger):
    rows = {title: (needed, finished) for title, needed, finished, _ in state(ledger)}
    assert rows["Table 4: Adult"] == (30, 30)
    assert len(rows) == len(DECLARED)
