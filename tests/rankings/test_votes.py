"""Votes: the worked example, the laws of Borda, weights, and another rule in its place."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import e2fl
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError
from e2fl.rankings.order import invert
from e2fl.rankings.votes import VOTES, Borda, Vote, elect

TOY = {
    "data": {"name": "e2fl.testing.toy:Toy"},
    "model": {"name": "mlp", "hidden": [8]},
    "rounds": 2,
}
CLIENTS = {  # orders of six edges, by the clients of groups A, B and C
    "A": ([4, 0, 2, 3, 5, 1], [5, 4, 0, 2, 3, 1], [2, 0, 1, 5, 3, 4]),
    "B": ([2, 0, 1, 3, 4, 5], [0, 3, 2, 4, 1, 5]),
    "C": ([5, 2, 0, 4, 3, 1],),
}


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


def test_votes_inside_groups_and_across_them_worked_by_hand():
    inside = {group: order_elected(orders) for group, orders in CLIENTS.items()}
    assert inside == {"A": [0, 2, 4, 5, 3, 1], "B": [0, 2, 3, 1, 4, 5], "C": [5, 2, 0, 4, 3, 1]}
    assert order_elected(inside.values()) == [0, 2, 5, 4, 3, 1]
    # One flat vote repeats the majority group.
    flat = [order for orders in CLIENTS.values() for order in orders]
    assert order_elected(flat) == [0, 2, 4, 5, 3, 1]
    # Ties go to the lower edge.
    assert order_elected([[0, 1, 2, 3], [3, 2, 1, 0]]) == [0, 1, 2, 3]
    assert order_elected([[2, 0, 1], [0, 2, 1]]) == [0, 2, 1]


@given(ballots())
def test_vote_is_the_stable_order_of_summed_ranks_whoever_votes_first(cast):
    sums = np.sum([rank.astype(np.int64) for rank in cast], axis=0)
    assert invert(elected(cast)).tolist() == np.argsort(sums, kind="stable").tolist()
    assert (elected(cast) == elected(reversed(cast))).all()
    assert (elected([cast[0]] * 3) == cast[0]).all()


def test_an_incumbent_counts_as_many_ballots_as_it_weighs():
    incumbent, ballot = ranks([0, 1, 2, 3]), ranks([3, 2, 1, 0])
    for weight, winner in ((0, ballot), (0.5, ballot), (2, incumbent)):
        assert elected([ballot], incumbent, weight).tolist() == winner.tolist()
    # All sums are equal: ties go to the lower edge.
    assert elected([ballot], incumbent, 1).tolist() == [0, 1, 2, 3]


@given(ballots(), st.fractions(min_value=0, max_value=20, max_denominator=50))
def test_fractions_of_a_ballot_are_counted_exactly(cast, weight):
    incumbent, *rest = cast
    sums = [
        weight * int(incumbent[edge]) + sum(int(rank[edge]) for rank in rest)
        for edge in range(len(incumbent))
    ]
    expected = sorted(range(len(sums)), key=lambda edge: (sums[edge], edge))
    assert invert(elected(rest, incumbent, float(weight))).tolist() == expected


def test_sums_far_beyond_32_bits_are_sorted_exactly():
    rank, other = (
        np.random.default_rng(seed).permutation(70_000).astype(np.int32) for seed in (0, 1)
    )
    sums = 999_999 * other.astype(np.int64) + 1000 * rank.astype(np.int64)
    winner = elected([rank], other, 999.999)
    assert invert(winner).tolist() == np.argsort(sums, kind="stable").tolist()


def test_another_rule_takes_the_place_of_borda():
    cast = [{"fc": np.array(rank, np.int32)} for rank in ([0, 1, 2], [2, 1, 0], [2, 1, 0])]
    assert elect(cast)["fc"].tolist() == [2, 1, 0]
    assert elect(cast, rule=Dictator())["fc"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="at least one ballot"):
        elect([], rule=Borda())
    results = [
        e2fl.run(from_dict(TOY | {"algorithm": {"name": "e2fl", "vote": vote}}), progress=False)
        for vote in ("borda", {"name": f"{__name__}:Dictator"})
    ]
    first, second = (run.state.global_ranking for run in results)
    assert any(not np.array_equal(first[layer], second[layer]) for layer in first)


@pytest.mark.parametrize("name", ["e2fl", "frl", "e2fl_steady"])
@pytest.mark.parametrize("setting", ["borda", {"name": "borda"}])
def test_the_setting_names_a_rule(name, setting):
    experiment = from_dict(TOY | {"algorithm": {"name": name, "vote": setting}})
    assert experiment.build_algorithm().vote == VOTES["borda"]()


def test_an_unknown_rule_is_named():
    experiment = from_dict(TOY | {"algorithm": {"name": "e2fl", "vote": "borada"}})
    with pytest.raises(ConfigError, match="borda"):
        experiment.build_algorithm()
