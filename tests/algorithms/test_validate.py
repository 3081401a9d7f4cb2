"""Mistakes in the user's own classes end in an error that names the method."""

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
from e2fl.testing import check_algorithm
from e2fl.testing.contract import Problem


def derived(base, **methods):
    """A class named Mine with these methods in place of those of its base."""
    return make_dataclass("Mine", [], bases=(base,), namespace=methods, frozen=True)


def layers(change):
    return lambda params: {name: change(value) for name, value in params.items()}


half, arrays = layers(lambda value: value[:1]), layers(lambda value: value.numpy())
lost = layers(lambda value: value * np.nan)


def first_layer(params):
    return dict([next(iter(params.items()))])


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


# Methods in place of those of FedAvg, and words of the error.
ALGORITHMS = {
    "train a dict": ({"train": lambda *_: {}}, "train returned a dict; .* an Update"),
    "train text": ({"train": trains(dict, "many")}, "train .* examples is 'many'; .* an int"),
    "train a list": ({"train": trains(list)}, "train .* params is a list; .* a dictionary"),
    "train a layer": ({"train": trains(first_layer)}, "train .* params has no layer 'fc2.weight'"),
    "train a shape": ({"train": trains(half)}, "train .* shape .1, 16. for layer 'fc1.weight'"),
    "train arrays": ({"train": trains(arrays)}, "train .* holds a ndarray .* a Tensor"),
    "train(message)": ({"train": lambda self, message: None}, r"train\(message\) .* 3 arguments"),
    "memory": ({"train": remembers([1])}, r"client\.memory\['kept'\] is list"),
    "start": ({"start": lambda *_: {}}, "start returned a dict; .* a Shared"),
    "rounds": ({"rounds": lambda *_: 2.5}, "rounds returned a float; .* an int"),
    "ask": ({"ask": lambda *_: [0, 1]}, "ask returned a list; .* an Ask"),
    "ask a number": ({"ask": lambda *_: Ask(5)}, "ask asks an int"),
    "ask unknown": ({"ask": lambda *_: Ask([0, 99])}, "ask asks client 99"),
    "ask twice": ({"ask": lambda *_: Ask([0, 0])}, "ask asks client 0 twice"),
    "ask a layer": ({"ask": lambda *_: Ask([0], layers=("x",))}, "ask asks for layer 'x'; .* fc1"),
    "broadcast": ({"broadcast": lambda *_: None}, "broadcast returned nothing; .* a Mapping"),
    "broadcast none": ({"broadcast": lambda *_: {}}, "broadcast returned nothing for client"),
    "serve": ({"serve": lambda _, state, ids: dict.fromkeys(ids, state)}, "serve .* a Weights"),
    "aggregate": ({"aggregate": lambda *_: {}}, "aggregate returned a dict; .* a Shared"),
    "aggregate a shape": ({"aggregate": becomes(half)}, "whose params has shape"),
    "aggregate NaN": ({"aggregate": becomes(lost)}, "not finite: .* learner.learning_rate"),
    "check": ({"check": lambda *_: False}, "check returned a bool; .* an Update"),
    "model_for": ({"model_for": shows(lambda m: m.params)}, "model_for returned a dict; it must"),
    "no views": ({"model_for": shows(lambda _: ClientModels({}))}, "model_for returned no views"),
    "a view": ({"model_for": views(lambda m: m.params)}, "model_for .* a dict as view 'own'"),
    "a message": ({"model_for": views(ClientModel)}, "'own' whose model is a Weights"),
    "a shape": ({"model_for": views(lambda m: ClientModel(half(m.params)))}, "model has shape"),
    "a group": (
        {"model_for": shows(lambda m: ClientModels({"own": ClientModel(m.params)}, "G1"))},
        "model_for returned the group 'G1'",
    ),
    "views differ": (
        {"model_for": lambda _, m, c, learner: ClientModels({f"{c.id}": ClientModel(m.params)})},
        "model_for returned the views 1 for client 1, and 0 for client 0",
    ),
    "describe": ({"describe": lambda *_: {}}, "describe returned a dict; .* a Description"),
    "metadata": (
        {"describe": lambda *_: Description(metadata={"x": torch.ones(2)})},
        "describe returned metadata that JSON cannot hold",
    ),
    "models": ({"describe": lambda *_: Description(models={})}, "describe .* cannot be called"),
    "a model": (
        {"describe": lambda *_: Description(models=lambda: {"a": 1})},
        "describe returned a model 'a' that is an int",
    ),
}


