"""The benchmark: its figures, and that it runs."""

import json
import random
from functools import partial

import pytest

from benchmarks import engine, federation, peers
from benchmarks.__main__ import main
from benchmarks.measure import Figure
from benchmarks.soak import Campaign
from benchmarks.work import Pictures, flops_of_an_example, paper_lenet
from e2fl.models import Model
from e2fl.networks import lenet


def small_lenet():
    return Model(lenet((1, 28, 28), 10, channels=(2, 4), hidden=8))


@pytest.mark.parametrize(
    ("values", "goal", "verdict"),
    [
        ((70, 60, 80), (30, 60), "aim reached"),
        ((40,), (30, 60), "reached"),
        ((35,), (50, 30), "reached"),
        ((90,), (50, 30), "NOT reached"),
        ((1,), None, ""),
    ],
)
def test_a_figure_has_a_median_and_a_verdict(values, goal, verdict):
    figure = Figure("it", "x", values, goal=goal)
    assert (figure.median, figure.verdict) == (values[0], verdict)
    assert verdict in figure.line(10)
    assert figure.to_json()["high"] == max(values)


def test_arithmetic_of_the_papers_network():
    # conv1: 288 edges at 784 places, forward and weights; conv2: 18,432 at 784, fc1 and fc2 once,
    # all three passes.
    expected = 2 * (288 * 784 * 2 + 18_432 * 784 * 3 + (1_605_632 + 1_280) * 3)
    assert flops_of_an_example(paper_lenet().network) == expected


def test_a_peer_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(peers.NEEDED, "pfl", ("no_such_package",))
    monkeypatch.delenv(peers.PYTHON, raising=False)
    task = peers.task_of("logistic", federation.LOGISTIC, 2, 10, 1)
    assert "no_such_package" in str(peers.run_peer("pfl", task))


def test_the_quick_form_measures_everything(capsys, monkeypatch):
    """All parts run, on a small network and few pictures."""
    few = partial(Pictures, samples=16, tests=20)
    for module in (engine, federation):
        monkeypatch.setattr(module, "paper_lenet", small_lenet)
        monkeypatch.setattr(module, "Pictures", lambda **given: few(**given | {"samples": 16}))
    monkeypatch.setattr(engine, "VOTERS", 3)
    monkeypatch.setattr(federation, "growth", lambda repeats: ([1.0] * repeats, [1.0] * repeats))
    monkeypatch.setattr(federation, "FairMNISTRotate", lambda: few(clients=30))
    monkeypatch.setattr(federation, "memory", lambda _: federation.peak_of_a_round() or [])
    assert main(["--json", "--quick"]) == 0
    peak, text = capsys.readouterr().out.split("\n", 1)
    assert json.loads(peak)["peak"] > 0
    document = json.loads(text)
    assert {"processor", "cores", "torch", "numba"} <= document["machine"].keys()
    autograd = [figure for figure in document["figures"] if "autograd" in figure["what"]]
    assert len(autograd) == 1 + 3 * len(engine.CELLS)  # one of them after ten rounds
    assert sum(figure["verdict"] != "" for figure in document["figures"]) == 4 + len(autograd)


@pytest.mark.slow
def test_a_run_that_crashes_at_a_write_resumes_to_the_same_files(tmp_path):
    campaign = Campaign(tmp_path, random.Random(3))
    campaign.interrupted(0, kill=False)
    assert campaign.counts["resumed"] == 1
    assert campaign.failures == []
