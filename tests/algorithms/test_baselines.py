"""The baselines' server halves: worked examples, and laws that tie them to plain averaging."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from e2fl.algorithms.afl import AFL, AFLReply, AFLState, project
from e2fl.algorithms.base import ModelAndLoss
from e2fl.algorithms.ditto import Ditto
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.algorithms.fedprox import FedProx
from e2fl.algorithms.ifca import IFCA, GroupModels, IFCAReply, IFCAState
from e2fl.algorithms.qffl import QFFL, QFFLReply, QFFLState
from e2fl.algorithms.term import TERM
from e2fl.data.federated import Population
from e2fl.errors import ConfigError, WireError
from e2fl.learning import Settings
from e2fl.models import Model
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same
from e2fl.wire import Weights
from tests.toys import toy_with


def params(*values):
    return {"layer": torch.tensor(values, dtype=torch.float32)}


def values(model):
    return pytest.approx(model["layer"].tolist(), abs=1e-6)


def two_weights():
    return Model(nn.Sequential(nn.Linear(2, 1, bias=False)))


@pytest.mark.parametrize(
    ("trim", "expected"),
    [(0, [20.0, 1.0]), (0.2, [2.0, 7 / 3]), (0.4, [2.0, 2.0]), (0.5, [2.0, 2.0])],
)
def test_a_trimmed_mean_drops_the_ends_of_every_weight(trim, expected):
    models = (params(1, 9), params(94, -11), params(2, 2), params(3, 3), params(0, 2))
    replies = {client: Update(model, 1) for client, model in enumerate(models)}
    assert values(FedAvg(trim=trim).aggregate(Shared(params(0, 0)), replies).params) == expected
    even = {client: Update(params(value), 1) for client, value in enumerate((1, 2, 5, 99))}
    assert values(FedAvg(trim=0.5).aggregate(Shared(params(0)), even).params) == [3.5]


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (0, [0.95, 1.65]),
        (0.1, [0.958199, 1.676314]),
        (1, [0.990909, 1.8]),
        (5, [0.999987, 1.931063]),
    ],
)
def test_qffl_steps_by_loss_to_the_power_of_q(q, expected):
    replies = {0: QFFLReply(params(0.9, 1.8), 0.5, 0.1), 1: QFFLReply(params(1.0, 1.5), 2.0, 0.1)}
    after = QFFL(q=q).aggregate(QFFLState(params(1.0, 2.0)), replies)
    assert values(after.params) == expected


def test_fedavg_weighs_models_by_examples():
    replies = {0: Update(params(1.0, 2.0), 1), 1: Update(params(3.0, 4.0), 3)}
    before = Shared(params(0.0, 0.0))
    assert values(FedAvg().aggregate(before, replies).params) == [2.5, 3.5]
    assert values(FedAvg(weighted=False).aggregate(before, replies).params) == [2.0, 3.0]


def test_qffl_does_not_take_a_step_that_overflows_but_counts_it():
    before = QFFLState(params(1.0, 2.0))
    huge = {0: QFFLReply(params(3e38, -3e38), 1e300, 1e-300)}
    once = QFFL(q=4).aggregate(before, huge)
    assert once.params is before.params
    assert QFFL(q=4).describe(QFFL(q=4).aggregate(once, huge)).metadata == {"steps_not_taken": 2}


@pytest.mark.parametrize("loss", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    ("algorithm", "reply"),
    [
        (QFFL(), lambda loss: QFFLReply(params(1.0), loss, 0.1)),
        (TERM(), lambda loss: ModelAndLoss(params(1.0), loss)),
        (AFL(), lambda loss: AFLReply(params(1.0), loss, 1)),
        (IFCA(), lambda loss: IFCAReply(params(1.0), 0, 1, loss, 0.1)),
    ],
)
def test_a_reply_whose_loss_is_no_loss_is_refused(algorithm, reply, loss):
    with pytest.raises(WireError, match="claims a loss"):
        algorithm.check(None, 0, reply(loss))


def ifca_state(*models):
    none = (0,) * len(models)
    return IFCAState(GroupModels(tuple(range(len(models))), models), none, none, {})


def test_ifca_averages_models_within_each_group():
    replies = {
        0: IFCAReply(params(1, 2), 0, 1, 0.5, 0.1),
        1: IFCAReply(params(3, 2), 0, 3, 0.5, 0.1),
        2: IFCAReply(params(5, 5), 1, 2, 0.5, 0.1),
    }
    state = ifca_state(params(0, 0), params(1, 1))
    after = IFCA().aggregate(state, replies)
    assert values(after.current.models[0]) == [2, 2]
    assert values(after.current.models[1]) == [5, 5]
    assert (after.chosen, after.ever) == ((2, 1), (2, 1))
    assert values(IFCA(weighted=True).aggregate(state, replies).current.models[0]) == [2.5, 2]


def test_ifca_averages_gradients_over_all_participants():
    replies = {
        0: IFCAReply(params(-1, -2), 0, 1, 0.5, 0.5),
        1: IFCAReply(params(-3, -2), 0, 1, 0.5, 0.5),
        2: IFCAReply(params(-4, -4), 1, 1, 0.5, 0.5),
    }
    after = IFCA(averaging="gradient").aggregate(ifca_state(params(0, 0), params(1, 1)), replies)
    assert values(after.current.models[0]) == [2 / 3, 2 / 3]
    assert values(after.current.models[1]) == [5 / 3, 5 / 3]


def test_ifca_keeps_the_model_of_an_empty_group():
    algorithm = IFCA(groups=3)
    state = ifca_state(params(1, 1), params(2, 2), params(3, 3))
    after = algorithm.aggregate(state, {4: IFCAReply(params(9, 9), 1, 1, 0.5, 0.1)})
    assert after.current.models[0] is state.current.models[0]
    assert after.current.models[2] is state.current.models[2]
    assert algorithm.describe(after).metadata["groups_nobody_chose"] == 2


def test_ifca_starts_its_groups_from_different_weights():
    state = IFCA(groups=3).start(two_weights(), Population(dict.fromkeys(range(6))), 0)
    starts = {tuple(model["0.weight"].view(-1).tolist()) for model in state.current.models}
    assert len(starts) == 3


def test_with_oracle_groups_no_model_is_compared_and_no_group_is_found():
    oracle = {"name": "ifca", "oracle_groups": True}
    summary = run_experiment(toy_with(algorithm=oracle)).summary
    assert summary["membership"] == "declared"
    keys = ("matched", "passes_per_client", "passes", "bytes")
    assert [summary["inference"][key] for key in keys] == [100, 0, 0, 0]


def test_oracle_groups_restrict_training_to_the_own_group():
    algorithm = IFCA(oracle_groups=True)
    state = algorithm.start(two_weights(), Population({0: 0, 1: 1}, 2), 0)
    sent = algorithm.broadcast(state, [0, 1])
    assert (sent[0].groups, sent[1].groups) == ((0,), (1,))
    with pytest.raises(WireError, match="may not choose"):
        algorithm.check(state, 1, IFCAReply(params(1, 1), 0, 1, 0.5, 0.1))


def test_ifca_needs_to_know_how_many_groups_there_are():
    with pytest.raises(ConfigError, match=r"algorithm\.groups"):
        IFCA().start(two_weights(), Population({0: None}), 0)
    with pytest.raises(ConfigError, match="at most 1 clients"):
        IFCA(groups=2).start(two_weights(), Population({0: None}), 0)


def test_fedprox_is_fedavg_with_a_pull_towards_what_was_sent():
    """One step of one client, by hand: momentum and decay are 0, the gradient is autograd's."""
    problem = Problem(FedAvg(), settings=Settings(0.1, momentum=0, weight_decay=0, batch_size=999))
    learner, client = problem.federation().learner, problem.data.client(0)
    message = Weights(learner.initial)
    plain = FedAvg().train(message, client, learner)
    assert same(FedProx(proximal=0).train(message, client, learner), plain)
    pulled = FedProx(proximal=2).train(message, client, learner)
    w = dict(learner.initial)
    for _ in range(learner.settings.epochs):
        slope = learner.gradient(w, client.train)
        w = {n: v - 0.1 * (slope[n] + 2 * (v - learner.initial[n])) for n, v in w.items()}
    assert same(pulled.params, w, tolerance=1e-4)


