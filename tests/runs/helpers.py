"""What tests of runs share: watchers that stop a run, and what a run leaves."""

import json
from dataclasses import dataclass

import pytest
import torch

from e2fl.algorithms.fedavg import FedAvg, Update
from e2fl.errors import RunError
from e2fl.runs.runner import run_experiment
from e2fl.runs.watcher import Watcher

FILES = ("history.jsonl", "clients.csv", "model.safetensors")
FINDING = {"name": "e2fl", "clients_per_round": 4, "grouping": {"name": "lowest_loss", "groups": 2}}
RANK = FINDING | {"grouping": {"name": "rank_clustering", "groups": 2}}
DITTO = {"name": "ditto", "clients_per_round": 4}


@dataclass(frozen=True)
class Huge(FedAvg):
    """FedAvg whose weights are so large that the model gives no numbers."""

    def train(self, message, client, learner):
        return Update(
            {name: torch.full_like(weight, 1e30) for name, weight in message.params.items()}, 1
        )


class StopAfter(Watcher):
    """Stands for Ctrl-C in a certain round, or for a killed process: nothing is saved any more."""

    def __init__(self, number, error=KeyboardInterrupt):
        self.number, self.error = number, error

    def begin(self, experiment, first, last):
        if self.number == "begin":
            raise self.error

    def advance(self, number, measured):
        if number == self.number:
            raise self.error


class Noting(Watcher):
    """Notes the round that a run begins with, its warnings, and how many rounds it has."""

    def __init__(self):
        self.first, self.warnings, self.rounds = None, [], 0

    def begin(self, experiment, first, last):
        self.first = first

    def advance(self, number, measured):
        self.rounds += 1

    def warn(self, message):
        self.warnings.append(message)


def contents(folder):
    """Everything a run left that must not depend on how it came to pass."""
    left = {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return left | {"summary": summary}


def stopped(experiment, folder, number, error=KeyboardInterrupt, **more):
    """Run until a certain round, and return the folder."""
    with pytest.raises(error):
        run_experiment(experiment, out=folder, watcher=StopAfter(number, error), **more)
    return folder


def resumed_to_the_same_end(experiment, folder):
    """Resume, require that it ends like an uninterrupted run, and return what was noted."""
    noting = Noting()
    run_experiment(experiment, out=folder, resume=True, watcher=noting)
    run_experiment(experiment, out=folder.parent / "whole", resume=True)
    assert contents(folder) == contents(folder.parent / "whole")
    return noting


def refused_and_unchanged(experiment, folder):
    """Resuming fails, and every file stays as it was; return the reason."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunError) as refused:
        run_experiment(experiment, out=folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return str(refused.value)
