"""PropFair, FedMGDA+, FedFV and AAggFF against small calculations from their papers."""

import itertools
import math

import numpy as np
import pytest
import torch

from e2fl.algorithms.aaggff import CDFS, AAggFF, AAggFFState
from e2fl.algorithms.base import ModelAndLoss
from e2fl.algorithms.fedavg import Shared
from e2fl.algorithms.fedfv import FedFV, FedFVState
from e2fl.algorithms.fedmgda import FedMGDA, least_norm
from e2fl.algorithms.propfair import PropFair
from e2fl.learning import Settings
from e2fl.testing.contract import Problem
from e2fl.wire import Weights

RNG = np.random.default_rng(7)


def params(vector):
    """Two layers, so that nothing works layer by layer."""
    parts = torch.tensor(np.asarray(vector), dtype=torch.float32)
    return {"a": parts[:2].reshape(1, 2).clone(), "b": parts[2:].clone()}


def vector(model):
    return np.concatenate([value.numpy().ravel() for value in model.values()]).astype(float)


# PropFair


@pytest.mark.parametrize(("baseline", "near"), [(5.0, False), (0.5, True)])
def test_propfair_follows_the_gradient_of_the_logarithm_of_utility(baseline, near):
    """One step over all rows: the gradient of the loss, over M - loss, or over M near the edge."""
    settings = Settings(0.1, momentum=0, weight_decay=0, epochs=1, batch_size=999)
    problem = Problem(PropFair(baseline=baseline), settings=settings)
    learner, client = problem.federation().learner, problem.data.client(0)
    trained = problem.algorithm.train(Weights(learner.initial), client, learner)
    loss = learner.loss(learner.initial, client.train)
    slope = learner.gradient(learner.initial, client.train)
    assert (baseline - loss < 0.2) == near
    room = baseline if near else baseline - loss
    for name, start in learner.initial.items():
        expected = start - 0.1 / room * slope[name]
        torch.testing.assert_close(trained.params[name], expected, rtol=1e-5, atol=1e-6)
    assert trained.examples == len(client.train)


# FedMGDA+


def test_the_point_of_least_norm_is_the_best_of_all_points_on_a_grid():
    for deviation in (0.1, 1.0):
        units = RNG.standard_normal((3, 4))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        weights = least_norm(units @ units.T, deviation)
        assert weights.sum() == pytest.approx(1)
        assert np.abs(weights - 1 / 3).max() <= deviation + 1e-9
        grid = np.arange(0, 1.0005, 0.002)
        points = np.array([(a, b, 1 - a - b) for a, b in itertools.product(grid, grid)])
        allowed = (points > -1e-9) & (np.abs(points - 1 / 3) <= deviation)
        best = np.linalg.norm(points[allowed.all(axis=1)] @ units, axis=1).min()
        assert np.linalg.norm(weights @ units) == pytest.approx(best, abs=2e-3)
        assert np.linalg.norm(weights @ units) <= best + 1e-9


def test_fedmgda_steps_along_unit_updates():
    start = np.array([1.0, 2.0, 3.0])
    ends = {0: start - [3, 0, 0], 1: start - [0, 0.5, 0], 2: start}
    replies = {client: Weights(params(end)) for client, end in ends.items()}
    even = FedMGDA(deviation=0, server_rate=2).aggregate(Shared(params(start)), replies)
    assert vector(even.params) == pytest.approx(start - [1, 1, 0])  # client 2 did not move
    # Free weights of two vectors at 120 degrees: the foot of the perpendicular, half way.
    ends[1] = start - [-0.5, math.sqrt(3) / 2, 0]
    replies = {client: Weights(params(ends[client])) for client in (0, 1)}
    free = FedMGDA(deviation=1).aggregate(Shared(params(start)), replies)
    assert vector(free.params) == pytest.approx(start - [0.25, math.sqrt(3) / 4, 0], abs=1e-6)
    unmoved = Shared(params(start))
    assert FedMGDA().aggregate(unmoved, {2: Weights(params(start))}) is unmoved


# FedFV


def fair_mean(updates, losses, alpha, past):
    """Algorithms 2 and 3 of the paper, for vectors; past: updates of absent clients."""
    order = sorted(updates, key=lambda client: losses[client])
    worst = order[-math.ceil(alpha * len(order)) :] if alpha else []
    projected = {}
    for client in order:
        g = updates[client].copy()
        for other in order:
            h = updates[other]
            if client not in worst and other != client and g @ h < 0:
                g -= (g @ h) / (h @ h) * h
        projected[client] = g
    mean = sum(projected.values()) / len(order)
    conflict = sum((h for h in past if mean @ h < 0), np.zeros(len(mean)))
    if conflict.any():
        mean = mean - (mean @ conflict) / (conflict @ conflict) * conflict
    plain = sum(updates.values()) / len(order)
    return mean * np.linalg.norm(plain) / np.linalg.norm(mean)


