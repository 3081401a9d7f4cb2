"""A batch: finished runs are read, failures are named, data is shared, a budget stops it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from e2fl.errors import ConfigError, RunError
from e2fl.runs.batch import SharedData, Task, file_name, run_all
from tests.runs.helpers import Noting


def tasks_of(toy, tmp_path, *labels, **changes):
    algorithm = {"name": "fedavg", "clients_per_round": 4}
    return [
        Task(replace(toy, algorithm=algorithm | {"label": label}, **changes), tmp_path / label)
        for label in labels
    ]


def test_a_failed_run_is_named_and_the_others_finish(toy, tmp_path):
    tasks = tasks_of(toy, tmp_path, "a", "b", "c", rounds=1)
    tasks[0] = Task(replace(tasks[0].experiment, model={"name": "mlp", "hidden": [-1]}))
    many = {"name": "fedavg", "label": "b", "clients_per_round": 99}
    tasks[1] = Task(replace(tasks[1].experiment, algorithm=many))
    batch = run_all(tasks)
    assert list(batch.runs) == tasks[2:]
    with pytest.raises(RunError, match=r"2 of 3 runs failed: a, seed 0: .*; b, seed 0: .*99"):
        batch.finished()
    assert [run.experiment.label for run in batch.some()] == ["c"]
    with pytest.raises(ConfigError, match="99"):  # a single reason is raised as it is
        run_all(tasks[1:]).finished()
    with pytest.raises(ConfigError, match="99"):
        run_all(tasks[1:2]).some()


def test_a_budget_stops_between_rounds_and_the_same_batch_continues(toy, tmp_path, monkeypatch):
    tasks, watcher = tasks_of(toy, tmp_path, "a", "b", rounds=4), Noting()
    stopped = run_all(tasks, budget=0.0, watcher=watcher)
    assert (stopped.stopped, stopped.runs, watcher.rounds) == (True, {}, 0)
    with monkeypatch.context() as patched:
        patched.setattr(
            "e2fl.runs.batch.time", SimpleNamespace(time=lambda: 100.0 * (watcher.rounds >= 2))
        )
        batch = run_all(tasks, budget=60.0, watcher=watcher)
    assert (batch.stopped, batch.runs, watcher.rounds) == (True, {}, 2)
    again = Noting()
    runs = run_all(tasks, watcher=again).finished()
    assert again.rounds == 2 + 4
    assert runs[0].history == run_all([Task(tasks[0].experiment)]).finished()[0].history
    assert [run.state for run in runs] == [None, None]  # their models are in the folders
    reading = Noting()  # finished runs are read, and not run again
    assert [run.summary for run in run_all(tasks, watcher=reading).finished()] == [
        run.summary for run in runs
    ]
    assert reading.rounds == 0


def test_runs_with_the_same_data_share_it_and_names_do_not_leave_their_folder(toy):
    shared, other = SharedData(), replace(toy, algorithm={"name": "fedavg"})
    assert shared(toy) is shared(other)
    assert shared(replace(toy, seed=1)) is not shared(toy)
    assert file_name("../mine:Method") == "...mine.Method"
