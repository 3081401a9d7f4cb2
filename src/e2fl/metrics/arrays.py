"""Checks that metrics apply to their arguments: what is missing or not finite is a `ValueError`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = Sequence[Any] | NDArray[Any]  # one label per row: a group, a client
Numbers = NDArray[np.float64]


def numbers(values: ArrayLike) -> Numbers:
    """Return the values as a flat float array that holds at least one value."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    if not len(array):
        raise ValueError("there is nothing to measure")
    return array


def finite(values: ArrayLike, name: str, low: float = -np.inf) -> Numbers:
    """Return the values as a float array: finite, and not below `low`."""
    array = numbers(values)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not a number in row {np.argmin(np.isfinite(array))}")
    if array.min() < low:
        raise ValueError(f"{name}: row {np.argmin(array)} is below {low:g}")
    return array


def labels(values: Labels, what: str) -> NDArray[Any]:
    """Return one label per row; None and NaN are not labels."""
    array = np.asarray(values)
    missing = np.array([value is None or value != value for value in values], dtype=bool)
    if missing.any():
        raise ValueError(f"row {np.argmax(missing)} has no {what}")
    return array


def codes(values: Labels, what: str) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct labels in order, and for each row the position of its label there."""
    names, positions = np.unique(labels(values, what), return_inverse=True)
    return names.tolist(), positions.astype(np.int64)


def means_of(values: Numbers, groups: Labels) -> tuple[list[Any], NDArray[np.int64], Numbers]:
    """Return the groups in order, the group of each row, and the mean of each group."""
    names, positions = codes(groups, "group")
    if len(positions) != len(values):
        raise ValueError(f"{len(values)} values for {len(positions)} groups")
    return names, positions, np.bincount(positions, weights=values) / np.bincount(positions)


def binary(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Return 0/1 values as booleans."""
    array = np.asarray(values).reshape(-1)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return array.astype(np.bool_)