def refuses(problem, words):
    """A run and the contract end in an error with these words."""
    with pytest.raises(ConfigError, match=words):
        list(problem.run(problem.federation(), 2))
    with pytest.raises(ConfigError, match=words):
        check_algorithm(problem.algorithm, participation=problem.participation)


@pytest.mark.parametrize("mistake", ALGORITHMS)
def test_a_mistake_in_an_algorithm_is_named_by_a_run_and_by_the_contract(mistake):
    methods, words = ALGORITHMS[mistake]
    refuses(Problem(derived(FedAvg, **methods)(clients_per_round=4)), words)


def test_a_mistake_for_unseen_clients_is_named_by_the_contract():
    with pytest.raises(AssertionError, match=r"Mine\.for_unseen returned nothing"):
        check_algorithm(derived(FedAvg, for_unseen=lambda *_: None)())


def found(value):
    return (InferredGroups, {"find": lambda *_: value})


def clustered(change):
    return (RankClustering, {"cluster": lambda *of: change(RankClustering.cluster(*of))})


def chosen(**methods):
    return (InferredGroups, {"find": lambda *_: 0} | methods)


GROUPINGS = {
    "find a name": (found("G1"), "find returned 'G1'; .* 0 to 1"),
    "find a float": (found(1.0), "find returned 1.0"),
    "find too many": (found(7), "find returned 7"),
    "find negative": (found(-1), "find returned -1"),
    "cluster a dict": (clustered(lambda c: c.assignments), "cluster returned a dict"),
    "cluster one": (
        clustered(lambda c: Clustering({0: 0}, c.centroids, {})),
        "cluster returned no group for client 1",
    ),
    "cluster beyond": (
        clustered(lambda c: replace(c, assignments=dict.fromkeys(c.assignments, 9))),
        "cluster returned group 9, which has no centroid, for client 0",
    ),
    "begin": (chosen(begin=lambda *_: None), "begin returned nothing; .* a Membership"),
    "examples": (chosen(examples_by_group=lambda *_: None), "examples_by_group .* a list"),
    "numbers": (chosen(examples_by_group=lambda *_: [0]), "examples_by_group .* pairs"),
    "own_group": (chosen(own_group=lambda *_: "x"), r"own_group returned 'x'; .* \(0, 1\)"),
    "sort": (chosen(sort=lambda *_: None), "sort returned nothing; .* a tuple"),
}


@pytest.mark.parametrize("mistake", GROUPINGS)
def test_a_mistake_in_a_grouping_is_named_by_a_run_and_by_the_contract(mistake):
    (base, methods), words = GROUPINGS[mistake]
    refuses(Problem(E2FL(clients_per_round=4, grouping=derived(base, **methods)(groups=2))), words)


POLICIES = {
    "unknown": ([0, 999], "choose returned client 999, which is not among"),
    "repeated": ([1, 0, 1], "choose returned client 1 twice"),
    "nothing": (None, "choose returned nothing; it must return a Collection"),
    "a name": (["a"], "choose returned client 'a'"),
}


@pytest.mark.parametrize("mistake", POLICIES)
def test_a_mistake_in_a_participation_policy_is_named_by_a_run_and_by_the_contract(mistake):
    value, words = POLICIES[mistake]
    policy = derived(Uniform, choose=lambda *_: value)()
    refuses(Problem(FedAvg(clients_per_round=4), participation=policy), words)
    refuses(Problem(derived(FedAvg, participation=policy)(clients_per_round=4)), words)


def test_clients_that_are_away_cannot_be_chosen():
    policy = derived(Uniform, choose=lambda *_: list(range(8)))(away=0.5)
    with pytest.raises(ConfigError, match="not among those present"):
        Problem(FedAvg(clients_per_round=4), participation=policy).server(
            Problem(FedAvg()).federation(), 1
        ).ask()


@dataclass(frozen=True)
class Choosy(Uniform):
    def choose(self, count, present, groups, rng):
        return np.asarray(present)[:count]


def test_numbers_and_arrays_of_numpy_are_accepted():
    found_one = derived(InferredGroups, find=lambda *_: np.int64(1))()
    for algorithm in (E2FL(grouping=found_one), FedAvg()):
        problem = Problem(replace(algorithm, clients_per_round=4), participation=Choosy())
        assert all(done.answered for done in problem.run(problem.federation(), 1))


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
