"""Plain stand-in for the compiled training kernels."""

import numpy as np

from e2fl import compiled
from e2fl.ranking import Floats


class ScoreStep:
    """The scores of one layer under SGD with momentum, and the weights they select."""

    def __init__(self, scores: Floats, weights: Floats, dropped: int):
        self.scores, self.weights, self.dropped = scores, weights, dropped
        self.velocity: Floats | None = None
        self.masked = np.empty_like(weights)
        self._select()

    def advance(self, gradient: Floats, learning_rate: float, momentum: float, weight_decay: float) -> None:
        """One step; `gradient` is that of the masked weights."""
        g = gradient * self.weights + np.float32(weight_decay) * self.scores
        self.velocity = g if self.velocity is None else np.float32(momentum) * self.velocity + g
        self.scores -= np.float32(learning_rate) * self.velocity
        self._select()

    def _select(self) -> None:
        np.multiply(self.weights, compiled.top_mask(self.scores, self.dropped), out=self.masked)
