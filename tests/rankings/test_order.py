"""Orders, ranks, footrule and masks: the worked examples of the method, and the laws they obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from e2fl.rankings.order import dropped, footrule, invert, mask_of, order_of, rank_of, scores_from


def ranks(order):
    return invert(np.array(order, dtype=np.int32))


def permutations(most=40):
    lists = st.integers(1, most).flatmap(lambda size: st.permutations(range(size)))
    return lists.map(lambda order: np.array(order, dtype=np.int32))


def test_scores_give_this_order_and_these_ranks_and_are_given_out_again():
    scores = np.array([0.5, 1.0, 0.2, 0.3, 1.2, 0.8], dtype=np.float32)
    assert order_of(scores).tolist() == [2, 3, 0, 5, 1, 4]
    assert rank_of(scores).tolist() == [2, 4, 0, 1, 5, 3]
    assert scores_from(rank_of(scores), np.sort(scores)).tolist() == scores.tolist()


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
    assert ranks(order).tolist() == reputation
    assert mask_of(ranks(order), 0.5).astype(int).tolist() == mask


@pytest.mark.parametrize(
    ("keep", "lost"),
    [(0.5, 5), (0.9, 1), (0.8, 2), (0.7, 3), (1.0, 0), (0.0, 10), (0.55, 4)],
)
def test_edges_dropped_in_spite_of_binary_fractions(keep, lost):
    assert dropped(10, keep) == lost


@given(permutations(), st.floats(0.01, 1.0))
def test_a_mask_keeps_the_highest_ranks(rank, keep):
    mask = mask_of(rank, keep)
    assert mask.sum() == len(rank) - dropped(len(rank), keep)
    if mask.any() and not mask.all():
        assert rank[mask].min() > rank[~mask].max()


@given(permutations())
def test_order_and_rank_are_inverse(order):
    rank = invert(order)
    assert (rank[order] == np.arange(len(order))).all()
    assert (invert(rank) == order).all()


@given(arrays(np.float32, st.integers(1, 60), elements=st.sampled_from([-1.5, -0.0, 0.0, 0.25])))
def test_equal_scores_stand_by_edge_number(scores):
    assert order_of(scores).tolist() == np.argsort(scores, kind="stable").tolist()


def test_footrule_compares_places_not_orders():
    a, b, c = ranks([0, 2, 4, 5, 3, 1]), ranks([0, 2, 3, 1, 4, 5]), ranks([4, 0, 2, 3, 5, 1])
    assert (footrule(a, b), footrule(c, a), footrule(c, b)) == (8, 6, 10)
    assert footrule(ranks(range(6)), ranks(range(5, -1, -1))) == 18


@given(st.integers(1, 40).flatmap(lambda d: st.tuples(*[st.permutations(range(d))] * 3)))
def test_footrule_is_a_distance(orders):
    a, b, c = (np.array(order, dtype=np.int32) for order in orders)
    assert footrule(a, a) == 0
    assert footrule(a, b) == footrule(b, a) <= len(a) ** 2 // 2
    assert footrule(a, c) <= footrule(a, b) + footrule(b, c)
