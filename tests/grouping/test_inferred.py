"""Groups that clients infer: the worked example, the passes it takes, and that they are found."""

import dataclasses
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.groupavg import GroupAvg
from e2fl.data.federated import Client, Examples, Population
from e2fl.errors import ConfigError
from e2fl.evaluation import NO_GROUP
from e2fl.grouping import Binary, LowestLoss, OneShot, RankClustering
from e2fl.grouping.inferred import lowest_loss
from e2fl.learning import Learner, Settings
from e2fl.learning.autograd import AutogradEngine
from e2fl.learning.learner import Meter
from e2fl.models import Model, Supernet
from e2fl.runs.runner import run_experiment
from e2fl.testing.contract import Problem, same
from e2fl.testing.toy import Toy
from tests.toys import toy_with

MODEL = Model(nn.Sequential(nn.Linear(3, 2, bias=False)))
MASKS = ["110010101001", "011100110010", "101001010110", "010110001101"]


def golden():
    """One layer of 3 outputs and 4 inputs, two examples, four masks."""
    model = Model(nn.Sequential(nn.Linear(4, 3, bias=False)))
    signs = torch.tensor([[1.0, -1, 1, 1], [-1, 1, 1, -1], [1, 1, -1, 1]])
    supernet = Supernet({"0.weight": 0.7071067811865476 * signs}, {}, {})
    learner = Learner(model, AutogradEngine(model), supernet, {}, Settings(), 0, meter=Meter())
    x = np.array([[1, 0.5, -1, 2], [0, 1.5, 1, -0.5]], dtype=np.float32)
    examples = Examples(x, np.array([0, 1]))
    masks = [{"0.weight": np.array([bit == "1" for bit in text])} for text in MASKS]
    return masks, Client(0, examples, examples), learner


def entropy(shares, x, masks, learner):
    """Of a mixture of masks, by the definition: the mean over the examples of -sum p log p."""
    weights = learner.supernet.weights["0.weight"].double()
    mixed = sum(
        share * torch.from_numpy(mask["0.weight"]).reshape(3, 4)
        for share, mask in zip(shares, masks, strict=True)
    )
    p = torch.softmax(torch.from_numpy(x).double() @ (weights * mixed).T, dim=1)
    return -(p * p.log()).sum(dim=1).mean()


def slopes(shares, x, masks, learner):
    """How entropy changes with every share, also with those that are 0."""
    shares = torch.tensor(shares, dtype=torch.float64, requires_grad=True)
    entropy(shares, x, masks, learner).backward()
    return shares.grad.numpy()


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.25] * 4, [-0.514428, -0.389307, -0.304820, -0.350359]),
        ([0.5, 0.5, 0, 0], [-0.531020, -0.435750, -0.325556, -0.311660]),
    ],
)
def test_gradient_of_the_entropy_of_an_even_mixture(shares, expected):
    masks, client, learner = golden()
    mixed = np.count_nonzero(shares)
    gradient = learner.entropy_gradient(masks[:mixed], client.train)
    assert gradient == pytest.approx(expected[:mixed], abs=1e-5)
    assert slopes(shares, client.train.x, masks, learner) == pytest.approx(expected, abs=1e-6)


def test_both_rules_take_the_mask_of_lowest_entropy_not_of_highest():
    masks, client, learner = golden()
    assert OneShot(groups=4).find(masks, client, learner) == 0
    assert Binary(groups=4).find(masks, client, learner) == 0


def test_binary_mixes_anew_those_that_are_left():
    """Here the two that survive change places once the other two are gone."""
    masks, client, learner = golden()
    x = np.array([[4, -5, 1, -1], [-1, -0.5, -4, -0.5]], dtype=np.float32)
    client = dataclasses.replace(client, train=dataclasses.replace(client.train, x=x))
    all_four = slopes([0.25] * 4, x, masks, learner)
    assert np.argsort(all_four)[:2].tolist() == [1, 2]
    assert np.argmin(slopes([0, 0.5, 0.5, 0], x, masks, learner)) == 2
    assert OneShot(groups=4).find(masks, client, learner) == 1
    assert Binary(groups=4).find(masks, client, learner) == 2


def test_entropy_looks_at_no_label():
    masks, client, learner = golden()
    other = dataclasses.replace(client.train, y=np.array([2, 2]))
    assert np.array_equal(
        learner.entropy_gradient(masks, other), learner.entropy_gradient(masks, client.train)
    )


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 5, 8, 10])
def test_each_rule_spends_as_many_passes_as_it_says(groups, monkeypatch):
    masks, client, learner = golden()
    made = []
    for name in ("tally", "entropy_gradient"):
        real = getattr(Learner, name)
        monkeypatch.setattr(Learner, name, lambda *of, real=real: made.append(1) or real(*of))
    for grouping, expected in (
        (LowestLoss(groups=groups), groups),
        (OneShot(groups=groups), 1),
        (Binary(groups=groups), math.ceil(math.log2(groups))),
    ):
        made.clear()
        fresh = dataclasses.replace(learner, meter=Meter())
        assert 0 <= grouping.find((masks * 3)[:groups], client, fresh) < groups
        assert fresh.meter.grouping_passes == len(made) == expected


def test_binary_ends_where_all_masks_are_alike_and_takes_the_lowest():
    masks, client, learner = golden()
    assert Binary(groups=7).find([masks[2]] * 7, client, learner) == 0
    assert OneShot(groups=7).find([masks[2]] * 7, client, learner) == 0
    assert LowestLoss(groups=7).find([masks[2]] * 7, client, learner) == 0


