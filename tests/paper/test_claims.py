"""The verdict on a claim follows the runs."""

from dataclasses import replace

import pytest

from e2fl.metrics.intervals import over_seeds
from paper.claims import FAILS, HOLDS, INCONCLUSIVE, UNTESTED, findings, paired, verdict
from paper.ledger import frame
from tests.paper.conftest import make_run

MAIN = "FairMNISTRotate: E2FL lowers the variance over groups"


@pytest.mark.parametrize(
    ("differences", "claimed", "word"),
    [
        ([-1.0, -1.1, -0.9], -1, HOLDS),
        ([-1.0, -1.1, -0.9], 1, FAILS),
        ([-1.0, 1.1, -0.9], -1, INCONCLUSIVE),
        ([-1.0, -1.1], -1, INCONCLUSIVE),
        ([-1.0], -1, INCONCLUSIVE),
    ],
)
def test_a_verdict_needs_three_seeds_and_an_interval_without_0(differences, claimed, word):
    assert verdict(over_seeds(differences), claimed) == word


def test_a_claim_flips_if_the_methods_change_places(ledger, ledger_frame):
    names = {"e2fl": "fedavg", "fedavg": "e2fl"}
    own = [run for run in ledger if run.experiment == "table1"]
    flipped = frame([replace(run, method=names.get(run.method, run.method)) for run in own])
    for runs, word in ((ledger_frame, HOLDS), (flipped, FAILS), (flipped[:0], UNTESTED)):
        found = {(item.claim, item.setting): item for item in findings(runs)}
        assert found[MAIN, "60 images per client"].verdict == word


def test_methods_are_compared_at_the_last_round_of_enough_seeds():
    runs = [
        make_run(method, seed, [(10, mean), (20, mean + 1)])
        for method, mean in (("e2fl", 50.0), ("fedavg", 40.0))
        for seed in range(3)
    ]
    runs[0] = make_run("e2fl", 0, [(10, 50.0)], finished=False)
    number, figures = paired(frame(runs), {"e2fl": "clients/mean", "fedavg": "clients/mean"})
    assert number == 10
    assert (figures["e2fl"] - figures["fedavg"]).tolist() == [10, 10, 10]


@pytest.mark.parametrize(("gain", "word"), [(1.0, HOLDS), (-1.0, FAILS)])
def test_every_group_must_gain_by_taking_part(gain, word):
    """Local ends by itself, before the round that is compared."""
    runs = []
    for seed in range(3):
        alone = make_run("local", seed, [(5, 0.0)], experiment="table1", planned=3000)
        alone.rounds[0]["groups"] = {"G1": {"accuracy": 80.0}, "G2": {"accuracy": 70.0}}
        taking_part = make_run("e2fl", seed, [(60, 0.0)], experiment="table1")
        own = {"G1": 90.0 + seed, "G2": 70.0 + gain + 0.1 * seed}
        taking_part.rounds[0]["groups"] = {name: {"accuracy": own[name]} for name in own}
        runs += [alone, taking_part]
    claim = "FairMNISTRotate: every group gains by taking part (E2FL against Local)"
    finding = next(f for f in findings(frame(runs)) if f.claim == claim)
    assert finding.verdict == word
    assert f"{gain + 0.1:+.2f} points for G2, which gains least, after 60" in finding.figure
