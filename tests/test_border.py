"""Mistakes in the user's own classes end in an error that names the method and says what it must return."""

from dataclasses import dataclass, make_dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from e2fl.algorithms import ClientModel, ClientModels, Description
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fedavg import FedAvg, Shared, Update
from e2fl.errors import ConfigError, WireError
from e2fl.grouping import InferredGroups
from e2fl.grouping.rank_clustering import Clustering, RankClustering
from e2fl.models import Model
from e2fl.networks import mlp
from e2fl.participation import Ask, Uniform
from e2fl.runs.runner import run_experiment
from e2fl.testing import check_algorithm
from e2fl.testing.contract import Problem


def derived(base, **methods):
    """A class named Mine with these methods in place of those of its base."""
    return make_dataclass("Mine", [], bases=(base,), namespace=methods, frozen=True)


def layers(change):
    return lambda params: {name: change(value) for name, value in params.items()}


half, transposed = layers(lambda value: value[:1]), layers(lambda value: value.T)
arrays, lost = layers(lambda value: value.numpy()), layers(lambda value: value * np.nan)


def trains(change, examples=3):
    return lambda self, message, client, learner: Update(change(message.params), examples)


def becomes(change):
    return lambda self, state, replies: Shared(change(state.params))


def shows(change):
    return lambda self, message, client, learner: change(message)


def views(change):
    return shows(lambda message: ClientModels({"own": change(message)}))


def remembers(value):
    def train(self, message, client, learner):
        client.memory["kept"] = value
        return FedAvg.train(self, message, client, learner)

    return train


ALGORITHMS = {
    "train a dict": (
        {"train": lambda *_: {}},
        r"Mine\.train returned a dict; it must return an Update",
    ),
    "train nothing": (
        {"train": lambda *_: None},
        r"Mine\.train returned nothing; it must return an Update",
    ),
    "train text": (
        {"train": trains(dict, "many")},
        r"Mine\.train .* whose examples is 'many'; it must be an int",
    ),
    "train a float": (
        {"train": trains(dict, 3.5)},
        r"Mine\.train .* whose examples is 3\.5; it must be an int",
    ),
    "train a list": (
        {"train": trains(list)},
        r"Mine\.train .* whose params is a list; it must be a dictionary",
    ),
    "train one layer": (
        {"train": trains(lambda p: dict([next(iter(p.items()))]))},
        r"Mine\.train .* whose params has no layer 'fc2\.weight'",
    ),
    "train a shape": (
        {"train": trains(half)},
        r"Mine\.train .* shape \(1, 16\) for layer 'fc1\.weight'; it must be",
    ),
    "train transposed": (
        {"train": trains(transposed)},
        r"Mine\.train .* shape \(16, 24\) .* it must be \(24, 16\)",
    ),
    "train arrays": (
        {"train": trains(arrays)},
        r"Mine\.train .* holds a ndarray .* it must be a Tensor",
    ),
    "train(message)": (
        {"train": lambda self, message: None},
        r"Mine\.train\(message\) must take 3 arguments",
    ),
    "memory": ({"train": remembers([1])}, r"client\.memory\['kept'\] is list; it must be a model"),
    "start": ({"start": lambda *_: {}}, r"Mine\.start returned a dict; it must return a Shared"),
    "rounds": ({"rounds": lambda *_: 2.5}, r"Mine\.rounds returned a float; it must return an int"),
    "ask": ({"ask": lambda *_: [0, 1]}, r"Mine\.ask returned a list; it must return an Ask"),
    "ask a number": (
        {"ask": lambda *_: Ask(5)},
        r"Mine\.ask asks an int; Ask\.clients must be a sequence",
    ),
    "ask unknown": (
        {"ask": lambda *_: Ask([0, 99])},
        r"Mine\.ask asks client 99, which is not in the population",
    ),
    "ask twice": ({"ask": lambda *_: Ask([0, 0])}, r"Mine\.ask asks client 0 twice"),
    "ask a layer": (
        {"ask": lambda *_: Ask([0], layers=("x",))},
        r"Mine\.ask asks for layer 'x'; the model has fc1",
    ),
    "broadcast": (
        {"broadcast": lambda *_: None},
        r"Mine\.broadcast returned nothing; it must return a mapping",
    ),
    "broadcast none": (
        {"broadcast": lambda *_: {}},
        r"Mine\.broadcast returned nothing for client",
    ),
    "serve": (
        {"serve": lambda self, state, clients: dict.fromkeys(clients, state)},
        r"Mine\.serve returned a Shared for a client; it must be a Weights",
    ),
    "aggregate": (
        {"aggregate": lambda *_: {}},
        r"Mine\.aggregate returned a dict; it must return a Shared",
    ),
    "aggregate a shape": (
        {"aggregate": becomes(half)},
        r"has shape .* see the state that start or aggregate",
    ),
    "aggregate arrays": ({"aggregate": becomes(arrays)}, r"whose params holds a ndarray"),
    "aggregate nothing": (
        {"aggregate": becomes(lambda p: {})},
        r"whose params has no layer 'fc1\.weight'",
    ),
    "aggregate NaN": (
        {"aggregate": becomes(lost)},
        r"weights that are not finite: .* lower learner\.learning_rate",
    ),
    "check": (
        {"check": lambda *_: False},
        r"Mine\.check returned a bool; it must return an Update",
    ),
    "model_for": (
        {"model_for": shows(lambda m: m.params)},
        r"Mine\.model_for returned a dict; it must",
    ),
    "no views": (
        {"model_for": shows(lambda m: ClientModels({}))},
        r"Mine\.model_for returned no views",
    ),
    "a view": (
        {"model_for": views(lambda m: m.params)},
        r"Mine\.model_for returned a dict as view 'own'",
    ),
    "a message": (
        {"model_for": views(ClientModel)},
        r"Mine\.model_for .* 'own' whose model is a Weights",
    ),
    "a shape": (
        {"model_for": views(lambda m: ClientModel(half(m.params)))},
        r"'own' whose model has shape \(1, 16\)",
    ),
    "a group": (
        {"model_for": shows(lambda m: ClientModels({"own": ClientModel(m.params)}, "G1"))},
        r"Mine\.model_for returned the group 'G1'; a group is a number",
    ),
    "views differ": (
        {
            "model_for": lambda _, m, client, learner: ClientModels(
                {f"own{client.id}": ClientModel(m.params)}
            )
        },
        r"Mine\.model_for returned the views own1 for client 1, and own0 for client 0",
    ),
    "describe": (
        {"describe": lambda *_: {}},
        r"Mine\.describe returned a dict; it must return a Description",
    ),
    "metadata": (
        {"describe": lambda *_: Description(metadata={"x": torch.ones(2)})},
        r"Mine\.describe returned metadata that JSON cannot hold: a Tensor",
    ),
    "models": (
        {"describe": lambda *_: Description(models={})},
        r"Mine\.describe returned models that cannot",
    ),
    "a model": (
        {"describe": lambda *_: Description(models=lambda: {"a": 1})},
        r"a model 'a' that is an int",
    ),
}


