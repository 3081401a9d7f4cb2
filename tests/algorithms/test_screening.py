"""One client must not spoil a dense method: huge updates and claims are reduced, and named."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.afl import AFLReply
from e2fl.algorithms.screening import Size, clips_of, size_of
from e2fl.evaluation import total
from e2fl.rounds import Replies, run
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem
from e2fl.wire import Weights

ATTACKER = 1
SETTINGS = {"ifca": {"groups": 2}, "afl": {"learning_rate": 1.0}}
ROUNDS = {"afl": 25}
DENSE = sorted(set(ALGORITHMS) - {"local", "fedpm", "frl", "e2fl", "e2fl_steady"})


def attacked(name, forge):
    """The algorithm with one client whose reply is forged."""
    kind = ALGORITHMS[name]

    def train(self, message, client, learner):
        reply = kind.train(self, message, client, learner)
        return forge(message, reply) if client.id == ATTACKER else reply

    hostile = dataclass(frozen=True)(type("Hostile", (kind,), {"train": train}))
    return hostile(clients_per_round=8, **SETTINGS.get(name, {}))


def scaled_update(factor):
    def forge(message, reply):
        field = reply.weights_field()
        trained = getattr(reply, field)
        if field == "gradient":
            return replace(reply, gradient={n: value * factor for n, value in trained.items()})
        start = message.params if hasattr(message, "params") else message.models[reply.group]
        moved = {n: start[n] + factor * (value - start[n]) for n, value in trained.items()}
        return replace(reply, params=moved)

    return forge


@cache
def clean(name):
    """The accuracy without an attacker."""
    return accuracy(name, attacked(name, lambda _, reply: reply))


def accuracy(name, algorithm, update_limit=7.0, faults=None):
    problem = Problem(algorithm, rounds=ROUNDS.get(name, 8))
    federation = problem.federation()
    server = problem.server(federation, problem.rounds)
    server.evaluate_every, server.update_limit = 100, update_limit
    for done in run(server, federation):
        if faults is not None:
            faults.append(dict(done.faults))
    honest = [score for client, score in done.scores.items() if client != ATTACKER]
    return total(t for score in honest for t in next(iter(score.views.values())).values()).accuracy


@pytest.mark.parametrize(
    ("name", "factor"), [*((name, -30.0) for name in DENSE), ("fedavg", 900.0)]
)
def test_one_client_with_a_huge_update_does_not_stop_the_others_from_learning(name, factor):
    faults = []
    protected = accuracy(name, attacked(name, scaled_update(factor)), faults=faults)
    assert protected > clean(name) - 20  # with IFCA, one of seven may end in the wrong group
    named = [found[ATTACKER] for found in faults if ATTACKER in found]
    assert named
    assert all(reason.startswith("clipped: its update is") for reason in named)
    assert set().union(*faults) == {ATTACKER}


def test_a_clipped_gradient_does_not_gain_weight_in_afl_by_its_loss():
    """Its flipped gradient keeps its own loss high, which would raise its share every round."""
    algorithm = attacked("afl", scaled_update(-30.0))
    assert accuracy("afl", algorithm) > clean("afl") - 5
    problem = Problem(algorithm)
    server = problem.server(problem.federation(), 1)
    server.update_limit = 7.0
    sent = server.ask().inbox
    gradients = {client: dict(sent[client].params) for client in range(8)}
    gradients[ATTACKER] = {name: 900 * value for name, value in gradients[ATTACKER].items()}
    replies = {c: AFLReply(gradients[c], 9.0 if c == ATTACKER else c + 1.0, 36) for c in range(8)}
    accepted, _ = server.accept(Replies(replies))
    assert [accepted[client].loss for client in range(8)] == [1, 5.5, 3, 4, 5, 6, 7, 8]


def slopes(*pairs, sent=10.0):
    """Replies of AFL with gradients of these norms and losses to weights of a norm."""
    start = Weights({"w": torch.tensor([sent])})
    replies = [AFLReply({"w": torch.tensor([norm])}, loss, 36) for norm, loss in pairs]
    return {client: size_of(reply, {}, start) for client, reply in enumerate(replies)}


def test_gradients_are_compared_with_gradients_and_not_with_the_weights():
    """On the demo, honest gradients have a hundredth of the norm of the model."""
    flipped = slopes((0.1, 2.0), (0.1, 2.0), (0.12, 2.0), (-3.0, 2.0))
    assert set(clips_of(flipped, 7.0)) == {3}


def test_a_difference_without_a_loss_is_compared_as_it_is():
    """Two replies: the model that was sent takes the place of the median."""
    moved = Weights({"w": torch.tensor([1.0])})
    sizes = {client: size_of(moved, {}, Weights({"w": torch.tensor([10.0])})) for client in (0, 1)}
    assert [size.update for size in sizes.values()] == [1.0, 1.0]
    assert clips_of(sizes, 7.0) == {}


def test_an_honest_gradient_may_be_large_where_most_clients_have_converged():
    converged = [(0.01, 0.01), (0.02, 0.02), (0.0, 0.0), (1e-3, 1e-4)]
    assert clips_of(slopes(*converged, (1.0, 5.0)), 7.0) == {}
    assert set(clips_of(slopes(*converged, (30.0, 5.0)), 7.0)) == {4}


@pytest.mark.parametrize("name", ["term", "qffl", "afl"])
@pytest.mark.parametrize(
    ("factor", "claim", "reason"),
    [(-30.0, 9.0, "its update"), (1.0, 1e6, "claims a loss of 1e+06")],
)
def test_neither_a_clipped_update_nor_a_claim_gains_weight_by_its_loss(name, factor, claim, reason):
    """These methods give weight to a high loss, TERM exponentially."""

    def forge(message, reply):
        return replace(scaled_update(factor)(message, reply), loss=claim)

    problem = Problem(attacked(name, forge))
    federation = problem.federation()
    server = problem.server(federation, 1)
    server.update_limit = 7.0
    accepted, faults = server.accept(federation.train(server.ask()))
    losses = sorted(accepted[client].loss for client in accepted)
    assert accepted[ATTACKER].loss < losses[-1]
    assert faults[ATTACKER].startswith(f"clipped: {reason}")


def test_without_a_limit_one_client_spoils_the_model():
    spoiled = accuracy("fedavg", attacked("fedavg", scaled_update(-30.0)), update_limit=0.0)
    assert spoiled < clean("fedavg") - 20


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fairfed", "afl"])
def test_a_claim_of_a_billion_examples_is_capped_at_the_largest_client(name):
    def forge(message, reply):
        return replace(scaled_update(-1.0)(message, reply), examples=10**9)

    faults = []
    assert accuracy(name, attacked(name, forge), faults=faults) > clean(name) - 25
    assert "claims 1000000000 examples, counted as 36" in faults[0][ATTACKER]


def test_a_client_of_a_minority_is_not_clipped_because_the_others_have_converged(toy):
    """Groups with contradicting labels: one client of the other group has all to learn."""
    algorithm = {"name": "fedavg", "clients_per_round": 4}
    record = run_experiment(replace(toy, seed=1, rounds=8, algorithm=algorithm))
    assert toy.update_limit > 0
    assert not any(line["faults"] for line in record.history)


@pytest.mark.parametrize(
    ("updates", "factors"),
    [
        ([4.0, 5.0, 7.0, 60.0], {3: 15.0}),  # the median is 6
        ([4.0, 5.0, 7.0, 41.0], {}),
        ([1.0, 1.0, 1.0, 20.0], {}),  # less than twice the weights that were sent
        ([1.0, 1.0, 1.0, 22.0], {3: 22.0}),
        ([0.0, 0.0, 0.0, 30.0], {3: 10.0}),
        ([0.0, 4.0, 5.0, 60.0, 80.0], {3: 15.0, 4: 20.0}),
        ([60.0], {}),  # alone, compared with the weights that were sent
        ([80.0], {0: 8.0}),
        ([], {}),
    ],
)
def test_updates_are_compared_with_the_median_and_with_the_weights_that_were_sent(updates, factors):
    sizes = {client: Size(update, 10.0) for client, update in enumerate(updates)}
    clips = clips_of(sizes, 7.0)
    assert {client: clip.factor for client, clip in clips.items()} == pytest.approx(factors)
    assert clips_of(sizes, 0.0) == {}
