"""The own vote: a client's own ranking takes part in the vote on what it is served."""

from dataclasses import replace

import numpy as np
import pytest

from e2fl import assign
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.readings import context_of
from e2fl.errors import WireError
from e2fl.grouping import LowestLoss
from e2fl.rankings.ballots import Buckets
from e2fl.rankings.messages import ExactMasks, ServedRankings
from e2fl.rankings.order import mask_layers
from e2fl.rankings.votes import elect
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same
from e2fl.testing.toy import Toy


def served(algorithm, client_id=1, rounds=2, data=None):
    """Train some rounds; return the learner, the client, its message, and the server's state."""
    problem = Problem(algorithm, data or Toy())
    federation = problem.federation()
    *_, last = problem.run(federation, rounds)
    learner = replace(federation.learner, round_number=rounds, client_id=client_id)
    message = algorithm.serve(last.state, [client_id])[client_id]
    spec = learner.model.spec
    message = type(message).from_bytes(message.to_bytes(spec), spec)
    return learner, problem.data.client(client_id), message, last.state


def origin_of(learner):
    return replace(context_of(learner.model), initial=learner.supernet.ranking).origin


def test_the_own_ranking_is_trained_from_the_groups_and_votes_with_it():
    algorithm = E2FL(clients_per_round=5, own_vote=(0.5,), served=Buckets(8))
    learner, client, message, state = served(algorithm)
    ranking = Buckets(8).rounded(state.groups[1], origin_of(learner))
    own = learner.fit_scores(ranking, client.train)
    # The group's ranking has two votes, the client's own ranking one.
    expected = mask_layers(elect([ranking, ranking, own]), learner.model.keep)
    models = algorithm.model_for(message, client, learner)
    assert same(models.views["group"].model, expected)
    assert not same(expected, mask_layers(ranking, learner.model.keep))
    assert not same(expected, mask_layers(own, learner.model.keep))
    assert models.group == 1


def test_two_buckets_are_a_mask_and_take_one_bit_an_edge():
    algorithm = E2FL(clients_per_round=5, own_vote=(1.0,), served=Buckets(2))
    learner, _, message, state = served(algorithm)
    spec = learner.model.spec
    ranking = message.decode(Buckets(2), origin_of(learner))[1]
    keep = learner.model.keep
    assert same(mask_layers(ranking, keep), mask_layers(state.groups[1], keep))
    masks = ExactMasks((1,), (1,), (message.global_mask,), message.global_mask)
    assert len(message.to_bytes(spec)) <= 1.2 * len(masks.to_bytes(spec))


def test_a_client_chooses_the_weight_on_a_fifth_of_its_rows():
    weights = (0.0, 0.5, 4.0)
    algorithm = E2FL(clients_per_round=5, own_vote=weights)
    learner, client, message, _ = served(algorithm)
    ranking = message.decode(algorithm.served, origin_of(learner))[1]

    def mask(own, weight):
        return mask_layers(elect([ranking], own, weight), learner.model.keep)

    rows = np.arange(len(client.train))
    held_out = client.train.take(rows[rows % 5 == 0])
    trained = learner.fit_scores(ranking, client.train.take(rows[rows % 5 != 0]))
    losses = [
        learner.loss(learner.weights_of(mask(trained, weight)), held_out) for weight in weights
    ]
    best = weights[int(np.argmin(losses))]
    expected = mask(learner.fit_scores(ranking, client.train), best)
    model = algorithm.model_for(message, client, learner).views["group"].model
    assert same(model, expected)
    # Labels that contradict what the group has learnt: the client trusts its own ranking most.
    own_labels = replace(client.train, y=(client.train.y + 1) % 3)
    stubborn = algorithm.model_for(message, replace(client, train=own_labels), learner)
    expected = mask(learner.fit_scores(ranking, own_labels), 4.0)
    assert same(stubborn.views["group"].model, expected)


def test_without_labelled_rows_a_client_uses_its_groups_ranking():
    algorithm = E2FL(clients_per_round=5, own_vote=(1.0,))
    learner, client, message, _ = served(algorithm)
    ranking = message.decode(algorithm.served, origin_of(learner))[1]
    unlabelled = replace(client.train, y=np.full(len(client.train), -1))
    models = algorithm.model_for(message, replace(client, train=unlabelled), learner)
    assert same(models.views["group"].model, mask_layers(ranking, learner.model.keep))


def test_a_group_that_never_voted_is_served_the_global_ranking():
    algorithm = E2FL(clients_per_round=1, own_vote=(1.0,))
    learner, _, message, state = served(algorithm, rounds=1)
    if 1 in state.groups:
        learner, _, message, state = served(algorithm, client_id=0, rounds=1)
    (group,) = message.groups
    assert group not in state.groups
    ranking = message.decode(algorithm.served, origin_of(learner))[group]
    assert same(ranking, algorithm.served.rounded(state.global_ranking, origin_of(learner)))


def test_groups_inside_clients_vote_with_their_own_rows():
    data = Toy(clients=6, groups=2, classes=2, inside=True, styles=True)
    algorithm = E2FL(clients_per_round=5, own_vote=(1.0,))
    learner, client, message, _ = served(algorithm, data=data)
    rankings = message.decode(algorithm.served, origin_of(learner))
    models = algorithm.model_for(message, client, learner).views["group"].by_group
    for group, ranking in rankings.items():
        own = learner.fit_scores(ranking, client.train.of_group(group))
        assert same(models[group], mask_layers(elect([ranking, own]), learner.model.keep))


def test_training_is_the_same_and_only_what_is_served_differs(toy):
    plain = run_experiment(toy)
    voting = run_experiment(replace(toy, algorithm=toy.algorithm | {"own_vote": [1.0]}))
    assert same(plain.state.global_ranking, voting.state.global_ranking)
    bytes_of = [run.summary["bytes"] for run in (plain, voting)]
    assert bytes_of[0]["up_total"] == bytes_of[1]["up_total"]
    assert bytes_of[0]["down_total"] == bytes_of[1]["down_total"]
    assert (
        plain.summary["views"]["global"]["clients"] == voting.summary["views"]["global"]["clients"]
    )
    assert plain.clients != voting.clients


def test_a_served_message_that_is_not_valid_is_refused():
    algorithm = E2FL(clients_per_round=5, own_vote=(1.0,), grouping=LowestLoss(groups=2))
    learner, client, message, _ = served(algorithm)
    short = ServedRankings(message.groups, message.lengths[:1], message.codes, message.global_mask)
    cut = replace(message, codes=message.codes[:-1])
    for broken in (short, cut):
        with pytest.raises(WireError):
            algorithm.model_for(broken, client, learner)


def test_held_out_clients_and_assigned_ones_vote(toy, tmp_path):
    experiment = replace(toy, data=toy.data | {"held_out": 2, "noise": 1.5})
    voting = replace(experiment, algorithm=toy.algorithm | {"own_vote": [1.0]})
    plain, own = (
        run_experiment(made, out=tmp_path / name)
        for name, made in (("plain", experiment), ("own", voting))
    )
    assert plain.summary["unseen"]["clients"] != own.summary["unseen"]["clients"]
    client = experiment.build.data().unseen()[8]
    used = [
        assign(tmp_path / name, client.train, group=client.group).params
        for name in ("plain", "own")
    ]
    assert not same(*used)