def test_ditto_trains_its_own_model_further_in_every_round_towards_the_global_one():
    problem = Problem(Ditto(proximal=0.5), settings=Settings(0.1))
    learner, client = problem.federation().learner, problem.data.client(0)
    own = learner.initial
    for _ in range(2):
        problem.algorithm.train(Weights(learner.initial), client, learner)
        pull = {"toward": learner.initial, "proximal": 0.5, "purpose": "batches of the own model"}
        own = learner.fit(own, client.train, **pull)
    assert same(client.memory["own"], own)


def test_term_weighs_by_the_exponential_of_the_loss():
    replies = {0: ModelAndLoss(params(0.0), 1.0), 1: ModelAndLoss(params(1.0), 2.0)}
    before = Shared(params(9.0))
    assert values(TERM(tilt=1).aggregate(before, replies).params) == [math.e / (1 + math.e)]
    assert values(TERM(tilt=0).aggregate(before, replies).params) == [0.5]
    assert values(TERM(tilt=-1).aggregate(before, replies).params) == [1 / (1 + math.e)]


@pytest.mark.parametrize(
    ("point", "nearest"),
    [
        ([0.2, 0.8], [0.2, 0.8]),  # there already
        ([0.7, 0.9], [0.4, 0.6]),  # 0.3 too much each
        ([2.0, 0.5, -1.0], [1.0, 0.0, 0.0]),  # the corner
        ([0.5, 0.5, 0.3], [0.4, 0.4, 0.2]),  # 0.1 too much each
        ([1e17, 0.5], [1, 0]),
        ([1e308, 1e308], [0.5, 0.5]),
    ],
)
def test_projection_onto_shares(point, nearest):
    assert project(np.array(point)).tolist() == pytest.approx(nearest)


