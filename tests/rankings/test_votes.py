"""Votes: what every rule promises, the worked example, the laws of Borda, and another rule."""

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.attacks import BoundarySwap, Collusion
from e2fl.rankings.messages import ExactBallots
from e2fl.rankings.order import invert, mask_of
from e2fl.rankings.votes import (
    VOTES,
    Borda,
    BordaCount,
    TrimmedBorda,
    Vote,
    elect,
    influence,
    most_exchanged,
)
from e2fl.runs.runner import run_experiment
from tests.algorithms.test_e2fl import ORDERS


@dataclass(frozen=True)
class Dictator(Vote):
    """The first ballot decides; for tests."""

    def elect(self, ballots):
        return ballots[0][0]


def ranks(order):
    return invert(np.array(order, dtype=np.int32))


def elected(ballots, incumbent=None, weight=0):
    """The vote that the server takes, of one layer."""
    before = None if incumbent is None else {"fc": incumbent}
    return elect(({"fc": rank} for rank in ballots), before, weight)["fc"]


def order_elected(orders):
    return invert(elected(ranks(order) for order in orders)).tolist()


def ballots(most=30):
    def votes(edges):
        ranks = st.permutations(range(edges)).map(lambda order: np.array(order, dtype=np.int32))
        return st.lists(ranks, min_size=2, max_size=7)

    return st.integers(1, most).flatmap(votes)


@pytest.mark.parametrize("name", VOTES)
@given(cast=ballots(), weight=st.integers(1, 9))
def test_every_rule_elects_the_same_permutation_whoever_votes_first(name, cast, weight):
    rule = VOTES[name]()
    weighted = [(cast[0], weight), *((rank, 1) for rank in cast[1:])]
    winner = rule.elect(weighted)
    assert winner.dtype == np.int32
    assert sorted(winner) == list(range(len(cast[0])))
    assert (rule.elect(weighted[::-1]) == winner).all()
    assert (rule.elect([(cast[0], 2), (cast[0], 7)]) == cast[0]).all()


def test_sums_far_beyond_32_bits_are_sorted_exactly():
    rank, other = (
        np.random.default_rng(seed).permutation(70_000).astype(np.int32) for seed in (0, 1)
    )
    sums = 999_999 * other.astype(np.int64) + 1000 * rank.astype(np.int64)
    winner = elected([rank], other, 999.999)
    assert invert(winner).tolist() == np.argsort(sums, kind="stable").tolist()


def test_one_flat_vote_repeats_the_majority_group_and_ties_go_to_the_lower_edge():
    """The golden round of tests/algorithms/test_e2fl.py votes in groups and across them."""
    assert order_elected(ORDERS) == order_elected(ORDERS[:3]) == [0, 2, 4, 5, 3, 1]
    assert order_elected([[0, 1, 2, 3], [3, 2, 1, 0]]) == [0, 1, 2, 3]
    assert order_elected([[2, 0, 1], [0, 2, 1]]) == [0, 2, 1]


@given(ballots(), st.fractions(min_value=0, max_value=20, max_denominator=50))
def test_fractions_of_a_ballot_are_counted_exactly(cast, weight):
    incumbent, *rest = cast
    sums = [
        weight * int(incumbent[edge]) + sum(int(rank[edge]) for rank in rest)
        for edge in range(len(incumbent))
    ]
    expected = sorted(range(len(sums)), key=lambda edge: (sums[edge], edge))
    assert invert(elected(rest, incumbent, float(weight))).tolist() == expected


def test_another_rule_takes_the_place_of_borda(toy):
    cast = [{"fc": np.array(rank, np.int32)} for rank in ([0, 1, 2], [2, 1, 0], [2, 1, 0])]
    assert elect(cast)["fc"].tolist() == [2, 1, 0]
    assert elect(cast, rule=Dictator())["fc"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="at least one ballot"):
        elect([], rule=Borda())
    first, second = (
        run_experiment(replace(toy, rounds=2, algorithm=toy.algorithm | {"vote": vote}))
        for vote in ("borda", {"name": f"{__name__}:Dictator"})
    )
    first, second = first.state.global_ranking, second.state.global_ranking
    assert any(not np.array_equal(first[layer], second[layer]) for layer in first)


@given(ballots(), st.sampled_from([0.1, 0.2, 0.34]), st.integers(1, 3))
def test_trimmed_borda_drops_the_ends_of_every_edge(cast, trim, weight):
    rule = TrimmedBorda(trim=trim, least=3)
    weighted = [(rank, weight if position == 0 else 1) for position, rank in enumerate(cast)]
    equal = [rank for rank, times in weighted for _ in range(times)]
    cut = int(trim * len(equal) + 1e-9) if len(cast) >= 3 else 0
    sums = np.sort(np.stack(equal), axis=0)[cut : len(equal) - cut].astype(np.int64).sum(axis=0)
    assert invert(rule.elect(weighted)).tolist() == np.argsort(sums, kind="stable").tolist()
    assert (rule.elect(weighted[::-1]) == rule.elect(weighted)).all()


def test_trimmed_borda_halves_what_one_captured_group_changes():
    rng = np.random.default_rng(0)
    edges, keep = 4000, 0.5
    common = rng.permutation(edges)
    cast = [ranks(np.argsort(common + rng.normal(0, 100, edges))) for _ in range(10)]
    forged = swapped(cast[0], 0.1, keep)
    trimmed, plain = (
        exchanged(cast, forged, keep, rule=rule) for rule in (TrimmedBorda(trim=0.2), Borda())
    )
    assert 0 < 2 * trimmed < plain


def swapped(ballot, share, keep):
    """The ballot after a boundary swap."""
    known = Collusion({0: ExactBallots((0,), ({"fc": ballot},))}, {}, None, share, keep)
    return BoundarySwap().forge(known)[0].rankings[0]["fc"]


def exchanged(cast, first, keep, weight=1, rule=None):
    """The kept edges that are lost if the first ballot is another one."""
    before, after = (
        mask_of((rule or Borda()).elect([(own, weight), *((rank, 1) for rank in cast[1:])]), keep)
        for own in (cast[0], first)
    )
    return int((before & ~after).sum())


def bound(cast, keep, weight=1):
    count = BordaCount(len(cast[0]))
    for position, rank in enumerate(cast):
        count.add(rank, weight if position == 0 else 1)
    return most_exchanged(count.sums, mask_of(count.elect(), keep), cast[0], weight)


@given(ballots(most=6), st.sampled_from([0.2, 0.5, 0.7]), st.integers(1, 3))
def test_the_influence_of_a_ballot_is_exact(cast, keep, weight):
    every = permutations(range(len(cast[0])))
    most = max(exchanged(cast, np.array(own, np.int32), keep, weight) for own in every)
    assert bound(cast, keep, weight) == most


def test_the_influence_in_a_vote_is_that_of_its_strongest_voter():
    rng = np.random.default_rng(3)
    cast = [{"a": rng.permutation(8).astype(np.int32), "b": rng.permutation(40).astype(np.int32)}]
    alone = influence(cast, cast[0], 0.5)
    assert alone == {"ballots": 1, "mask": 100.0, "layers": {"a": 100.0, "b": 100.0}}
    # An incumbent of ten ballots leaves little to the only voter.
    held = influence(cast, cast[0], 0.5, cast[0], (10, 1))
    assert 0 < held["mask"] < 50
    assert held["mask"] == (4 * held["layers"]["a"] + 20 * held["layers"]["b"]) / 24
