"""A batch: finished runs are read, failures are named, data is shared, a budget stops it."""

from dataclasses import replace

import pytest

from e2fl.data import DATASETS
from e2fl.errors import ConfigError, RunError
from e2fl.runs.batch import SharedData, Task, run_all
from e2fl.runs.watcher import Watcher
from e2fl.testing.toy import Toy


def tasks_of(toy, tmp_path, *labels, **changes):
    return [
        Task(
            replace(toy, algorithm={"name": "fedavg", "label": label}, **changes), tmp_path / label
        )
        for label in labels
    ]


class Counting(Watcher):
    def __init__(self):
        self.rounds = 0

    def advance(self, number, measured):
        self.rounds += 1


def test_finished_runs_are_read_and_not_run_again(toy, tmp_path):
    tasks, watcher = tasks_of(toy, tmp_path, "a", "b", rounds=2), Counting()
    first = run_all(tasks[:1], watcher=watcher).finished()
    both = run_all(tasks, watcher=watcher).finished()
    assert watcher.rounds == 4
    assert [run.experiment.label for run in both] == ["a", "b"]
    assert both[0].summary == first[0].summary


def test_a_failed_run_is_named_and_the_others_finish(toy, tmp_path):
    tasks = tasks_of(toy, tmp_path, "a", "b", "c", rounds=1)
    tasks[0] = Task(replace(tasks[0].experiment, model={"name": "mlp", "hidden": [-1]}))
    tasks[1] = Task(
        replace(
            tasks[1].experiment,
            algorithm={"name": "fedavg", "label": "b", "clients_per_round": 99},
        )
    )
    batch = run_all(tasks)
    assert list(batch.runs) == tasks[2:]
    with pytest.raises(RunError, match=r"2 of 3 runs failed: a, seed 0: .*; b, seed 0: .*99"):
        batch.finished()
    with pytest.raises(ConfigError, match="99"):  # a single reason is raised as it is
        run_all(tasks[1:]).finished()


def test_a_budget_stops_between_rounds_and_the_same_batch_continues(toy, tmp_path):
    tasks, watcher = tasks_of(toy, tmp_path, "a", "b", rounds=4), Counting()
    stopped = run_all(tasks, budget=0.0, watcher=watcher)
    assert (stopped.stopped, stopped.runs, watcher.rounds) == (True, {}, 0)

    class Slow(Counting):
        def advance(self, number, measured):
            super().advance(number, measured)
            if self.rounds == 2:
                deadline.budget_is_spent()

    class Deadline:
        def __init__(self):
            self.now = 0.0

        def budget_is_spent(self):
            self.now = 1e9

        def time(self):
            return self.now

    deadline = Deadline()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("e2fl.runs.batch.time", deadline)
        batch = run_all(tasks, budget=60.0, watcher=Slow())
    assert batch.stopped
    assert not batch.runs
    again = Counting()
    runs = run_all(tasks, watcher=again).finished()
    assert again.rounds == 2 + 4
    assert runs[0].history == run_all([Task(tasks[0].experiment)]).finished()[0].history


def test_runs_with_the_same_data_share_it(toy, monkeypatch):
    made = []

    def build(**settings):
        made.append(settings)
        return Toy(**settings)

    monkeypatch.setitem(DATASETS, "counted", Toy)
    monkeypatch.setattr("e2fl.config.experiment.build", lambda section, seed: build(seed=seed))
    one, other = replace(toy, rounds=1), replace(toy, rounds=1, algorithm={"name": "fedavg"})
    run_all([Task(one), Task(other), Task(replace(one, seed=1))])
    assert [settings["seed"] for settings in made] == [0, 1]
    shared = SharedData()
    assert shared(one) is shared(other)


@pytest.mark.slow
def test_processes_give_the_same_runs(toy, tmp_path):
    tasks = tasks_of(toy, tmp_path, "a", "b", rounds=2)
    told = []
    runs = run_all(tasks, jobs=2, tell=told.append).finished()
    alone = [run_all([Task(task.experiment)]).finished()[0] for task in tasks]
    assert [run.history for run in runs] == [run.history for run in alone]
    assert len(told) == 2
    with pytest.raises(ConfigError, match="folders"):
        run_all([Task(task.experiment) for task in tasks], jobs=2)
