"""Hahn et al., "Pursuing Overall Welfare in Federated Learning through Sequential Decision Making",
ICML 2024, the form for many clients of which few take part. A client's response is a distribution
function of its loss relative to the round's mean loss, times the share C of clients that take part.
The decision loss -log(1 + <p, r>) is linearised around the mean response, absent clients are filled
in by the doubly robust estimator, and the shares p follow the regularised leader with entropy: a
softmax of summed gradients. What is the same for all clients cancels in it, so only deviations of
clients that took part are kept.

Checked against the authors' code, not the paper's text: the responses, the gradient, the step size
with the bound 2 + C, and that a round's losses decide its own shares. Departures from that code,
both towards what its comments name: the estimator keeps its first term, the mean response, for
clients that took part, and the normal distribution function rises. The authors choose among the six
functions for each data set; the default is ours. Clients are drawn uniformly.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModelWithLoss, ModelAndLoss, Shared, average
from e2fl.data.federated import ClientId, Population
from e2fl.models import Model

# Distribution functions of the loss relative to the mean loss, with mean or scale 1.
CDFS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "normal": lambda loss: ndtr(loss - 1),
    "logistic": lambda loss: expit(loss - 1),
    "gumbel": lambda loss: np.exp(-np.exp(1 - loss)),
    "weibull": lambda loss: -np.expm1(-(np.maximum(loss, 0) ** 2)),
    "exponential": lambda loss: -np.expm1(-np.maximum(loss, 0)),
    "frechet": lambda loss: np.exp(-1 / np.maximum(loss, 1e-300)),
}


@dataclass(frozen=True)
class AAggFFState(Shared):
    """One model for all clients, and what the shares of clients follow from."""

    population: int
    rounds: int = 0
    # Minus the sum of the gradients of each client that ever took part; 0 for all others.
    gains: dict[ClientId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AAggFF(GlobalModelWithLoss[AAggFFState]):
    """AAggFF: the server decides by online learning how much each client counts."""

    cdf: Annotated[
        Literal["normal", "logistic", "gumbel", "weibull", "exponential", "frechet"],
        Doc("the distribution function that makes bounded responses of losses"),
    ] = "normal"

    def start(self, model: Model, population: Population, seed: int) -> AAggFFState:
        return AAggFFState(model.initial_weights(seed), len(population))

    def aggregate(
        self, state: AAggFFState, replies: Mapping[ClientId, ModelAndLoss]
    ) -> AAggFFState:
        fraction = len(replies) / state.population
        responses = fraction * CDFS[self.cdf](relative([reply.loss for reply in replies.values()]))
        mean = responses.mean()
        deviations = (responses - mean) / (fraction * (1 + mean))
        gains = dict(state.gains)
        for client, deviation in zip(replies, deviations.tolist(), strict=True):
            gains[client] = gains.get(client, 0.0) + deviation
        rate = math.sqrt(math.log(state.population) / (state.rounds + 2)) / (2 + fraction)
        summed = np.array([gains[client] for client in replies])
        shares = np.exp(rate * (summed - summed.max()))  # the largest is 1: none overflows
        params = average([reply.params for reply in replies.values()], shares.tolist())
        return AAggFFState(params, state.population, state.rounds + 1, dict(sorted(gains.items())))


def relative(losses: list[float]) -> NDArray[np.float64]:
    """Return losses relative to their mean; 1 if all are 0."""
    scaled = np.array(losses) / (max(losses) or 1.0)  # so that no sum overflows
    ratios: NDArray[np.float64] = scaled / scaled.mean() if scaled.any() else np.ones(len(losses))
    return ratios
