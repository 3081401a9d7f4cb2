"""E2FL's server: the golden round, absent groups, and ballots that are not admitted."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from e2fl.algorithms.e2fl import E2FL, Rankings
from e2fl.algorithms.frl import FRL
from e2fl.data.federated import Population
from e2fl.errors import ConfigError, WireError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import LowestLoss, OneGroup
from e2fl.models import Model
from e2fl.rankings.messages import Ballots
from e2fl.rankings.order import invert, mask_layers
from e2fl.rankings.votes import elect

A, B, C = 0, 1, 2
ORDERS = [  # of the six clients of the golden example
    [4, 0, 2, 3, 5, 1],
    [5, 4, 0, 2, 3, 1],
    [2, 0, 1, 5, 3, 4],
    [2, 0, 1, 3, 4, 5],
    [0, 3, 2, 4, 1, 5],
    [5, 2, 0, 4, 3, 1],
]
MEMBERS = {0: A, 1: A, 2: A, 3: B, 4: B, 5: C}
POPULATION = Population(MEMBERS, 3)
MODEL = Model(nn.Sequential(nn.Linear(3, 2, bias=False)))


def ranking(order):
    return {"0.weight": invert(np.array(order, dtype=np.int32))}


def order(found):
    return invert(found["0.weight"]).tolist()


def equal_masks(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[layer], other[layer]) for layer in one
    )


def ballots(orders, groups=NO_GROUP):
    return {client: Ballots((groups,), (ranking(o),)) for client, o in orders.items()}


def test_the_golden_round_votes_in_groups_and_then_across_them():
    algorithm = E2FL()
    state = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots(dict(enumerate(ORDERS)))
    )
    assert {group: order(found) for group, found in state.groups.items()} == {
        A: [0, 2, 4, 5, 3, 1],
        B: [0, 2, 3, 1, 4, 5],
        C: [5, 2, 0, 4, 3, 1],
    }
    assert order(state.global_ranking) == [0, 2, 5, 4, 3, 1]


def test_frl_is_one_flat_vote():
    algorithm = FRL()
    assert isinstance(algorithm.grouping, OneGroup)
    state = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots(dict(enumerate(ORDERS)))
    )
    assert order(state.global_ranking) == [0, 2, 4, 5, 3, 1]


@pytest.mark.parametrize(
    ("absent", "overall"),
    [("carry_forward", [2, 0, 3, 4, 5, 1]), ("present_only", [2, 0, 4, 3, 5, 1])],
)
def test_a_group_nobody_voted_in_is_treated_as_asked(absent, overall):
    algorithm = E2FL(absent=absent)
    state = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots(dict(enumerate(ORDERS)))
    )
    later = algorithm.aggregate(state, ballots({0: [2, 0, 4, 3, 5, 1]}))
    assert order(later.global_ranking) == overall
    assert order(later.groups[C]) == [5, 2, 0, 4, 3, 1]


def test_a_group_without_members_stops_voting_where_members_vote():
    groups = LowestLoss(groups=3)
    population = Population(dict.fromkeys(range(6)))
    rankings = {}
    for absent in ("carry_forward", "members", "present_only"):
        algorithm = E2FL(grouping=groups, absent=absent)
        state = algorithm.start(MODEL, population, 0)
        state = algorithm.aggregate(state, ballots({0: ORDERS[0]}, A) | ballots({3: ORDERS[3]}, B))
        # The only client of group A moves to C, and group B is not asked.
        state = algorithm.aggregate(state, ballots({0: ORDERS[5]}, C))
        rankings[absent] = order(state.global_ranking)
    cast = {group: ranking(ORDERS[number]) for group, number in ((A, 0), (B, 3), (C, 5))}
    assert rankings["carry_forward"] == order(elect([cast[A], cast[B], cast[C]]))
    assert rankings["members"] == order(elect([cast[B], cast[C]]))
    assert rankings["present_only"] == order(elect([cast[C]]))


def test_an_unseen_group_does_not_vote_unless_it_starts_with_a_vote():
    ballot = ballots({0: ORDERS[0]})
    for absent, voters in (("carry_forward", 1), ("present_only", 1), ("init_vote", 3)):
        algorithm = E2FL(absent=absent)
        start = algorithm.start(MODEL, POPULATION, 0)
        after = algorithm.aggregate(start, ballot)
        assert list(after.groups) == [A]
        votes = [after.groups[A], *[start.global_ranking] * (voters - 1)]
        assert order(after.global_ranking) == order(elect(votes))
    # With init_vote the two absent groups outvote the one ballot: both vote for the initial ranking.
    outvoted = E2FL(absent="init_vote")
    start = outvoted.start(MODEL, POPULATION, 0)
    assert order(outvoted.aggregate(start, ballot).global_ranking) != ORDERS[0]


def test_clients_that_look_for_their_group_see_the_start_of_one_that_only_has_its_first_vote():
    algorithm = E2FL(grouping=LowestLoss(groups=3), absent="init_vote")
    start = algorithm.start(MODEL, Population(dict.fromkeys(range(6))), 0)
    masks = algorithm.broadcast(start, [0])[0].masks
    assert len({mask["0.weight"].tobytes() for mask in masks}) == 3


def test_who_declares_no_group_has_one_ballot_where_others_declare_theirs():
    algorithm = E2FL()
    start = algorithm.start(MODEL, Population({0: 0, 1: 1, 2: None}, 2), 0)
    algorithm.check(start, 2, Ballots((1,), (ranking(ORDERS[0]),)))
    with pytest.raises(WireError, match="votes in 2 groups"):
        algorithm.check(start, 2, Ballots((0, 1), (ranking(ORDERS[0]), ranking(ORDERS[3]))))


def test_a_group_never_seen_is_served_the_global_ranking():
    algorithm = E2FL()
    state = algorithm.aggregate(algorithm.start(MODEL, POPULATION, 0), ballots({0: ORDERS[0]}))
    served = algorithm.serve(state, [0, 5])
    assert served[5].groups == (C,)
    assert (served[5].masks[0]["0.weight"] == served[5].global_mask["0.weight"]).all()


def test_a_client_with_several_groups_casts_a_ballot_for_each():
    algorithm = E2FL()
    start = algorithm.start(MODEL, Population({0: None, 1: None}, 2), 0)
    reply = Ballots((0, 1), (ranking(ORDERS[0]), ranking(ORDERS[3])))
    algorithm.check(start, 0, reply)
    state = algorithm.aggregate(start, {0: reply})
    assert {group: order(found) for group, found in state.groups.items()} == {
        0: ORDERS[0],
        1: ORDERS[3],
    }


@pytest.mark.parametrize(
    ("client", "reply", "words"),
    [
        (0, Ballots((B,), (ranking(ORDERS[0]),)), "its client is in group 0"),
        (0, Ballots((7,), (ranking(ORDERS[0]),)), "groups are 0 to 2"),
        (0, Ballots((-5,), (ranking(ORDERS[0]),)), "groups are 0 to 2"),
        (0, Ballots((A, A), (ranking(ORDERS[0]), ranking(ORDERS[1]))), "twice"),
        (0, Ballots((), ()), "0 rankings for 0 groups"),
        (0, Ballots((A,), ()), "0 rankings for 1 groups"),
        (9, Ballots((NO_GROUP,), (ranking(ORDERS[0]),)), "votes in group -1"),
        (
            0,
            Ballots((NO_GROUP, A), (ranking(ORDERS[0]), ranking(ORDERS[1]))),
            "its client is in one",
        ),
        (
            9,
            Ballots((NO_GROUP, A), (ranking(ORDERS[0]), ranking(ORDERS[1]))),
            "its client is in one",
        ),
    ],
)
def test_ballots_a_client_may_not_cast_are_refused(client, reply, words):
    algorithm = E2FL()
    with pytest.raises(WireError, match=words):
        algorithm.check(algorithm.start(MODEL, POPULATION, 0), client, reply)


@pytest.mark.parametrize("groups", [(NO_GROUP,), (0, 1)])
def test_who_finds_its_own_group_votes_in_one_and_says_in_which(groups):
    algorithm = E2FL(grouping=LowestLoss(groups=2))
    start = algorithm.start(MODEL, POPULATION, 0)
    state = replace(start, membership=replace(start.membership, assignments={0: 1}))
    with pytest.raises(WireError, match="votes in"):
        algorithm.check(state, 0, Ballots(groups, tuple(ranking(ORDERS[0]) for _ in groups)))


def test_state_holds_no_secret_link_to_the_one_before():
    algorithm = E2FL()
    start = algorithm.start(MODEL, POPULATION, 0)
    overall = start.global_ranking["0.weight"].copy()
    algorithm.aggregate(start, ballots(dict(enumerate(ORDERS))))
    assert start.groups == {}
    assert (start.global_ranking["0.weight"] == overall).all()
    assert isinstance(start, Rankings)


@pytest.mark.parametrize(
    "wrong", [{"absent": "sometimes"}, {"inside": "none"}, {"clients_per_round": 0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"algorithm\."):
        E2FL(**wrong)


def test_data_without_groups_says_what_to_choose():
    with pytest.raises(ConfigError, match="lowest_loss"):
        E2FL().start(MODEL, Population({0: None}, 0), 0)


def test_the_previous_ranking_of_a_group_votes_with_the_weight_of_incumbents():
    first, second = ballots({0: ORDERS[0]}), ballots({0: ORDERS[2]})
    for weight in (0, 1, 2, 0.5):
        algorithm = E2FL(incumbents=weight)
        before = algorithm.aggregate(algorithm.start(MODEL, POPULATION, 0), first)
        assert order(before.groups[A]) == ORDERS[0]  # in its first vote a group has no incumbent
        after = algorithm.aggregate(before, second)
        expected = elect([ranking(ORDERS[2])], ranking(ORDERS[0]), weight)
        assert order(after.groups[A]) == order(expected)
    assert order(expected) != ORDERS[2]  # even half a ballot moves the result here


def test_the_incumbent_of_a_group_is_its_own_ranking_not_the_global_one():
    algorithm = E2FL(incumbents=2)
    before = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots(dict(enumerate(ORDERS)))
    )
    assert order(before.global_ranking) != order(before.groups[C])
    after = algorithm.aggregate(before, ballots({5: ORDERS[2]}))
    assert order(after.groups[C]) == order(elect([ranking(ORDERS[2]), *[ranking(ORDERS[5])] * 2]))
    assert order(after.groups[C]) != order(
        elect([ranking(ORDERS[2]), *[before.global_ranking] * 2])
    )


def test_incumbents_of_groups_inside_a_client_vote_each_in_its_own_group():
    algorithm = E2FL(incumbents=1)
    start = algorithm.start(MODEL, Population({0: None, 1: None}, 2), 0)
    before = algorithm.aggregate(
        start, {0: Ballots((0, 1), (ranking(ORDERS[0]), ranking(ORDERS[3])))}
    )
    after = algorithm.aggregate(
        before, {1: Ballots((0, 1), (ranking(ORDERS[1]), ranking(ORDERS[4])))}
    )
    expected = {
        0: elect([ranking(ORDERS[0]), ranking(ORDERS[1])]),
        1: elect([ranking(ORDERS[3]), ranking(ORDERS[4])]),
    }
    assert {group: order(found) for group, found in after.groups.items()} == {
        q: order(r) for q, r in expected.items()
    }


@pytest.mark.parametrize("absent", ["carry_forward", "present_only", "init_vote"])
def test_incumbents_vote_alike_however_absent_groups_are_treated(absent):
    """A group that comes back finds the ranking it left, also where it had no vote in between."""
    algorithm = E2FL(incumbents=1, absent=absent)
    state = algorithm.aggregate(algorithm.start(MODEL, POPULATION, 0), ballots({5: ORDERS[5]}))
    state = algorithm.aggregate(state, ballots({0: ORDERS[0]}))
    state = algorithm.aggregate(state, ballots({5: ORDERS[2]}))
    assert order(state.groups[C]) == order(elect([ranking(ORDERS[5]), ranking(ORDERS[2])]))


def test_a_group_without_ballots_keeps_its_ranking_whatever_incumbents_weigh():
    algorithm = E2FL(incumbents=2)
    state = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots(dict(enumerate(ORDERS)))
    )
    later = algorithm.aggregate(state, ballots({0: ORDERS[0]}))
    assert order(later.groups[C]) == order(state.groups[C])


@pytest.mark.parametrize("wrong", [-1, 0.0004, 1001, float("nan"), float("inf")])
def test_impossible_incumbents_are_refused(wrong):
    with pytest.raises(ConfigError, match="incumbents"):
        E2FL(incumbents=wrong)


def test_smoothing_serves_averages_over_rounds():
    algorithm = E2FL(smoothing=2)
    first = algorithm.aggregate(
        algorithm.start(MODEL, POPULATION, 0), ballots({0: ORDERS[0], 5: ORDERS[5]})
    )
    assert order(first.smooth_groups[A]) == ORDERS[0]
    second = algorithm.aggregate(first, ballots({0: ORDERS[4]}))
    expected = elect([ranking(ORDERS[4])], ranking(ORDERS[0]), 2)
    assert order(second.smooth_groups[A]) == order(expected) != order(second.groups[A])
    assert order(second.smooth_groups[C]) == ORDERS[5]  # it elected nothing in the second round
    expected_global = elect([second.global_ranking], first.global_ranking, 2)
    assert order(second.smooth_global) == order(expected_global) != order(second.global_ranking)
    served = algorithm.serve(second, [0])[0]
    assert equal_masks(served.masks[0], mask_layers(expected, second.keep))
    assert equal_masks(served.global_mask, mask_layers(expected_global, second.keep))
    assert not equal_masks(served.masks[0], mask_layers(second.groups[A], second.keep))
    assert not equal_masks(served.global_mask, mask_layers(second.global_ranking, second.keep))
    models = algorithm.describe(second).models()
    assert equal_masks(models[f"group{A}"], served.masks[0])
    assert equal_masks(models["global"], served.global_mask)


def test_smoothing_changes_what_is_served_and_not_how_clients_train():
    plain, smooth = E2FL(), E2FL(smoothing=5)
    states = {algorithm: algorithm.start(MODEL, POPULATION, 0) for algorithm in (plain, smooth)}
    for voters in (ORDERS, ORDERS[::-1], ORDERS[1:]):
        for algorithm, state in states.items():
            states[algorithm] = algorithm.aggregate(state, ballots(dict(enumerate(voters))))
    one, other = states.values()
    assert order(one.global_ranking) == order(other.global_ranking)
    assert {q: order(found) for q, found in one.groups.items()} == {
        q: order(r) for q, r in other.groups.items()
    }
    assert not one.smooth_groups
    assert not one.smooth_global
    sent = [
        algorithm.broadcast(state, [0])[0].to_bytes(MODEL.spec)
        for algorithm, state in states.items()
    ]
    assert sent[0] == sent[1]


def test_clients_that_find_their_group_are_sent_the_masks_just_elected():
    algorithm = E2FL(grouping=LowestLoss(groups=2), smoothing=5)
    state = algorithm.start(MODEL, POPULATION, 0)
    for voted in (ORDERS[0], ORDERS[2]):
        state = algorithm.aggregate(state, ballots({0: voted}, groups=0))
    assert equal_masks(
        algorithm.broadcast(state, [1])[1].masks[0], mask_layers(state.groups[0], state.keep)
    )
    assert not equal_masks(
        algorithm.serve(state, [1])[1].masks[0], mask_layers(state.groups[0], state.keep)
    )


@pytest.mark.parametrize("wrong", [-1, 0.0004, 1001, float("nan"), float("inf")])
def test_impossible_smoothing_is_refused(wrong):
    with pytest.raises(ConfigError, match="smoothing"):
        E2FL(smoothing=wrong)
