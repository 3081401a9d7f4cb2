"""Mutated ballots give `WireError` and nothing else, in bounded time; `benchmarks.fuzz_ballots` runs a million."""

import tracemalloc

import numpy as np
import pytest
from benchmarks.fuzz_ballots import campaign

from e2fl.ballots import Buckets, Reference
from e2fl.ballots import coarse as coarse_module
from e2fl.errors import WireError


@pytest.fixture(autouse=True)
def levels_in_small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse_module, "LARGE", 1000)


def test_mutated_messages_give_wire_errors_only() -> None:
    outcome = campaign(6000)
    assert outcome.messages == 6000
    assert outcome.refused > 5000
    assert len(outcome.reasons) >= 5


@pytest.mark.slow
def test_many_mutated_messages_take_no_longer_than_honest_ones() -> None:
    outcome = campaign(40_000, seed=1)
    assert outcome.slowest <= 5


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x55"])
def test_a_long_message_takes_no_more_memory_than_the_model(filler: bytes) -> None:
    reference = Reference({"w": np.arange(4000, dtype=np.int32)}, {"w": 50})
    sent = Buckets(16).encode(reference.ranking, reference)
    long = sent + filler * 50_000_000
    for raw in (long, filler * 50_000_000, (49_000_000).to_bytes(4, "little") + filler * 50_000_000):
        tracemalloc.start()
        with pytest.raises(WireError):
            Buckets(16).decode(raw, reference)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000
