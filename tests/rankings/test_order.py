"""Ranks, masks and tables by worked examples and laws; the loops: tests/kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.errors import WireError
from e2fl.rankings.order import (
    dropped,
    invert,
    mask_of,
    median_of,
    places,
    rank_of,
    read_table,
    table_of,
    weights_from,
    write_table,
)


@pytest.mark.parametrize(
    ("order", "reputation", "mask"),
    [
        ([4, 0, 2, 3, 5, 1], [1, 5, 2, 3, 0, 4], [0, 1, 0, 1, 0, 1]),
        ([5, 4, 0, 2, 3, 1], [2, 5, 3, 4, 1, 0], [0, 1, 1, 1, 0, 0]),
        ([2, 0, 1, 5, 3, 4], [1, 2, 0, 4, 5, 3], [0, 0, 0, 1, 1, 1]),
        ([0, 3, 2, 4, 1, 5], [0, 4, 2, 1, 3, 5], [0, 1, 0, 0, 1, 1]),
    ],
)
def test_reputation_and_mask_of_clients_worked_by_hand(order, reputation, mask):
    rank = invert(np.array(order, dtype=np.int32))
    assert rank.tolist() == reputation
    assert mask_of(rank, 0.5).astype(int).tolist() == mask


@pytest.mark.parametrize(
    ("keep", "lost"),
    [(0.5, 5), (0.9, 1), (0.8, 2), (0.7, 3), (1.0, 0), (0.0, 10), (0.55, 4)],
)
def test_edges_dropped_in_spite_of_binary_fractions(keep, lost):
    assert dropped(10, keep) == lost


@given(st.integers(1, 40).flatmap(lambda size: st.permutations(range(size))), st.floats(0.01, 1.0))
def test_a_mask_keeps_the_highest_ranks(ranks, keep):
    rank = np.array(ranks, dtype=np.int32)
    mask = mask_of(rank, keep)
    assert mask.sum() == len(rank) - dropped(len(rank), keep)
    if mask.any() and not mask.all():
        assert rank[mask].min() > rank[~mask].max()


# Tables: values at few places, medians, and what a client may claim.


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("edges", [1, 2, 7, 100])
def test_a_small_layer_is_sent_whole(edges):
    weights = np.random.default_rng(0).normal(size=edges).astype(np.float32)
    assert places(edges).tolist() == list(range(edges))
    table = table_of({"a": weights.reshape(1, -1)})
    assert np.array_equal(weights_from(rank_of(weights), table["a"]), weights)


@pytest.mark.parametrize("edges", [258, 5_000, 1_000_003])
def test_few_values_stand_for_a_large_layer(edges):
    at = places(edges)
    assert at[0] == 0
    assert at[-1] == edges - 1
    assert (np.diff(at) > 0).all()
    assert len(at) <= 258
    # Heavy tails, as trained weights have: the extremes are kept, the others nearly so.
    weights = np.random.default_rng(1).standard_t(4, size=edges).astype(np.float32)
    again = weights_from(rank_of(weights), table_of({"a": weights})["a"])
    assert again.max() == weights.max()
    assert again.min() == weights.min()
    assert np.square(again - weights).mean() < 0.01 * weights.var()


def test_the_median_is_taken_place_by_place_and_stays_sorted():
    tables = [{"a": floats(-1, 0, 1)}, {"a": floats(-3, 0, 2)}, {"a": floats(-9, -8, 900)}]
    assert median_of(tables)["a"].tolist() == [-3, 0, 2]
    assert median_of(tables[:2])["a"].tolist() == [-2, 0, 1.5]


SENT = {"a": floats(-1, 0, 2), "b": floats(0.5)}
EDGES = {"a": 3, "b": 1}


def test_a_table_travels_as_four_bytes_a_value():
    raw = write_table(SENT)
    assert len(raw) == 16
    again = read_table(raw, EDGES)
    assert {layer: values.tolist() for layer, values in again.items()} == {
        "a": [-1, 0, 2],
        "b": [0.5],
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        write_table(SENT)[:-1],
        write_table(SENT) + b"\0\0\0\0",
        write_table({"a": floats(0, -1, 2), "b": floats(1)}),
        write_table({"a": floats(-1, 0, np.inf), "b": floats(1)}),
        write_table({"a": floats(-1, np.nan, 2), "b": floats(1)}),
    ],
)
def test_a_table_that_no_honest_client_sends_is_refused(raw):
    with pytest.raises(WireError, match="table"):
        read_table(raw, EDGES, SENT)


def test_what_a_client_claims_is_limited_by_what_it_was_sent():
    claimed = {"a": floats(-3e38, -5, 3e38), "b": floats(4)}
    table = read_table(write_table(claimed), EDGES, SENT)
    assert table["a"].tolist() == [-20, -5, 20]
    assert table["b"].tolist() == [4]
