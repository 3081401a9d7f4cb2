"""The benchmark: its figures, its synthetic data, and that it runs."""

import json
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import engine, federation, peers
from benchmarks.__main__ import main
from benchmarks.figures import Figure, Goal, ratios, seconds
from benchmarks.main import describe_machine
from benchmarks.soak import Campaign, mutate
from benchmarks.work import Pictures, flops_of_an_example, logistic, paper_lenet, strokes
from e2fl.models import Model
from e2fl.networks import lenet


def small_lenet() -> Model:
    return Model(lenet((1, 28, 28), 10, channels=(2, 4), hidden=8))


def test_a_figure_says_its_median_and_spread() -> None:
    found = Figure("a step", "ms", (3.0, 1.0, 2.0)).to_json()
    assert (found["median"], found["low"], found["high"], found["repeats"]) == (2.0, 1.0, 3.0, 3)


@pytest.mark.parametrize(
    ("value", "smaller", "verdict"),
    [
        (70, False, "aim reached"),
        (40, False, "reached"),
        (20, False, "NOT reached"),
        (0.9, True, "aim reached"),
        (35, True, "reached"),
        (90, True, "NOT reached"),
    ],
)
def test_a_goal_says_whether_it_was_reached(value: float, smaller: bool, verdict: str) -> None:
    at_least, aim = (50, 30) if smaller else (30, 60)
    assert Goal(Figure("it", "x", (value,)), at_least, aim, smaller).verdict == verdict


def test_ratios_are_taken_side_by_side() -> None:
    assert ratios([10.0, 40.0], [5.0, 10.0]) == (2.0, 4.0)
    assert len(seconds(lambda: None, 3)) == 3


def test_arithmetic_of_the_papers_network() -> None:
    # conv1: 288 edges at 784 places, forward and weights; conv2: 18,432 at 784, fc1 and fc2 once, all three passes.
    expected = 2 * (288 * 784 * 2 + 18_432 * 784 * 3 + (1_605_632 + 1_280) * 3)
    assert flops_of_an_example(paper_lenet().network) == expected


def test_strokes_look_like_digits_on_a_dark_ground() -> None:
    images, labels = strokes(50, 0)
    assert images.shape == (50, 1, 28, 28)
    assert set(labels.tolist()) <= set(range(10))
    assert 0.1 < (images > 0).mean() < 0.35
    assert (images[:, :, 0] == 0).all()


def test_clients_are_made_when_asked_for_and_always_alike() -> None:
    data = Pictures(clients=100_000, samples=5)
    assert len(data.population) == 100_000
    np.testing.assert_array_equal(data.client(99_999).train.x, data.client(99_999).train.x)


def test_rounds_can_be_timed() -> None:
    found = federation.timed(
        federation.FedAvg(clients_per_round=3),
        Pictures(clients=20, samples=20),
        logistic(),
        federation.LOGISTIC,
        2,
    )
    assert len(found) == 2
    assert min(found) > 0


def test_a_peer_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.NEEDED, "pfl", ("no_such_package",))
    monkeypatch.delenv(peers.PYTHON, raising=False)
    task = peers._task("logistic", federation.LOGISTIC, clients_per_round=2, samples=10, rounds=1)
    assert "no_such_package" in str(peers._run("pfl", task))


def test_the_machine_is_described() -> None:
    assert {"processor", "cores", "torch", "numba"} <= describe_machine().keys()


def test_the_quick_form_measures_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts run, on a small network and few pictures."""
    few = partial(Pictures, samples=16, tests=20)
    for module in (engine, federation):
        monkeypatch.setattr(module, "paper_lenet", small_lenet)
        monkeypatch.setattr(module, "Pictures", lambda **given: few(**given | {"samples": 16}))
    monkeypatch.setattr(engine, "VOTERS", 3)
    monkeypatch.setattr(federation, "growth", lambda repeats: ([1.0] * repeats, [1.0] * repeats))
    monkeypatch.setattr(federation, "FairMNISTRotate", lambda: few(clients=30))
    monkeypatch.setattr(federation, "memory", lambda: (federation.peak_of_a_round(), ([], []))[1])
    assert main(["--json", "--quick"]) == 0
    peak, document = capsys.readouterr().out.split("\n", 1)
    assert json.loads(peak)["peak"] > 0
    goals = json.loads(document)["goals"]
    assert len(goals) == 4
    assert {goal["verdict"] for goal in goals} <= {"aim reached", "reached", "NOT reached"}


def test_mutated_messages_are_rejected_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(str(tmp_path), 0.0, 1, 0)
    found = json.loads((tmp_path / "mutations.json").read_text())
    assert (
        found["counts"]["message with a ranking, rejected"]
        + found["counts"]["message with weights, rejected"]
        > 30
    )
    assert found["failures"] == []


@pytest.mark.slow
def test_a_run_that_crashes_at_a_write_resumes_to_the_same_files(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, random.Random(3))
    campaign.interrupted(0, kill=False)
    assert campaign.counts["resumed"] == 1
    assert campaign.failures == []
