"""A rate belongs to what is trained: one for weights, one for scores."""

from dataclasses import replace

import numpy as np
import pytest

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.fedavg import FedAvg
from e2fl.config.experiment import load

# The rates of the paper and of our studies: of weights, of scores, and what differs.
SHIPPED = {
    "demo": (0.01, 0.1, {"fedpm": 0.3}),
    "table1": (0.01, 0.1, {}),
    "inference": (0.01, 0.1, {}),
    "mnist_writers": (0.01, 0.1, {}),
    "table5": (0.01, 0.1, {}),
    "three_nodes": (0.01, 0.1, {}),
    "rotated_mnist": (0.1, 0.1, {}),
    "femnist": (0.05, 0.05, {"local": 0.01, "ranked_weights": 0.02, "fedavg_tuned": 0.02}),
    "table6": (0.05, 0.05, {}),
    "adult": (0.01, 2.0, {"fedavg_rate2": 2.0}),
    "acs_income": (0.1, 1.0, {}),
}


class OwnFedAvg(FedAvg):
    """FedAvg, written by a user."""


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_method_trains_at_the_rate_of_what_it_trains(name):
    weights, scores, others = SHIPPED[name]
    experiment = load(name)
    for variant in sorted({*ALGORITHMS, *experiment.variants, f"{__name__}:OwnFedAvg"}):
        method = experiment.variant(variant)
        ranks = method.build.algorithm().trains_scores
        settings = method.build.settings()
        found = settings.score_rate if ranks else settings.learning_rate
        assert found == others.get(variant, scores if ranks else weights), variant


def test_weights_and_scores_have_their_own_rate(toy):
    toy = replace(toy, learner={"learning_rate": 0.25, "score_rate": 0.5, "round_decay": 0.5})
    data = toy.build.data()
    learner = replace(toy.build.learner(toy.build.model(data)), round_number=3)
    examples = data.client(data.population.ids[0]).train
    for scores, rate in ((False, 0.0625), (True, 0.125)):
        rates = [batch.learning_rate for batch in learner.batches(examples, scores=scores)]
        assert np.unique(rates).tolist() == [rate]
    assert learner.rate == 0.0625