def test_afl_steps_by_the_mixture_and_lets_the_worst_count_more():
    state = AFLState(params(1.0), params(1.0), 0, {0: 0, 1: 1}, (0.5, 0.5))
    replies = {0: AFLReply(params(2.0), 1.0, 10), 1: AFLReply(params(-4.0), 3.0, 5)}
    once = AFL(learning_rate=0.1, mixture_rate=0.1).aggregate(state, replies)
    assert values(once.params) == [1.0 - 0.1 * (0.5 * 2 - 0.5 * 4)]  # 1.1
    assert once.shares == pytest.approx((0.4, 0.6))  # 0.5 + 0.1 and 0.5 + 0.3, less 0.2 each
    twice = AFL(learning_rate=0.1, mixture_rate=0.1).aggregate(once, replies)
    assert values(twice.params) == [1.1 - 0.1 * (0.4 * 2 - 0.6 * 4)]  # 1.26
    assert values(twice.mean) == [(1.1 + 1.26) / 2]


def test_afl_does_not_take_a_step_that_overflows_but_counts_it():
    state = AFLState(params(1.0), params(1.0), 0, {0: 0, 1: 1}, (0.5, 0.5))
    steep = {0: AFLReply(params(3e38), 1.0, 10), 1: AFLReply(params(3e38), 3.0, 10)}
    after = AFL(learning_rate=1e7).aggregate(state, steep)
    assert after == replace(state, skipped=1)
    assert AFL().describe(after).metadata["steps_not_taken"] == 1


def test_afl_over_groups_pools_the_examples_of_a_group():
    state = AFLState(params(0.0), params(0.0), 0, {0: 0, 1: 0, 2: 1}, (0.5, 0.5))
    replies = {
        0: AFLReply(params(1.0), 1.0, 1),
        1: AFLReply(params(5.0), 5.0, 3),
        2: AFLReply(params(0.0), 4.0, 9),
    }
    after = AFL(learning_rate=1.0, mixture_rate=0.1, over="groups").aggregate(state, replies)
    assert values(after.params) == [-0.5 * (1 + 3 * 5) / 4]
    assert after.shares == pytest.approx((0.5, 0.5))  # both groups lost 4
