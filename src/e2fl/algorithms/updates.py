"""Updates of clients as flat vectors, for algorithms that compare their directions."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from e2fl.models import Params

Vector = NDArray[np.float64]
AnyVector = NDArray[np.float64] | NDArray[np.float32]


def flat(params: Params) -> Vector:
    """Return the weights of all layers as one vector."""
    layers = [value.numpy().reshape(-1) for value in params.values()]
    return np.concatenate(layers, dtype=np.float64)


def step(params: Params, update: Vector) -> Params:
    """Return the weights minus an update."""
    ends = np.cumsum([value.numel() for value in params.values()])
    parts = np.split(update, ends[:-1])
    return {
        name: (value.double() - torch.from_numpy(part).view(value.shape)).float()
        for (name, value), part in zip(params.items(), parts, strict=True)
    }


def dot(one: AnyVector, other: AnyVector) -> float:
    """Return the inner product, in an order of summation that no number of threads changes."""
    return float(np.multiply(one, other, dtype=np.float64).sum())


def norm(vector: Vector) -> float:
    """Return the Euclidean norm."""
    return float(np.sqrt(dot(vector, vector)))


def mean(vectors: Iterable[AnyVector]) -> Vector:
    """Return the plain mean of vectors."""
    return combined([(1.0, vector) for vector in vectors])


def combined(weighted: Sequence[tuple[float, AnyVector]]) -> Vector:
    """Return the weighted mean of vectors, given pairs of weight and vector."""
    total = sum(weight for weight, _ in weighted)
    average = np.zeros(len(weighted[0][1]))
    for weight, vector in weighted:
        average += weight / total * vector
    return average
