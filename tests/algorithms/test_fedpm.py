"""FedPM: probabilities from masks, masks from probabilities, and what they cost."""

import numpy as np
import pytest
import torch

from e2fl.algorithms.fedpm import FedPM, Subnetwork, draw, entropy
from e2fl.data.federated import Population
from e2fl.models import Model
from e2fl.networks import mlp
from e2fl.runs.runner import run_experiment

MODEL = Model(mlp((2,), 2, hidden=(1,)))  # two edges in each of two layers
POPULATION = Population(dict.fromkeys(range(4), 0), 1)


def mask(*edges):
    kept = np.array(edges, dtype=bool)
    return Subnetwork({"fc1.weight": kept, "fc2.weight": kept})


def test_the_probability_is_the_mean_of_a_beta_distribution_worked_by_hand():
    algorithm = FedPM(clients_per_round=2)
    state = algorithm.start(MODEL, POPULATION, 0)
    assert state.probabilities["fc1.weight"].tolist() == [[0.5, 0.5]]
    once = algorithm.aggregate(state, {0: mask(1, 0), 1: mask(1, 1)})
    assert once.probabilities["fc1.weight"].tolist() == [
        [0.75, 0.5]
    ]  # (1 + 2) / (2 + 2), (1 + 1) / (2 + 2)
    twice = algorithm.aggregate(once, {2: mask(0, 0), 3: mask(1, 0)})
    assert twice.probabilities["fc1.weight"].tolist() == [
        [pytest.approx(4 / 6), pytest.approx(2 / 6)]
    ]


def test_counting_starts_again_after_every_client_could_be_asked_once():
    algorithm = FedPM(clients_per_round=2)  # of four clients: two rounds
    state = algorithm.start(MODEL, POPULATION, 0)
    for masks in (2, 4, 2, 4):
        state = algorithm.aggregate(state, {0: mask(1, 0), 1: mask(1, 0)})
        assert state.masks == masks
    assert FedPM(clients_per_round=2, reset=1).start(MODEL, POPULATION, 0).reset == 1


def test_a_mask_is_drawn_from_its_probabilities():
    probabilities = {"a": torch.tensor([0.0, 1.0] + [0.3] * 100_000)}
    drawn = draw(probabilities, np.random.default_rng(0))["a"]
    assert drawn[:2].tolist() == [False, True]
    assert drawn[2:].mean() == pytest.approx(0.3, abs=0.01)
    bits = entropy(torch.tensor([0.0, 0.5, 1.0, 0.25], dtype=torch.float64))
    assert bits.tolist() == pytest.approx([0, 1, 0, 0.811278], abs=1e-6)


def test_a_mask_takes_a_bit_and_its_entropy_is_less(toy):
    bits = run_experiment(toy.variant("fedpm")).summary["bits"]
    assert 1 < bits["up_per_edge"] < 2  # 57 bytes of mask and 32 of header
    assert 0.2 < bits["entropy_up_per_edge"] < 1
    assert 32 < bits["down_per_edge"] < 33