@pytest.mark.parametrize("mistake", ALGORITHMS)
def test_a_mistake_in_an_algorithm_is_named_by_a_run_and_by_the_contract(mistake):
    methods, words = ALGORITHMS[mistake]
    problem = Problem(derived(FedAvg, **methods)(clients_per_round=4))
    with pytest.raises(ConfigError, match=words):
        list(problem.run(problem.federation(), 2))
    with pytest.raises(ConfigError, match=words):
        check_algorithm(problem.algorithm)


def test_a_mistake_for_unseen_clients_is_named_by_the_contract():
    with pytest.raises(
        AssertionError, match=r"Mine\.for_unseen returned nothing; it must return a ClientModels"
    ):
        check_algorithm(derived(FedAvg, for_unseen=lambda *_: None)())


def found(value):
    return (InferredGroups, {"find": lambda *_: value})


def clustered(change):
    return (RankClustering, {"cluster": lambda *of: change(RankClustering.cluster(*of))})


def chosen(**methods):
    return (InferredGroups, {"find": lambda *_: 0} | methods)


GROUPINGS = {
    "find nothing": (
        found(None),
        r"Mine\.find returned None; it must return an index into masks, 0 to 1",
    ),
    "find a name": (found("G1"), r"Mine\.find returned 'G1'"),
    "find a float": (found(1.0), r"Mine\.find returned 1\.0"),
    "find a pair": (found((1, 0.5)), r"Mine\.find returned \(1, 0\.5\)"),
    "find too many": (found(7), r"Mine\.find returned 7"),
    "find negative": (found(-1), r"Mine\.find returned -1"),
    "cluster a dict": (
        clustered(lambda c: c.assignments),
        r"Mine\.cluster returned a dict; it must return",
    ),
    "cluster one": (
        clustered(lambda c: Clustering({0: 0}, c.centroids, {})),
        r"Mine\.cluster returned no group for client 1",
    ),
    "cluster beyond": (
        clustered(lambda c: replace(c, assignments=dict.fromkeys(c.assignments, 9))),
        r"Mine\.cluster returned group 9, which has no centroid, for client 0",
    ),
    "begin": (
        chosen(begin=lambda *_: None),
        r"Mine\.begin returned nothing; it must return a Membership",
    ),
    "examples_by_group": (
        chosen(examples_by_group=lambda *_: None),
        r"Mine\.examples_by_group returned nothing; it must return a list",
    ),
    "examples_by_group of numbers": (
        chosen(examples_by_group=lambda *_: [0]),
        r"Mine\.examples_by_group returned 0; it must return pairs",
    ),
    "own_group": (
        chosen(own_group=lambda *_: "x"),
        r"Mine\.own_group returned 'x'; it must return one of \(0, 1\)",
    ),
    "sort": (chosen(sort=lambda *_: None), r"Mine\.sort returned nothing; it must return a tuple"),
}