def test_lowest_loss_takes_the_mask_that_fits_the_labels():
    masks, client, learner = golden()
    losses = [learner.loss(learner.weights_of(mask), client.train) for mask in masks]
    assert lowest_loss(masks, client, learner) == (int(np.argmin(losses)), min(losses))


@pytest.mark.parametrize("grouping", [LowestLoss(groups=4), OneShot(groups=4), Binary(groups=4)])
def test_examples_that_are_no_numbers_put_a_client_somewhere_without_failing(grouping):
    masks, client, learner = golden()
    broken = dataclasses.replace(client.train, x=np.full((2, 4), np.nan, dtype=np.float32))
    assert grouping.find(masks, dataclasses.replace(client, train=broken), learner) == 0


@pytest.mark.parametrize("kind", [LowestLoss, OneShot, Binary])
def test_more_groups_than_clients_is_a_mistake(kind):
    for groups in (4, 0):
        with pytest.raises(ConfigError, match="at least 1 and at most 3 clients"):
            kind(groups=groups).begin(MODEL, Population(dict.fromkeys(range(3))), 0)


@pytest.mark.parametrize("groups", [2, 4])  # with two groups, Binary and OneShot are the same
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("rank_clustering", {}),
        ("lowest_loss", {"clustered": 4}),
        ("lowest_loss", {"forced": 4}),
        ("binary", {"clustered": 4}),
        ("one_shot", {"clustered": 4}),
    ],
)
def test_the_styles_of_a_toy_problem_are_found(name, start, groups):
    """Clients of different groups see the classes in different styles."""
    experiment = styled({"name": name, "groups": groups} | start, groups)
    assert run_experiment(experiment).summary["inference"]["matched"] == 100.0


def styled(grouping, groups, rounds=12):
    return toy_with(
        rounds=rounds,
        data={"clients": 4 * groups, "groups": groups, "examples": 60, "styles": True},
        model={"name": "mlp", "hidden": [48]},
        algorithm={"clients_per_round": 3 * groups, "grouping": grouping},
    )


def test_clustered_rounds_are_those_of_rank_clustering_and_send_no_masks():
    clustered = {"name": "lowest_loss", "groups": 2, "clustered": 3}
    by_server = run_experiment(styled({"name": "rank_clustering", "groups": 2}, 2, rounds=3))
    run = run_experiment(styled(clustered, 2, rounds=3))
    for name in ("global_ranking", "groups"):
        assert same(getattr(run.state, name), getattr(by_server.state, name))
    bytes_of = [one.summary["bytes"] for one in (run, by_server)]
    assert bytes_of[0]["down_total"] == bytes_of[1]["down_total"]
    assert bytes_of[0]["up_total"] == bytes_of[1]["up_total"]


def test_clients_choose_once_the_clustered_rounds_are_over():
    algorithm = E2FL(clients_per_round=6, grouping=LowestLoss(groups=2, clustered=2))
    problem = Problem(algorithm, Toy(clients=8, groups=2, styles=True))
    federation = problem.federation()
    server = problem.server(federation, 4)
    masks, groups = [], []
    for _ in range(5):  # the preparation is round 0
        request = server.ask()
        replies = federation.train(request)
        masks.append({len(message.masks) for message in request.inbox.values()})
        groups.append({group for reply in replies.answers.values() for group in reply.groups})
        server.take(replies)
    assert masks == [{0}, {0}, {0}, {2}, {2}]
    assert groups[:3] == [{NO_GROUP}] * 3
    assert groups[3] | groups[4] <= {0, 1}


@pytest.mark.parametrize(("kind", "sent"), [(E2FL, "masks"), (GroupAvg, "models")])
def test_clients_choose_once_a_forced_start_is_over(kind, sent):
    grouping = LowestLoss(groups=3, forced=2)
    problem = Problem(kind(clients_per_round=8, grouping=grouping), Toy(clients=8, groups=2))
    federation = problem.federation()
    server = problem.server(federation, 3)
    drawn = dict(server.state.membership.assignments)
    assert sorted(Counter(drawn.values()).values()) == [2, 3, 3]
    states, compared = [], []
    for _ in range(3):
        request = server.ask()
        compared.append({len(getattr(message, sent)) for message in request.inbox.values()})
        server.take(federation.train(request))
        states.append(server.state)
    assert compared == [{0}, {0}, {3}]
    assert [state.membership.assignments == drawn for state in states] == [True, True, False]
    with pytest.raises(ConfigError, match="choose one"):
        LowestLoss(clustered=1, forced=1)


@pytest.mark.parametrize("kind", [RankClustering, partial(LowestLoss, clustered=2)])
def test_a_client_that_missed_the_clustering_counts_from_its_second_ballot(kind):
    """Neither its ranking nor its table counts while it only joins a group."""
    algorithm = E2FL(clients_per_round=8, reading="weights", grouping=kind(groups=2))
    problem = Problem(algorithm)  # the odd clients are of another group than the even ones
    federation = problem.federation()

    def rounds(absent):
        server = problem.server(federation, 2)
        states = []
        for number in range(3):
            replies = federation.train(server.ask())
            away = absent.get(number, ())
            answers = {c: reply for c, reply in replies.answers.items() if c not in away}
            server.take(dataclasses.replace(replies, answers=answers))
            states.append(server.state)
        return states

    late, away = rounds({0: [5]}), rounds({0: [5], 1: [5]})
    assert 5 not in late[0].membership.assignments
    groups = late[1].membership.assignments
    assert groups[5] == groups[1] != groups[0]
    for name in ("global_ranking", "groups", "table"):
        assert same(getattr(late[1], name), getattr(away[1], name))
        assert not same(getattr(late[2], name), getattr(away[2], name))
