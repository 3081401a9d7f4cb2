"""Mutated ballots give `WireError` only, in bounded time; `benchmarks.fuzz_ballots` has more."""

import tracemalloc

import numpy as np
import pytest

from benchmarks.fuzz_ballots import campaign
from e2fl.errors import WireError
from e2fl.rankings import coder as coarse_module
from e2fl.rankings.ballots import Buckets, Reference
from e2fl.testing.contract import same
from tests.rankings.test_ballots import drawn


@pytest.fixture(autouse=True)
def levels_in_small_layers(monkeypatch):
    monkeypatch.setattr(coarse_module, "MIN_EDGES_FOR_LEVELS", 1000)


def test_mutated_messages_give_wire_errors_only():
    outcome = campaign(3000)
    assert outcome.failures == []
    assert outcome.refused > 2500
    assert len(outcome.reasons) >= 5


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x55"])
def test_a_long_message_takes_no_more_memory_than_the_model(filler):
    reference = Reference({"w": np.arange(4000, dtype=np.int32)}, {"w": 50})
    sent = Buckets(16).encode(reference.ranking, reference)
    long = filler * 50_000_000
    for raw in (sent + long, long, (49_000_000).to_bytes(4, "little") + long):
        tracemalloc.start()
        with pytest.raises(WireError):
            Buckets(16).decode(raw, reference)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000


# Layers with different numbers of buckets: borders near the cut are counted in whole places.
FINER = Buckets(12, finer=8, near=0.08)
LAYERS = [
    {"first": 72, "second": 384},
    {"first": 384, "second": 72},
    {"first": 2, "second": 1, "third": 500},
]


@pytest.mark.parametrize("sizes", LAYERS, ids=str)
def test_layers_with_different_numbers_of_buckets_come_back(sizes):
    reference = Reference(drawn(sizes, 0))
    assert len({plan.alphabet for plan in FINER.layer_codes(reference)}) > 1
    for seed in range(1, 20):
        ranking = drawn(sizes, seed)
        sent = FINER.encode(ranking, reference)
        assert same(FINER.decode(sent, reference), FINER.rounded(ranking, reference))
        assert FINER.entropy_bits(ranking, reference) < 8 * len(sent)


def test_a_symbol_that_only_another_layer_has_is_refused():
    reference = Reference(drawn(LAYERS[0], 0))
    plans = FINER.layer_codes(reference)
    assert [plan.alphabet for plan in plans] == [25, 26]
    symbols = [np.zeros(72, np.uint8), np.zeros(384, np.uint8)]
    symbols[0][-1] = 25
    with pytest.raises(WireError, match="'first' has a symbol of other layers"):
        FINER.decode(coarse_module.encode_layers(plans, symbols), reference)


@pytest.mark.parametrize("edges", [1, 2, 3, 5, 24, 72, 256, 300, 5000])
@pytest.mark.parametrize(
    "ballot", [Buckets(96, finer=8, near=0.08), Buckets(200, finer=1000, near=0.0001)], ids=str
)
@pytest.mark.parametrize("keep", [0.3, 0.5, 1.0])
def test_no_layer_has_more_buckets_than_a_byte_can_count(edges, ballot, keep):
    reference = Reference(drawn({"w": edges}, 0), keep=keep)
    borders = ballot.borders(edges, reference)
    assert borders.size - 1 <= 256
    assert (borders[0], borders[-1]) == (0, edges)
    assert (np.diff(borders) >= 0).all()
    ranking = drawn({"w": edges}, 1)
    decoded = ballot.decode(ballot.encode(ranking, reference), reference)["w"]
    was, now = (np.searchsorted(borders, rank, side="right") for rank in (ranking["w"], decoded))
    assert np.array_equal(was, now)


def test_a_fan_in_that_does_not_divide_the_layer_is_not_made_use_of():
    reference = Reference(drawn({"w": 2003}, 0), {"w": 50})
    ranking = drawn({"w": 2003}, 1)
    plain = Reference(reference.ranking)
    assert Buckets(16).encode(ranking, reference) == Buckets(16).encode(ranking, plain)
