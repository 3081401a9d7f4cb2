"""One run: its measures are those of its clients, threads change nothing, mistakes come first."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.errors import ConfigError, NothingLearnedError
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.report.page import page
from e2fl.runs.records import divergence_warnings
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from e2fl.simulation import simulator
from e2fl.testing.toy import Toy
from tests.runs.helpers import DITTO, RANK, Noting, contents


def test_bytes_and_budget_are_counted(toy):
    summary = run_experiment(toy).summary
    sent, ranking = summary["bytes"], (16 * 24 * 9 + 7) // 8 + (24 * 3 * 7 + 7) // 8
    for way in ("up", "down"):
        assert ranking < sent[f"{way}_per_client_round"] <= ranking + 64
    assert sent["up_total"] == 6 * 4 * sent["up_per_client_round"]
    work = {"client_trainings": 24, "client_epochs": 48.0, "examples": 24 * 2 * 48}
    assert summary["budget"] == work
    local = run_experiment(replace(toy, algorithm={"name": "local", "epochs": 5})).summary["budget"]
    assert local == {"client_trainings": 8, "client_epochs": 40.0, "examples": 8 * 5 * 48}
    ditto = run_experiment(replace(toy, algorithm=DITTO)).summary["budget"]
    assert ditto["client_epochs"] == 96.0  # it trains two models


@dataclass(frozen=True)
class NoGroups(Toy):
    """Toy's groups, which no client declares."""

    def client(self, number):
        return replace(super().client(number), group=None)

    @property
    def population(self):
        return replace(super().population, declared=dict.fromkeys(range(self.clients)), groups=0)


def test_group_measures_are_over_found_groups_where_none_are_declared(toy):
    data = {"name": "tests.runs.test_runner:NoGroups", "styles": True}
    run = run_experiment(replace(toy, algorithm=RANK | {"clients_per_round": 8}, data=data))
    summary = run.summary
    assert (summary["groups_are"], summary["membership"]) == ("found", "found")
    assert list(summary["groups"]) == ["found 0", "found 1"]
    for number, name in enumerate(summary["groups"]):
        own = [row["accuracy"] for row in run.clients if row["served_as"] == number]
        assert summary["groups"][name]["clients"] == len(own)
        assert summary["groups"][name]["accuracy"] == pytest.approx(np.mean(own))
    assert run.history[-1]["groups_are"] == "found"
    assert run_experiment(toy.variant("fedavg")).summary["membership"] is None


@pytest.mark.parametrize("name", ["local", "fedavg", "frl", "e2fl"])
def test_threads_never_change_a_result(toy, tmp_path, name, monkeypatch):
    left = []
    for threads, brief in ((1, 0.0), (2, 0.0), (5, 0.0), (2, math.inf)):
        # All in threads, or all but the first round in none.
        monkeypatch.setattr(simulator, "BRIEF", brief)
        out = tmp_path / f"{threads} {brief}"
        run_experiment(replace(toy.variant(name), threads=threads), out=out)
        left.append(contents(out))
    assert left[0] == left[1] == left[2] == left[3]


def test_mistakes_leave_no_folder(toy, tmp_path):
    few = replace(toy, data=toy.data | {"clients": 4}, algorithm={"name": "afl"})
    assert run_experiment(few).summary["clients"]["mean"] > 0  # the default asks them all
    many = replace(few, algorithm={"name": "afl", "clients_per_round": 5})
    groups = replace(toy, algorithm={"name": "ifca", "clients_per_round": 4, "groups": 9})
    for wrong, words in ((many, "only 4 clients"), (groups, "at most 8 clients")):
        with pytest.raises(ConfigError, match=words):
            run_experiment(wrong, out=tmp_path / "run")
        assert not any((tmp_path / "run").glob("*"))
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / ".config.toml.partial").write_text("na")  # of a process that was killed
    assert run_experiment(toy, out=tmp_path / "run").summary["rounds"] == 6