@pytest.mark.parametrize(("alpha", "tau"), [(0.1, 1), (0.0, 1), (0.5, 0), (0.1, 2)])
def test_fedfv_removes_conflicts_as_the_paper_says(alpha, tau):
    algorithm, w = FedFV(alpha=alpha, tau=tau), RNG.standard_normal(6)
    state, history = FedFVState(params(w)), []
    for members in ([0, 1, 2, 3], [2, 3, 4, 5, 6]):
        w = vector(state.params)
        ends = {client: vector(params(w - RNG.standard_normal(6))) for client in members}
        updates = {client: w - end for client, end in ends.items()}
        losses = dict(zip(members, RNG.random(len(members)), strict=True))
        past = [u for done in history[-tau:] for c, u in done.items() if c not in members]
        moved = fair_mean(updates, losses, alpha, past if tau else [])
        replies = {
            client: ModelAndLoss(params(end), losses[client]) for client, end in ends.items()
        }
        state = algorithm.aggregate(state, replies)
        assert vector(state.params) == pytest.approx(w - moved, abs=1e-5)
        history.append(updates)
    assert len(state.recent) == min(tau, 2)


def test_fedfv_never_projects_an_update_off_itself():
    """Off (0, 3) and (-2, 2), (1, -3) becomes (0.5, 0.5), which conflicts with (1, -3)."""
    updates = [np.array([0.0, 3, 0]), np.array([-2.0, 2, 0]), np.array([1.0, -3, 0])]
    replies = {client: ModelAndLoss(params(-g), float(client)) for client, g in enumerate(updates)}
    moved = -vector(FedFV(alpha=0).aggregate(FedFVState(params(np.zeros(3))), replies).params)
    expected = fair_mean(dict(enumerate(updates)), [0, 1, 2], 0, [])
    assert moved == pytest.approx(expected, abs=1e-6)


# AAggFF


def decide(p, sums, losses, rounds):
    """One decision of the paper for all clients: no term is left out that cancels."""
    clients, share = len(p), len(losses) / len(p)
    mean_loss = np.mean(list(losses.values()))
    phi = {c: 0.5 * (1 + math.erf((f / mean_loss - 1) / math.sqrt(2))) for c, f in losses.items()}
    r = {client: share * value for client, value in phi.items()}
    reference = np.mean(list(r.values()))
    estimate = np.full(clients, reference)
    for client, response in r.items():
        estimate[client] = (1 - 1 / share) * reference + response / share
    scale = 1 + reference  # <p, reference> with shares that sum to 1
    gradient = -estimate / scale + reference * (p @ (estimate - reference)) / scale**2
    sums = sums + gradient
    bound = 2 + share
    p = np.exp(-math.sqrt(math.log(clients)) / (bound * math.sqrt(rounds + 1)) * sums)
    return p / p.sum(), sums


def test_aaggff_decides_as_the_full_calculation_does():
    clients = 7
    state = AAggFFState(params(RNG.standard_normal(5)), clients)
    p, sums = np.full(clients, 1 / clients), np.zeros(clients)
    for number, members in enumerate(([0, 1, 2], [2, 5, 6], [0, 2, 6]), start=1):
        ends = {client: vector(params(RNG.standard_normal(5))) for client in members}
        losses = dict(zip(members, 3 * RNG.random(3), strict=True))
        p, sums = decide(p, sums, losses, number)
        expected = sum(p[c] * end for c, end in ends.items()) / sum(p[c] for c in members)
        replies = {
            client: ModelAndLoss(params(end), losses[client]) for client, end in ends.items()
        }
        state = AAggFF().aggregate(state, replies)
        assert vector(state.params) == pytest.approx(expected, abs=1e-6)
    assert set(state.gains) == {0, 1, 2, 5, 6}


@pytest.mark.parametrize("cdf", CDFS)
def test_an_absurd_loss_gives_a_client_no_more_than_a_bounded_share(cdf):
    replies = {
        c: ModelAndLoss(params(np.full(3, float(c == 0))), 1e308 if c == 0 else 1.0)
        for c in range(4)
    }
    after = AAggFF(cdf=cdf).aggregate(AAggFFState(params(np.zeros(3)), 8), replies)
    assert 0.25 < vector(after.params)[0] < 0.6
    equal = {client: ModelAndLoss(params(np.full(3, float(client))), 0.0) for client in range(3)}
    after = AAggFF(cdf=cdf).aggregate(AAggFFState(params(np.zeros(3)), 8), equal)
    assert vector(after.params) == pytest.approx([1, 1, 1])
