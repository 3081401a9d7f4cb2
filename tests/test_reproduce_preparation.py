"""Runs of a study that cluster the same first rankings: the clients are trained for them once."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from e2fl.config.experiment import load, with_seed
from e2fl.learning import Learner
from e2fl.learning.autograd import Losses
from e2fl.models import Layer, ModelSpec
from e2fl.reproduce import studies
from e2fl.reproduce.collecting import Origin
from e2fl.reproduce.ledger import read_entries
from e2fl.reproduce.preparation import FirstRankings, key_of
from e2fl.reproduce.running import MissingRun, Pace, Runner, estimate, missing
from e2fl.reproduce.studies import STUDIES, Part, PlannedRun, Study, wanted
from e2fl.runs.runner import run_experiment

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})
METHODS = {"two": {"groups": 2}, "three": {"groups": 3, "start": "random", "restarts": 1}}


@pytest.fixture
def study(toy, tmp_path, monkeypatch):
    """Two ways to cluster, on two seeds, and a method that does not cluster."""
    grouping = {"name": "rank_clustering", "groups": 2}
    variants = {
        name: {"algorithm": {"label": name, "grouping": grouping | changes}} for name, changes in METHODS.items()
    }
    config = tmp_path / "toy.toml"
    config.write_text(replace(toy, rounds=2, evaluate_every=1, variants=variants).to_toml())
    made = Study("toy", "A toy", str(config), (Part((*METHODS, "e2fl"), seeds=(0, 1)),))
    monkeypatch.setitem(studies.STUDIES, "toy", made)
    return made


@pytest.fixture
def trained(monkeypatch):
    """The clients trained in preparations, in order."""
    found = []
    fit_scores = Learner.fit_scores

    def counted(self, *args, **settings):
        if self.round_number == 0:
            found.append(self.client_id)
        return fit_scores(self, *args, **settings)

    monkeypatch.setattr(Learner, "fit_scores", counted)
    return found


def files(folder: Path) -> dict[str, object]:
    """What a run leaves, without its durations."""
    found = {name: (folder / name).read_bytes() for name in ("history.jsonl", "clients.csv", "model.safetensors")}
    summary = json.loads((folder / "summary.json").read_text())
    return found | {"summary": {key: value for key, value in summary.items() if key != "seconds"}}


def assert_as_alone(study, out, tmp_path):
    for method in METHODS:
        for seed in (0, 1):
            alone = tmp_path / "alone" / f"{method}-{seed}"
            run_experiment(with_seed(load(study.experiment, algorithm=method), seed), out=alone)
            (folder,) = out.glob(f"*/*/{method}/seed-{seed}")
            assert files(folder) == files(alone)


def test_the_clients_are_trained_once_and_each_run_is_as_if_alone(study, tmp_path, trained):
    out = tmp_path / "out"
    assert Runner(out, ORIGIN, budget=None, tell=lambda text: None).run(missing(wanted(study), []))
    clients = len(set(trained))
    assert len(trained) == 2 * clients  # once for each seed
    assert_as_alone(study, out, tmp_path)
    assert not [path for path in out.iterdir() if path.is_file()]


def test_a_run_that_has_finished_does_not_drop_what_the_others_share(study, tmp_path, trained):
    out = tmp_path / "out"
    first = missing(wanted(study, seeds=[0], methods=["three"]), [])
    assert Runner(out, ORIGIN, budget=None, tell=lambda text: None).run(first)
    trained.clear()
    told = []
    todo = missing(wanted(study, seeds=[0, 1], methods=list(METHODS)), read_entries(out))
    assert len(todo) == 3
    todo.insert(1, MissingRun(first[0].wanted, 0))
    assert Runner(out, ORIGIN, budget=None, tell=told.append).run(todo)
    assert len(trained) == 2 * len(set(trained))
    assert_as_alone(study, out, tmp_path)


def test_a_run_resumed_after_its_preparation_does_not_drop_what_the_others_share(study, tmp_path, trained):
    path = Path(study.experiment)
    path.write_text(path.read_text().replace("rounds = 2", "rounds = 4"))
    out = tmp_path / "out"
    begun = missing(wanted(study, seeds=[0], methods=list(METHODS)), [])
    Runner(out, ORIGIN, budget=None, tell=lambda text: None).measure(begun)  # stops after two rounds
    assert not list(out.rglob("summary.json"))
    trained.clear()
    new = missing(wanted(study, seeds=[1], methods=list(METHODS)), [])
    assert [item.wanted.method for item in new] == ["two", "three"]
    todo = [new[0], begun[1], begun[0], new[1]]
    assert Runner(out, ORIGIN, budget=None, tell=lambda text: None).run(todo)
    assert len(trained) == len(set(trained))  # seed 1 only, once
    assert len(list(out.rglob("summary.json"))) == 4


def test_the_estimate_is_of_what_is_left_after_measuring(study, tmp_path):
    told = []
    todo = missing(wanted(study, methods=["two"]), [])
    assert Runner(tmp_path / "out", ORIGIN, budget=None, tell=told.append).run(todo)
    assert "for 1 runs, 2 rounds" in told[0]


def test_a_full_disk_costs_only_time(study, tmp_path, trained, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FirstRankings, "_write", full)
    out, told = tmp_path / "out", []
    assert Runner(out, ORIGIN, budget=None, tell=told.append).run(missing(wanted(study), []))
    assert len(trained) == 4 * len(set(trained))
    assert sum("cannot keep the first rankings" in text and "No space left" in text for text in told) == 2
    assert_as_alone(study, out, tmp_path)


def test_the_space_of_the_first_rankings_is_freed_when_the_disk_is_full(tmp_path):
    first = FirstRankings(tmp_path, lambda text: None)
    ranks, spec = {"a": np.arange(5, dtype=np.int32)}, ModelSpec((Layer("a", (5, 1)),))
    first.add(0, ranks, 10, Losses(2.0, 10))
    found, kept = first.find(0, spec)
    assert found["a"].tolist() == [0, 1, 2, 3, 4]
    assert (kept.examples, kept.losses.mean) == (10, 0.2)
    file, first.file = first.file, Mock(wraps=first.file, write=lambda raw: 3)  # fewer bytes than asked
    first.add(1, ranks, 10, Losses(2.0, 10))
    assert first.find(0, spec) is first.find(1, spec) is None
    assert os.fstat(file.fileno()).st_size == 0


def test_the_first_rankings_need_no_function_that_windows_lacks(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "pread", raising=False)
    monkeypatch.delattr(os, "pwrite", raising=False)
    first, spec = FirstRankings(tmp_path, lambda text: None), ModelSpec((Layer("a", (3, 1)), Layer("b", (2, 1))))
    for client in range(3):
        ranks = {"a": np.arange(3, dtype=np.int32) + client, "b": np.arange(2, dtype=np.int32) - client}
        first.add(client, ranks, 10, Losses(2.0, 10))
    for client in (2, 0, 1):
        found, _ = first.find(client, spec)
        assert found["a"].tolist() == [client, client + 1, client + 2]
        assert found["b"].tolist() == [-client, 1 - client]


def test_a_single_run_keeps_nothing(study, tmp_path, monkeypatch):
    monkeypatch.setattr(FirstRankings, "_write", None)
    todo = missing(wanted(study, methods=["two", "e2fl"]), [])
    assert Runner(tmp_path / "out", ORIGIN, budget=None, tell=lambda text: None).run(todo)


def test_only_runs_with_the_same_training_share_it():
    run = load("table5", algorithm="conv1")
    assert key_of(run) == key_of(load("table5", algorithm="fc2_random"))
    assert key_of(load("table6", algorithm="q2")) == key_of(load("table6", algorithm="q5"))
    assert key_of(load("table1", algorithm="fedavg")) is None
    assert key_of(load("table1", algorithm="e2fl")) is None
    changes = ("seed=1", "data.samples_per_client=60", "learner.epochs=1", "algorithm.downlink.name=buckets")
    for change in changes:
        assert key_of(load("table5", [change], algorithm="conv1")) != key_of(run), change


def test_the_estimate_counts_preparations():
    runs = [PlannedRun("conv2", with_seed(load("table5", algorithm="conv2"), seed)) for seed in (0, 1)]
    told = estimate([MissingRun(run, 0) for run in runs], {"conv2": Pace(2.0, 1, 300.0)})
    assert "conv2: preparation of 300 s for 2 runs, 2 rounds of 2.00 s, about 10 min" in told


def test_a_part_of_a_study_is_not_named_by_a_setting_that_the_user_has_overridden():
    labels = {run.label for run in wanted(STUDIES["table4"], ["data.alpha=1"], [0], ["e2fl"])}
    assert labels == {"e2fl"}
    labels = {run.label for run in wanted(STUDIES["table4"], ["rounds=2"], [0], ["e2fl"])}
    assert labels == {"e2fl (data.alpha=5000)", "e2fl (data.alpha=1)"}