def test_models_that_give_no_numbers_are_counted_and_told_of_once(toy, tmp_path):
    algorithm = {"name": "tests.runs.helpers:Huge", "clients_per_round": 4}
    noting = Noting()
    done = run_experiment(replace(toy, algorithm=algorithm), out=tmp_path / "run", watcher=noting)
    assert [line["diverged"] for line in done.history] == [8, 8, 8]
    (warning,) = noting.warnings
    assert warning.startswith("round 2: the models of 8 clients have losses that are absurd")
    again = read_run(tmp_path / "run")
    assert {group["loss"] for group in again.summary["groups"].values()} == {None}
    (warning,) = divergence_warnings({"views": {"global": {"diverged": 1}}})
    assert warning.startswith("the models of 1 client (view global) have losses")


@pytest.mark.parametrize(("rate", "every"), [(5, 6), (200, 2)])
@pytest.mark.usefixtures("no_plots")
def test_training_that_ends_at_guessing_after_its_loss_rose_is_called_diverged(
    toy, tmp_path, capsys, rate, every
):
    """Scripts must notice, and a reader of the terminal and the page."""
    (tmp_path / "toy.toml").write_text(toy.variant("fedavg").to_toml())
    words = ["run", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "run")]
    changes = (f"learner.learning_rate={rate}", f"evaluate_every={every}")
    assert main([*words, *(word for change in changes for word in ("--set", change))]) == 3
    run = read_run(tmp_path / "run")
    assert run.summary["failed"]
    for text in (capsys.readouterr().out, page(study_of([run]))):
        assert "always predicting the commonest class" in text


def test_a_loss_that_rose_far_is_told_of_where_models_still_serve(toy):
    """The steps of q-FFL are divided by the loss, so that accuracy hides it."""
    rate = replace(toy.variant("qffl"), learner={"learning_rate": 200.0})
    run = run_experiment(rate)
    assert "failed" not in run.summary
    assert "the loss of training rose far" in printed(study_of([run]))
    assert "warnings" not in run_experiment(toy.variant("qffl")).summary


def test_a_rate_that_leaves_no_usable_reply_is_named(toy):
    with pytest.raises(NothingLearnedError, match="learning_rate"):
        run_experiment(replace(toy.variant("fedavg"), learner={"learning_rate": 1e6}))


def test_a_sample_of_clients_evaluates_before_the_last_round_and_changes_no_result(
    toy, monkeypatch
):
    asked = []
    evaluate = simulator.SimulatedFederation.evaluate

    def noted(self, round_number, inbox, *others):
        asked.append(tuple(inbox))
        return evaluate(self, round_number, inbox, *others)

    monkeypatch.setattr(simulator.SimulatedFederation, "evaluate", noted)
    toy = replace(toy, rounds=3, evaluate_every=1)
    sampled, full = run_experiment(replace(toy, evaluate_clients=3)), run_experiment(toy)
    first, second, last, everyone, *_ = asked
    assert len(first) == 3
    assert first == second
    assert last == everyone
    assert sampled.summary["clients"] == full.summary["clients"]


@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_few_personal_models_are_held_at_a_time_and_nothing_changes(toy, monkeypatch, algorithm):
    toy = replace(toy.variant(algorithm), rounds=1)
    expected = run_experiment(toy).clients
    held = []
    jobs = simulator.Scoreboard.jobs

    def noted(board):
        held.append(len(board.models))
        return jobs(board)

    monkeypatch.setattr(simulator.Scoreboard, "jobs", noted)
    monkeypatch.setattr(simulator, "MAX_DECODED", 2)
    assert run_experiment(toy).clients == expected
    assert len(held) > 2
    assert max(held) <= 3  # two personal models, and the global one


@pytest.mark.parametrize(("groups", "seed"), [(1, 2), (1, 3), (2, 0), (3, 1)])
def test_found_groups_that_are_noise_are_warned_of(toy, groups, seed):
    """Stability alone is 0.78 for one of these without groups."""
    data = toy.data | {"clients": 24, "groups": groups, "styles": True, "seed": seed}
    grouping = {"name": "rank_clustering", "groups": max(2, groups)}
    algorithm = {"name": "e2fl", "clients_per_round": 4, "grouping": grouping}
    model = {"name": "mlp", "hidden": [32]}
    run = run_experiment(
        replace(toy, seed=seed, rounds=1, data=data, model=model, algorithm=algorithm)
    )
    assert ("may be noise" in printed(study_of([run]))) == (groups == 1)
