"""Hu et al., "Federated Learning Meets Multi-Objective Optimization", IEEE Transactions on Network
Science and Engineering 2022, Algorithm 1. Updates are scaled to norm 1; the step is the point of
least norm among their means with weights that differ from the even ones by at most `deviation`.
Departures: the server's rate is constant, not decayed; an update of norm 0 has no direction and is
left out. Weights and step were checked against the code published with PropFair, which names that
of FedMGDA+ as its source; there `deviation` is 1 by default, in FLGo 0.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from e2fl.algorithms.base import GlobalModel, Shared
from e2fl.algorithms.fedfv import dot, flat, mean, norm, step
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId
from e2fl.learning import Learner
from e2fl.wire import Weights


@dataclass(frozen=True)
class FedMGDA(GlobalModel[Shared, Weights]):
    """FedMGDA+: a step along which no client of the round gets worse, as far as there is one."""

    title = "FedMGDA+"

    deviation: Annotated[
        float,
        Doc("epsilon in the paper: of clients' weights from even ones; 1: weights are free"),
        Limits(least=0, most=1),
    ] = 0.1
    server_rate: Annotated[
        float, Doc("eta in the paper: the length of a step, in unit updates"), Limits(above=0)
    ] = 1.0

    def train(self, message: Weights, client: Client, learner: Learner) -> Weights:
        return Weights(learner.fit(message.params, client.train))

    def aggregate(self, state: Shared, replies: Mapping[ClientId, Weights]) -> Shared:
        start = flat(state.params)
        updates = [start - flat(reply.params) for reply in replies.values()]
        units = [update / size for update in updates if (size := norm(update)) > 0]
        if not units:
            return state
        products = np.array([[dot(first, second) for second in units] for first in units])
        weights = least_norm(products, self.deviation)
        moved = mean(units, weights.tolist())
        return Shared(step(state.params, self.server_rate * moved))


def least_norm(products: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Return weights, at most `deviation` from even ones, of the mean of vectors of least norm.

    products: of each vector with each.
    """
    from scipy.optimize import Bounds, LinearConstraint, minimize  # slow to import

    even = 1 / len(products)
    low, high = max(0.0, even - deviation), min(1.0, even + deviation)
    solution = minimize(  # type: ignore[call-overload]
        lambda weights: (float(weights @ products @ weights) / 2, products @ weights),
        np.ones(len(products)) * even,
        jac=True,
        method="SLSQP",
        bounds=Bounds(low, high),
        constraints=LinearConstraint(np.ones((1, len(products))), 1, 1),
        tol=1e-12,
    )
    weights: NDArray[np.float64] = np.clip(solution.x, low, high)
    return weights
