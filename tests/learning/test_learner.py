"""Local training: a golden trace of edge-popup, SGD against torch's own, a client's counts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from e2fl.data.federated import Examples
from e2fl.learning import Settings, build_learner
from e2fl.learning.autograd import AutogradEngine, Batch
from e2fl.models import Model, Supernet
from e2fl.networks import mlp
from e2fl.rankings.order import mask_layers, order_of, rank_of
from e2fl.testing.contract import same
from tests.learning.test_own_loss import points

SCORES = [0.30, 0.10, 0.50, 0.20, 0.60, 0.40]
TRACE = [  # scores and their order after each of three steps by hand
    ([0.368303, -0.036614, 0.431689, 0.268304, 0.463381, 0.468302], [1, 3, 0, 2, 4, 5]),
    ([0.498079, -0.296179, 0.301898, 0.398082, 0.203807, 0.598076], [1, 4, 2, 3, 0, 5]),
    ([0.621362, -0.542763, 0.178593, 0.521367, -0.042791, 0.721356], [1, 4, 2, 3, 0, 5]),
]
BATCH = Batch(
    torch.tensor([[1.0, 2.0, -1.0]]),
    torch.tensor([0]),
    np.array([[0.1, 0.9, 1e-4]]),
    np.array([1]),
)


def linear():
    model = Model(nn.Sequential(nn.Linear(3, 2, bias=False)))
    signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    return model, {"0.weight": math.sqrt(2 / 3) * signs}


def a_learner(model, seed=0, **settings):
    learner = build_learner(model, Settings(**settings), seed)
    return replace(learner, engine=AutogradEngine(model), round_number=1)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_edge_popup_follows_the_golden_trace(steps):
    model, weights = linear()
    scores = {"0.weight": np.array(SCORES, dtype=np.float32)}
    supernet = Supernet(weights, {}, {})
    after = AutogradEngine(model).fit_scores(supernet, scores, [BATCH] * steps)
    expected, order = TRACE[steps - 1]
    assert after["0.weight"] == pytest.approx(expected, abs=1.5e-6)
    assert order_of(after["0.weight"]).tolist() == order


def test_the_mask_that_is_trained_is_the_mask_of_the_ranking_that_is_sent():
    """Selecting by the absolute score but ranking by the signed one would break this."""
    model = Model(mlp((6,), 3, hidden=(16,)))
    learner = a_learner(model, learning_rate=0.5, epochs=6)
    scores = learner.engine.fit_scores(
        learner.supernet,
        learner.supernet.scores(learner.supernet.ranking),
        learner.batches(points((6,)), epochs=6),
    )
    assert any((score < 0).any() for score in scores.values())
    sent = mask_layers({name: rank_of(score) for name, score in scores.items()}, model.keep)
    for name, score in scores.items():
        threshold = np.sort(score)[len(score) // 2]
        assert ((score >= threshold) == sent[name]).all()


def test_training_leaves_what_it_started_from_alone():
    model = Model(mlp((6,), 3, hidden=(8,)))
    learner = a_learner(model)
    before = {name: weight.clone() for name, weight in learner.initial.items()}
    ranking = {name: rank.copy() for name, rank in learner.supernet.ranking.items()}
    learner.fit(learner.initial, points((6,)))
    learner.fit_scores(learner.supernet.ranking, points((6,)))
    assert same(before, learner.initial)
    assert same(ranking, learner.supernet.ranking)
    assert same(learner.supernet.weights, model.supernet(0).weights)


def test_the_last_partial_batch_is_kept_and_every_example_seen_once_an_epoch():
    learner = a_learner(Model(mlp((6,), 3, hidden=(8,))), batch_size=16)
    batches = list(learner.batches(points((6,), 40), epochs=2))
    assert [len(batch.y) for batch in batches] == [16, 16, 8] * 2
    seen = torch.cat([batch.x for batch in batches[:3]])
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, points((6,), 40).x.tolist()))


def test_rates_fall_as_asked():
    settings = Settings(learning_rate=0.1, round_decay=0.999, local_cosine=True)
    assert [settings.rate(1, epoch, 2) for epoch in (0, 1)] == pytest.approx([0.1, 0.05])
    assert settings.rate(3, 0, 2) == pytest.approx(0.1 * 0.999**2)
    assert Settings(learning_rate=0.1).rate(500, 1, 2) == 0.1


def test_a_tally_counts_what_is_right_and_wrong():
    model = Model(nn.Sequential(nn.Linear(2, 2, bias=False)))
    learner = a_learner(model)
    params = {"0.weight": torch.eye(2)}  # says class 1 where the second number is larger
    x = np.array([[0, 1], [0, 1], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
    tally = learner.tally(params, Examples(x, np.array([1, 0, 0, 1, 1])))
    assert (tally.n, tally.correct) == (5, 3)
    assert (tally.true_positive, tally.false_positive, tally.false_negative) == (2, 1, 1)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert tally.loss == pytest.approx(3 * right + 2 * wrong)


def test_a_gradient_over_all_examples_does_not_depend_on_how_they_are_cut():
    model = Model(mlp((6,), 3, hidden=(8,)))
    learner = a_learner(model)
    examples = points((6,), 1200)
    batch = BATCH._replace(x=examples.inputs(), y=examples.labels())
    whole = AutogradEngine(model).gradients(learner.initial, batch)
    found = learner.gradient(learner.initial, examples)
    assert all(torch.allclose(found[name], whole[name], atol=1e-6) for name in whole)
