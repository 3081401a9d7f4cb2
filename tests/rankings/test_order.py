"""Ranks and masks: the worked examples of the method, and a law; the loops: tests/kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.rankings.order import dropped, invert, mask_of


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
