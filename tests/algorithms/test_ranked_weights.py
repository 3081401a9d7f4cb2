"""Ranked weights: rounds by a plain calculation, ballots, own votes, and hostile tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.frl import FRL
from e2fl.errors import WireError
from e2fl.rankings.ballots import Buckets
from e2fl.rankings.messages import CodedBallots, ExactBallots, RankedWeights, TabledBallots
from e2fl.rankings.order import MAX_GROWTH, places, rank_of, table_of
from e2fl.rankings.votes import elect
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same
from e2fl.testing.toy import Toy


def plain(ranking, table, like):
    """Look the weights up one by one, between the places that are sent if need be."""
    params = {}
    for layer, weights in like.items():
        edges = weights.numel()
        rising = np.interp(range(edges), places(edges), table[layer]).astype(np.float32)
        flat = np.array([rising[place] for place in ranking[layer]])
        params[layer] = torch.from_numpy(flat).view(weights.shape)
    return params


def trained(algorithm, rounds=2, data=None):
    problem = Problem(algorithm, data or Toy())
    federation = problem.federation()
    *_, last = problem.run(federation, rounds)
    return problem, federation.learner, last.state


def test_a_round_is_sgd_on_looked_up_weights_then_two_votes_and_the_median_of_tables():
    algorithm = E2FL(clients_per_round=5, reading="weights")
    problem = Problem(algorithm)
    federation = problem.federation()
    first = problem.recorded_rounds[0]
    state, learner = first.state, federation.learner
    weights = plain(state.global_ranking, state.table, learner.initial)
    for layer, initial in learner.initial.items():  # the initial weights, in another order
        mapped, drawn = (model[layer].flatten().sort()[0] for model in (weights, learner.initial))
        assert torch.allclose(mapped, drawn, atol=0.05 * float(initial.abs().max()))
    by_group, tables = {}, []
    for client_id in sorted(first.request.inbox):
        client = problem.data.client(client_id)
        own = replace(learner, round_number=1, client_id=client_id).fit(weights, client.train)
        ranking = {layer: rank_of(value.numpy().ravel()) for layer, value in own.items()}
        by_group.setdefault(client.group, []).append(ranking)
        tables.append(table_of(own))
    groups = {group: elect(rankings) for group, rankings in sorted(by_group.items())}
    after = algorithm.aggregate(state, first.checked)
    assert same(after.groups, groups)
    assert same(after.global_ranking, elect(list(groups.values())))
    for layer, values in after.table.items():
        assert np.allclose(values, np.median([table[layer] for table in tables], axis=0))
    served = algorithm.serve(after, [0])[0]
    spec = learner.model.spec
    served = type(served).from_bytes(served.to_bytes(spec), spec)
    models = algorithm.model_for(served, problem.data.client(0), learner)
    expected = plain(after.groups[models.group], after.table, learner.initial)
    assert same(models.views["group"].model, expected)
    assert same(algorithm.describe(after).models()[f"group{models.group}"], expected)


def test_the_own_vote_averages_weights():
    algorithm = FRL(clients_per_round=5, reading="weights", own_vote=(0.5,))
    problem, learner, state = trained(algorithm)
    learner = replace(learner, round_number=2, client_id=1)
    client = problem.data.client(1)
    served = algorithm.serve(state, [1])[1]
    common = plain(state.groups[0], state.table, learner.initial)
    own = learner.fit(common, client.train)
    model = algorithm.model_for(served, client, learner).views["group"].model
    for layer, weights in model.items():
        assert torch.allclose(weights, (2 * common[layer] + own[layer]) / 3, atol=1e-7)


def test_equal_rankings_are_sent_once_and_models_are_shared_by_clients():
    algorithm = FRL(clients_per_round=5, reading="weights")
    problem, learner, state = trained(algorithm)
    message = algorithm.serve(state, [0, 1])[1]
    assert isinstance(message, RankedWeights)
    assert message.lengths[1] == 0  # the only group's ranking is the global one
    one, other = (
        algorithm.model_for(message, problem.data.client(client), learner).views["group"].model
        for client in (0, 1)
    )
    assert one is other


def test_a_lying_table_is_limited_and_outvoted():
    algorithm = E2FL(clients_per_round=5, reading="weights")
    problem = Problem(algorithm)
    first = problem.recorded_rounds[0]
    spec = problem.model().spec
    sent = {
        client: TabledBallots.from_bytes(reply.to_bytes(spec), spec)
        for client, reply in first.replies.items()
    }
    liar = min(sent)
    count = len(sent[liar].tables) // 4
    huge = np.linspace(-3e38, 3e38, count, dtype=np.float32)
    sizes = np.cumsum([len(values) for values in first.state.table.values()])[:-1]
    rising = b"".join(np.sort(part).tobytes() for part in np.split(huge, sizes))
    replies = sent | {liar: replace(sent[liar], tables=rising)}
    checked = {client: algorithm.check(first.state, client, r) for client, r in replies.items()}
    claimed = checked[liar].tables[0]
    for layer, values in first.state.table.items():
        assert np.abs(claimed[layer]).max() <= MAX_GROWTH * np.abs(values).max() * 1.0001
    honest = algorithm.aggregate(first.state, first.checked)
    fooled = algorithm.aggregate(first.state, checked)
    for layer, values in honest.table.items():
        assert np.abs(fooled.table[layer]).max() <= 1.5 * np.abs(values).max()


@pytest.mark.parametrize("tables", [b"", b"\0" * 8, b"\xff" * 4, None])
def test_a_malformed_table_is_refused(tables):
    algorithm = E2FL(clients_per_round=5, reading="weights")
    first = Problem(algorithm).recorded_rounds[0]
    spec = Problem(algorithm).model().spec
    client, reply = next(iter(first.replies.items()))
    reply = TabledBallots.from_bytes(reply.to_bytes(spec), spec)
    forged = reply.tables[::-1] if tables is None else tables
    with pytest.raises(WireError, match="table"):
        algorithm.check(first.state, client, replace(reply, tables=forged))


def test_ballots_of_the_other_reading_are_refused():
    masks, weights = E2FL(clients_per_round=5), E2FL(clients_per_round=5, reading="weights")
    coded = replace(masks, ballot=Buckets(16))
    moments = {
        algorithm: Problem(algorithm).recorded_rounds[0] for algorithm in (masks, weights, coded)
    }
    spec = Problem(masks).model().spec
    for asked, recorded in moments.items():
        for sender, other in moments.items():
            client, reply = next(iter(other.replies.items()))
            kind = {masks: ExactBallots, weights: TabledBallots, coded: CodedBallots}[sender]
            reply = kind.from_bytes(reply.to_bytes(spec), spec)
            if sender is not asked:
                with pytest.raises(WireError, match="is expected"):
                    asked.check(recorded.state, client, reply)


def test_a_resumed_run_and_an_assigned_client_know_the_table(toy, tmp_path):
    from e2fl import assign

    section = toy.algorithm | {
        "reading": "weights",
        "grouping": {"name": "rank_clustering", "groups": 2},
    }
    experiment = replace(toy, algorithm=section, data=toy.data | {"held_out": 2})
    run = run_experiment(experiment, out=tmp_path / "run")
    client = experiment.build.data().unseen()[8]
    joined = assign(tmp_path / "run", client.train)
    groups = {f"group{group}" for group in run.state.groups}
    models = experiment.build.algorithm().describe(run.state).models()
    assert any(same(joined.params, models[name]) for name in groups)
    assert same(table_of(joined.params), run.state.table)