@pytest.mark.parametrize("mistake", GROUPINGS)
def test_a_mistake_in_a_grouping_is_named_by_a_run_and_by_the_contract(mistake):
    (base, methods), words = GROUPINGS[mistake]
    algorithm = E2FL(clients_per_round=4, grouping=derived(base, **methods)(groups=2))
    problem = Problem(algorithm)
    with pytest.raises(ConfigError, match=words):
        list(problem.run(problem.federation(), 2))
    with pytest.raises(ConfigError, match=words):
        check_algorithm(algorithm)


def test_a_group_found_as_a_number_of_numpy_is_accepted():
    problem = Problem(
        E2FL(clients_per_round=4, grouping=derived(InferredGroups, find=lambda *_: np.int64(1))())
    )
    assert all(r.answered for r in problem.run(problem.federation(), 2))


POLICIES = {
    "unknown": (
        [0, 999],
        r"Mine\.choose returned client 999, which is not among the clients that are present",
    ),
    "repeated": ([1, 0, 1], r"Mine\.choose returned client 1 twice"),
    "nothing": (None, r"Mine\.choose returned nothing; it must return a list of clients"),
    "a number": (3, r"Mine\.choose returned an int"),
    "a name": (["a"], r"Mine\.choose returned client 'a'"),
}


@pytest.mark.parametrize("mistake", POLICIES)
def test_a_mistake_in_a_participation_policy_is_named_by_a_run_and_by_the_contract(mistake):
    value, words = POLICIES[mistake]
    policy = derived(Uniform, choose=lambda *_: value)()
    problem = Problem(FedAvg(clients_per_round=4), participation=policy)
    with pytest.raises(ConfigError, match=words):
        list(problem.run(problem.federation(), 1))
    with pytest.raises(ConfigError, match=words):
        check_algorithm(FedAvg(clients_per_round=4), participation=policy)
    named = derived(FedAvg, participation=policy)
    with pytest.raises(ConfigError, match=words):
        check_algorithm(named(clients_per_round=4))


def test_clients_that_are_away_cannot_be_chosen():
    policy = derived(Uniform, choose=lambda *_: list(range(8)))(away=0.5)
    with pytest.raises(ConfigError, match="which is not among the clients that are present"):
        Problem(FedAvg(clients_per_round=4), participation=policy).server(
            Problem(FedAvg()).federation(), 1
        ).ask()


@dataclass(frozen=True)
class Choosy(Uniform):
    def choose(self, count, present, groups, rng):
        return np.asarray(present)[:count]  # numbers of numpy


def test_a_policy_may_return_an_array(toy):
    assert run_experiment(replace(toy, participation={"name": "tests.test_border:Choosy"})).history


def test_a_message_that_cannot_be_sent_says_why():
    """Flower's nodes encode replies without the checks of the simulator."""
    spec = Model(mlp((16,), 3, hidden=(24,))).spec
    with pytest.raises(WireError, match=r"Update\.params has no layer 'fc1\.weight'"):
        Update({}, 3).to_bytes(spec)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (nn.Linear(5, 3), r"does not accept inputs of shape \(16,\)"),
        (nn.Linear(16, 2), "has 2 outputs, but the data has 3 classes"),
        (nn.Unflatten(1, (4, 4)), "must return logits"),
        (nn.LSTM(16, 3), "must return logits .* not tuple"),
    ],
)
def test_a_network_of_the_wrong_size_is_refused_with_the_sizes(network, words):
    parts = [nn.Linear(16, 16), network] if not isinstance(network, nn.LSTM) else [network]
    with pytest.raises(ConfigError, match=words):
        Model(nn.Sequential(*parts)).require_fit((16,), 3, "mine")
