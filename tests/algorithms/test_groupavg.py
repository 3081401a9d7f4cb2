"""GroupAvg by worked examples, and what its groupings may be."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from e2fl.algorithms.groupavg import GroupAvg, GroupAvgReply
from e2fl.data.federated import Population
from e2fl.errors import ConfigError, WireError
from e2fl.grouping import LowestLoss, RankClustering
from e2fl.models import Model
from e2fl.testing.contract import Problem

POPULATION = Population({0: 0, 1: 0, 2: 1}, 2)
MODEL = Model(nn.Sequential(nn.Linear(2, 1, bias=False)))


def params(*values):
    return {"0.weight": torch.tensor([values], dtype=torch.float32)}


def values(model):
    return model["0.weight"].flatten().tolist()


def member(*weights, group=-1):
    return GroupAvgReply(params(*weights), group)


def test_a_small_group_counts_as_much_as_a_large_one():
    algorithm = GroupAvg()
    state = algorithm.start(MODEL, POPULATION, 0)
    state = algorithm.aggregate(state, {0: member(1, 0), 1: member(3, 4), 2: member(8, 8)})
    assert {group: values(model) for group, model in state.groups.items()} == {0: [2, 2], 1: [8, 8]}
    assert values(algorithm.broadcast(state, [0])[0].params) == [5, 5]
    served = algorithm.serve(state, [0, 2])
    assert [values(served[client].models[0]) for client in (0, 2)] == [[2, 2], [8, 8]]
    # The next round is without group 1, which keeps its average.
    state = algorithm.aggregate(state, {1: member(0, 0)})
    assert values(state.params) == [4, 4]


def test_smoothing_serves_averages_over_rounds_and_leaves_training_as_it_is():
    plain, smooth = GroupAvg(), GroupAvg(smoothing=3)
    states = [algorithm.start(MODEL, POPULATION, 0) for algorithm in (plain, smooth)]
    for value in (1, 5):
        replies = {0: member(value, value)}
        states = [
            algorithm.aggregate(state, replies)
            for algorithm, state in zip((plain, smooth), states, strict=True)
        ]
    assert values(states[0].params) == values(states[1].params) == [5, 5]
    assert values(smooth.serve(states[1], [0])[0].models[0]) == [2, 2]  # (5 + 3 * 1) / 4
    assert values(smooth.describe(states[1]).models()["group0"]) == [2, 2]


def test_groups_that_clients_infer_start_from_different_weights_and_are_reported():
    algorithm = GroupAvg(grouping=LowestLoss(groups=2))
    state = algorithm.start(MODEL, Population(dict.fromkeys(range(3))), 0)
    sent = algorithm.broadcast(state, [0])[0]
    assert values(sent.models[0]) != values(sent.models[1])
    state = algorithm.aggregate(state, {2: member(1, 1, group=1)})
    assert algorithm.describe(state).assignments == {2: 1}
    assert values(algorithm.broadcast(state, [0])[0].models[1]) == [1, 1]
    # A group that nobody chose has learnt nothing: it is served the mean of the others.
    assert [values(model) for model in algorithm.serve(state, [0])[0].models] == [[1, 1], [1, 1]]


def test_a_run_is_the_plain_calculation():
    """Two rounds, once more by hand with the learner of the run."""
    problem = Problem(GroupAvg(clients_per_round=8))
    *_, last = problem.run(problem.federation(), 1)
    learner = problem.federation().learner
    trained = {0: [], 1: []}
    for client in range(8):
        own = replace(learner, round_number=1, client_id=client)
        trained[client % 2].append(own.fit(learner.initial, problem.data.client(client).train))
    for layer, value in last.state.params.items():
        groups = [torch.stack([m[layer] for m in models]).mean(0) for models in trained.values()]
        torch.testing.assert_close(value, (groups[0] + groups[1]) / 2)
        torch.testing.assert_close(last.state.groups[1][layer], groups[1])


def test_what_a_member_may_not_claim_and_what_a_grouping_may_not_need():
    state = GroupAvg().start(MODEL, POPULATION, 0)
    with pytest.raises(WireError, match="its client is in group 0"):
        GroupAvg().check(state, 0, member(1, 1, group=1))
    for grouping in (RankClustering(), LowestLoss(clustered=1)):
        with pytest.raises(ConfigError, match="no rankings"):
            GroupAvg(grouping=grouping).start(MODEL, POPULATION, 0)
    with pytest.raises(ConfigError, match="declare a group"):
        GroupAvg().start(MODEL, Population({0: None}, 2), 0)
