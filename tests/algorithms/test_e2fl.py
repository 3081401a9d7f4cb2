"""E2FL's server: the golden round, absent groups, and ballots that are not admitted."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from e2fl.algorithms.e2fl import E2FL, E2FLState
from e2fl.data.federated import Population
from e2fl.errors import ConfigError, WireError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import LowestLoss
from e2fl.models import Model
from e2fl.rankings.messages import ExactBallots
from e2fl.rankings.order import invert, mask_layers
from e2fl.rankings.votes import elect
from e2fl.testing.contract import same

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


def order(ranks):
    return invert(ranks["0.weight"]).tolist()


def orders(rankings):
    return {group: order(ranks) for group, ranks in rankings.items()}


def ballots(orders, groups=NO_GROUP):
    return {client: ExactBallots((groups,), (ranking(o),)) for client, o in orders.items()}


def ballot(groups, *voters):
    return ExactBallots(groups, tuple(ranking(ORDERS[voter]) for voter in voters))


EVERYBODY = ballots(dict(enumerate(ORDERS)))


def after(algorithm, *rounds, population=POPULATION):
    """The state after these rounds of replies."""
    state = algorithm.start(MODEL, population, 0)
    for replies in rounds:
        state = algorithm.aggregate(state, replies)
    return state


def test_the_golden_round_votes_in_groups_and_then_across_them():
    start = E2FL().start(MODEL, POPULATION, 0)
    initial = start.global_ranking["0.weight"].copy()
    state = E2FL().aggregate(start, EVERYBODY)
    assert orders(state.groups) == {
        A: [0, 2, 4, 5, 3, 1],
        B: [0, 2, 3, 1, 4, 5],
        C: [5, 2, 0, 4, 3, 1],
    }
    assert order(state.global_ranking) == [0, 2, 5, 4, 3, 1]
    # The state before is as it was.
    assert isinstance(start, E2FLState)
    assert start.groups == {}
    assert (start.global_ranking["0.weight"] == initial).all()


@pytest.mark.parametrize(
    ("absent", "overall"),
    [("carry_forward", [2, 0, 3, 4, 5, 1]), ("present_only", [2, 0, 4, 3, 5, 1])],
)
def test_a_group_without_votes_follows_the_setting_absent(absent, overall):
    later = after(E2FL(absent=absent), EVERYBODY, ballots({0: [2, 0, 4, 3, 5, 1]}))
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


def test_clients_that_infer_their_group_see_the_start_of_one_that_never_voted():
    algorithm = E2FL(grouping=LowestLoss(groups=3))
    start = after(algorithm, population=Population(dict.fromkeys(range(6))))
    masks = algorithm.broadcast(start, [0])[0].masks
    assert len({mask["0.weight"].tobytes() for mask in masks}) == 3


def test_a_group_never_seen_is_served_the_global_ranking():
    served = E2FL().serve(after(E2FL(), ballots({0: ORDERS[0]})), [0, 5])
    assert served[5].groups == (C,)
    assert same(served[5].masks[0], served[5].global_mask)


def test_a_client_with_several_groups_casts_a_ballot_for_each():
    inside = Population({0: None, 1: None}, 2)
    reply = ballot((0, 1), 0, 3)
    E2FL().check(after(E2FL(), population=inside), 0, reply)
    assert orders(after(E2FL(), {0: reply}, population=inside).groups) == {
        0: ORDERS[0],
        1: ORDERS[3],
    }
    # The incumbent of each group votes in its own.
    twice = after(E2FL(incumbents=1), {0: reply}, {1: ballot((0, 1), 1, 4)}, population=inside)
    for group, voters in ((0, (0, 1)), (1, (3, 4))):
        expected = elect([ranking(ORDERS[voter]) for voter in voters])
        assert order(twice.groups[group]) == order(expected)


@pytest.mark.parametrize(
    ("client", "reply", "words"),
    [
        (0, ballot((B,), 0), "its client is in group 0"),
        (0, ballot((7,), 0), "groups are 0 to 2"),
        (0, ballot((-5,), 0), "groups are 0 to 2"),
        (0, ballot((A, A), 0, 1), "twice"),
        (0, ballot(()), "0 rankings for 0 groups"),
        (0, ballot((A,)), "0 rankings for 1 groups"),
        (9, ballot((NO_GROUP,), 0), "votes in group -1"),
        (0, ballot((NO_GROUP, A), 0, 1), "its client is in one"),
        (9, ballot((NO_GROUP, A), 0, 1), "its client is in one"),
    ],
)
def test_ballots_a_client_may_not_cast_are_refused(client, reply, words):
    with pytest.raises(WireError, match=words):
        E2FL().check(after(E2FL()), client, reply)


def test_clients_vote_in_one_group_and_say_in_which_if_the_server_does_not_know():
    undeclared = after(E2FL(), population=Population({0: 0, 1: 1, 2: None}, 2))
    E2FL().check(undeclared, 2, ballot((1,), 0))
    with pytest.raises(WireError, match="votes in 2 groups"):
        E2FL().check(undeclared, 2, ballot((0, 1), 0, 3))
    inferring = E2FL(grouping=LowestLoss(groups=2))
    start = after(inferring)
    state = replace(start, membership=replace(start.membership, assignments={0: 1}))
    for reply in (ballot((NO_GROUP,), 0), ballot((0, 1), 0, 0)):
        with pytest.raises(WireError, match="votes in"):
            inferring.check(state, 0, reply)


def test_data_without_groups_says_what_to_choose():
    with pytest.raises(ConfigError, match="lowest_loss"):
        after(E2FL(), population=Population({0: None}, 0))


@pytest.mark.parametrize("weight", [0, 1, 2, 0.5])
def test_the_previous_ranking_of_a_group_votes_with_the_weight_of_incumbents(weight):
    first, second = ballots({0: ORDERS[0]}), ballots({0: ORDERS[2]})
    algorithm = E2FL(incumbents=weight)
    assert order(after(algorithm, first).groups[A]) == ORDERS[0]  # no incumbent yet
    expected = order(elect([ranking(ORDERS[2])], ranking(ORDERS[0]), weight))
    assert order(after(algorithm, first, second).groups[A]) == expected
    assert (expected == ORDERS[2]) == (weight == 0)  # even half a ballot moves the result here


def test_the_incumbent_of_a_group_is_its_own_ranking_not_the_global_one():
    algorithm = E2FL(incumbents=2)
    before = after(algorithm, EVERYBODY)
    later = algorithm.aggregate(before, ballots({5: ORDERS[2]}))
    own, overall = (
        order(elect([ranking(ORDERS[2]), *[incumbent] * 2]))
        for incumbent in (ranking(ORDERS[5]), before.global_ranking)
    )
    assert order(later.groups[C]) == own != overall
    # A group without ballots keeps its ranking.
    assert order(later.groups[A]) == order(before.groups[A])


def test_smoothing_serves_averages_over_rounds():
    algorithm = E2FL(smoothing=2)
    rounds = ballots({0: ORDERS[0], 5: ORDERS[5]}), ballots({0: ORDERS[4]})
    first, second = after(algorithm, rounds[0]), after(algorithm, *rounds)
    assert order(first.smooth_groups[A]) == ORDERS[0]
    group = elect([ranking(ORDERS[4])], ranking(ORDERS[0]), 2)
    overall = elect([second.global_ranking], first.global_ranking, 2)
    assert order(second.smooth_groups[A]) == order(group) != order(second.groups[A])
    assert order(second.smooth_groups[C]) == ORDERS[5]  # it elected nothing in the second round
    assert order(second.smooth_global) == order(overall) != order(second.global_ranking)
    served, models = algorithm.serve(second, [0])[0], algorithm.describe(second).models()
    for mask, model, smooth, latest in (
        (served.masks[0], models[f"group{A}"], group, second.groups[A]),
        (served.global_mask, models["global"], overall, second.global_ranking),
    ):
        assert same(mask, mask_layers(smooth, second.keep))
        assert same(mask, model)
        assert not same(mask, mask_layers(latest, second.keep))


def test_clients_that_find_their_group_are_sent_the_masks_just_elected():
    algorithm = E2FL(grouping=LowestLoss(groups=2), smoothing=5)
    state = after(algorithm, *(ballots({0: ORDERS[voter]}, groups=0) for voter in (0, 2)))
    latest = mask_layers(state.groups[0], state.keep)
    assert same(algorithm.broadcast(state, [1])[1].masks[0], latest)
    assert not same(algorithm.serve(state, [1])[1].masks[0], latest)
