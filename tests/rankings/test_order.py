"""Orders, ranks, votes, footrule and masks: the worked examples of the method, and the laws they obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from e2fl.rankings.order import (
    dropped,
    footrule,
    invert,
    mask_of,
    order_of,
    rank_of,
    scores_from,
)
from e2fl.rankings.votes import elect

CLIENTS = {  # orders of six edges, by the clients of groups A, B and C
    "A": ([4, 0, 2, 3, 5, 1], [5, 4, 0, 2, 3, 1], [2, 0, 1, 5, 3, 4]),
    "B": ([2, 0, 1, 3, 4, 5], [0, 3, 2, 4, 1, 5]),
    "C": ([5, 2, 0, 4, 3, 1],),
}


def ranks(order):
    return invert(np.array(order, dtype=np.int32))


def elected(ballots, incumbent=None, weight=0):
    """The vote that the server takes, of one layer."""
    before = None if incumbent is None else {"fc": incumbent}
    return elect(({"fc": rank} for rank in ballots), before, weight)["fc"]


def order_elected(orders):
    return invert(elected(ranks(order) for order in orders)).tolist()


def permutations(most=40):
    return (
        st.integers(1, most)
        .flatmap(lambda d: st.permutations(range(d)))
        .map(lambda p: np.array(p, dtype=np.int32))
    )


def ballots(most=30):
    return st.integers(1, most).flatmap(
        lambda d: st.lists(
            st.permutations(range(d)).map(lambda p: np.array(p, dtype=np.int32)),
            min_size=1,
            max_size=7,
        )
    )


def test_scores_give_this_order_and_these_ranks():
    scores = np.array([0.5, 1.0, 0.2, 0.3, 1.2, 0.8], dtype=np.float32)
    assert order_of(scores).tolist() == [2, 3, 0, 5, 1, 4]
    assert rank_of(scores).tolist() == [2, 4, 0, 1, 5, 3]


def test_scores_are_given_out_again_in_the_order_of_a_ranking():
    seed_scores = np.sort(np.array([0.8, 0.3, 1.2, 0.2, 1.0, 0.5], dtype=np.float32))
    scores = scores_from(ranks([2, 3, 0, 5, 1, 4]), seed_scores)
    assert scores.tolist() == np.array([0.5, 1.0, 0.2, 0.3, 1.2, 0.8], dtype=np.float32).tolist()


@pytest.mark.parametrize(
    ("order", "reputation", "mask"),
    [
        ([4, 0, 2, 3, 5, 1], [1, 5, 2, 3, 0, 4], [0, 1, 0, 1, 0, 1]),
        ([5, 4, 0, 2, 3, 1], [2, 5, 3, 4, 1, 0], [0, 1, 1, 1, 0, 0]),
        ([2, 0, 1, 5, 3, 4], [1, 2, 0, 4, 5, 3], [0, 0, 0, 1, 1, 1]),
        ([2, 0, 1, 3, 4, 5], [1, 2, 0, 3, 4, 5], [0, 0, 0, 1, 1, 1]),
        ([0, 3, 2, 4, 1, 5], [0, 4, 2, 1, 3, 5], [0, 1, 0, 0, 1, 1]),
        ([5, 2, 0, 4, 3, 1], [2, 5, 1, 4, 3, 0], [0, 1, 0, 1, 1, 0]),
    ],
)
def test_reputation_and_mask_of_the_six_clients(order, reputation, mask):
    assert ranks(order).tolist() == reputation
    assert mask_of(ranks(order), 0.5).astype(int).tolist() == mask


@pytest.mark.parametrize(
    ("group", "elected", "mask"),
    [
        ("A", [0, 2, 4, 5, 3, 1], [0, 1, 0, 1, 0, 1]),
        ("B", [0, 2, 3, 1, 4, 5], [0, 1, 0, 0, 1, 1]),
        ("C", [5, 2, 0, 4, 3, 1], [0, 1, 0, 1, 1, 0]),
    ],
)
def test_votes_inside_the_three_groups(group, elected, mask):
    assert order_elected(CLIENTS[group]) == elected
    assert mask_of(ranks(elected), 0.5).astype(int).tolist() == mask


def test_vote_across_groups_gives_each_group_one_vote():
    elected = order_elected([order_elected(CLIENTS[group]) for group in "ABC"])
    assert elected == [0, 2, 5, 4, 3, 1]
    assert mask_of(ranks(elected), 0.5).astype(int).tolist() == [0, 1, 0, 1, 1, 0]
    scores = scores_from(ranks(elected), np.array([0.2, 0.3, 0.5, 0.8, 1.0, 1.2], dtype=np.float32))
    assert scores == pytest.approx([0.2, 1.2, 0.3, 1.0, 0.8, 0.5])


def test_one_flat_vote_repeats_the_majority_group():
    assert order_elected([order for group in "ABC" for order in CLIENTS[group]]) == [
        0,
        2,
        4,
        5,
        3,
        1,
    ]


def test_a_group_that_is_absent_votes_with_its_last_ranking():
    assert order_elected(
        [[2, 0, 4, 3, 5, 1], order_elected(CLIENTS["B"]), order_elected(CLIENTS["C"])]
    ) == [
        2,
        0,
        3,
        4,
        5,
        1,
    ]


@pytest.mark.parametrize(
    ("orders", "elected"),
    [([[0, 1, 2, 3], [3, 2, 1, 0]], [0, 1, 2, 3]), ([[2, 0, 1], [0, 2, 1]], [0, 2, 1])],
)
def test_ties_go_to_the_lower_edge(orders, elected):
    assert order_elected(orders) == elected


def test_a_vote_without_ballots_is_an_error():
    with pytest.raises(ValueError, match="at least one ballot"):
        elect([])


@pytest.mark.parametrize(
    ("edges", "keep", "lost"),
    [
        (6, 0.5, 3), (5, 0.5, 2), (7, 0.5, 3), (288, 0.5, 144), (10, 0.9, 1), (10, 0.8, 2), (10, 0.7, 3), (10, 1.0, 0),
        (10, 0.0, 10),
    ],
)  # fmt: skip
def test_edges_dropped_in_spite_of_binary_fractions(edges, keep, lost):
    assert dropped(edges, keep) == lost


def test_footrule_compares_places_not_orders():
    a, b, first = ranks([0, 2, 4, 5, 3, 1]), ranks([0, 2, 3, 1, 4, 5]), ranks(CLIENTS["A"][0])
    assert (footrule(a, b), footrule(first, a), footrule(first, b)) == (8, 6, 10)


def test_footrule_of_opposite_orders_is_the_largest():
    assert footrule(ranks(range(6)), ranks(range(5, -1, -1))) == 18


@given(permutations())
def test_order_and_rank_are_inverse(order):
    rank = invert(order)
    assert (rank[order] == np.arange(len(order))).all()
    assert (order[rank] == np.arange(len(order))).all()
    assert (invert(rank) == order).all()


@given(
    arrays(
        np.float32, st.integers(1, 60), elements=st.sampled_from([-1.5, -0.0, 0.0, 0.25, 0.5, 3.0])
    )
)
def test_equal_scores_stand_by_edge_number(scores):
    assert order_of(scores).tolist() == np.argsort(scores, kind="stable").tolist()


@given(ballots())
def test_vote_is_the_stable_order_of_summed_ranks(given_ranks):
    sums = np.sum([rank.astype(np.int64) for rank in given_ranks], axis=0)
    assert invert(elected(given_ranks)).tolist() == np.argsort(sums, kind="stable").tolist()


@given(ballots())
def test_vote_ignores_the_order_of_voters(given_ranks):
    assert (elected(given_ranks) == elected(reversed(given_ranks))).all()


@given(permutations())
def test_voters_of_one_mind_elect_what_they_want(rank):
    assert (elected([rank, rank, rank]) == rank).all()


@given(permutations(), st.floats(0.01, 1.0))
def test_a_mask_keeps_the_highest_ranks(rank, keep):
    mask = mask_of(rank, keep)
    assert mask.sum() == len(rank) - dropped(len(rank), keep)
    if mask.any() and not mask.all():
        assert rank[mask].min() > rank[~mask].max()


@given(st.integers(1, 40).flatmap(lambda d: st.tuples(*[st.permutations(range(d))] * 3)))
def test_footrule_is_a_distance(orders):
    a, b, c = (np.array(order, dtype=np.int32) for order in orders)
    assert footrule(a, a) == 0
    assert footrule(a, b) == footrule(b, a) <= len(a) ** 2 // 2
    assert footrule(a, c) <= footrule(a, b) + footrule(b, c)


def test_an_incumbent_counts_as_many_ballots_as_it_weighs():
    incumbent, ballot = ranks([0, 1, 2, 3]), ranks([3, 2, 1, 0])  # ranks 0 1 2 3 and 3 2 1 0
    assert elected([ballot], incumbent, 0).tolist() == ballot.tolist()
    assert elected([ballot], incumbent, 2).tolist() == incumbent.tolist()  # sums 3 4 5 6
    assert elected([ballot], incumbent, 0.5).tolist() == ballot.tolist()  # twice the sums: 6 5 4 3
    assert elected([ballot], incumbent, 1).tolist() == [
        0,
        1,
        2,
        3,
    ]  # all sums are 3: ties go to the lower edge


@given(ballots(), st.integers(1, 5))
def test_an_incumbent_of_weight_m_is_m_more_ballots(given_ranks, weight):
    incumbent, *rest = given_ranks
    assert (
        elected(rest or given_ranks, incumbent, weight)
        == elected([*(rest or given_ranks), *[incumbent] * weight])
    ).all()


@given(ballots(), st.fractions(min_value=0, max_value=20, max_denominator=50))
def test_fractions_of_a_ballot_are_counted_exactly(given_ranks, weight):
    incumbent, *rest = given_ranks
    cast = rest or given_ranks
    sums = [
        weight * int(incumbent[e]) + sum(int(rank[e]) for rank in cast)
        for e in range(len(incumbent))
    ]
    expected = sorted(range(len(sums)), key=lambda edge: (sums[edge], edge))
    assert invert(elected(cast, incumbent, float(weight))).tolist() == expected


def test_sums_far_beyond_32_bits_are_sorted_exactly():
    edges = 70_000
    rank = np.random.default_rng(0).permutation(edges).astype(np.int32)
    other = np.random.default_rng(1).permutation(edges).astype(np.int32)
    found = elected([rank], other, 999.999)
    sums = 999_999 * other.astype(np.int64) + 1000 * rank.astype(np.int64)
    assert invert(found).tolist() == np.argsort(sums, kind="stable").tolist()
