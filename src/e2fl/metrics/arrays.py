"""Checks that every metric applies to its arguments."""

import math
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


def finite(values: ArrayLike, name: str) -> Numbers:
    """Return the values as a float array, or raise `ValueError` where one is not finite."""
    array = numbers(values)
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} is not a number in row {row}")
    return array


def nonnegative(values: ArrayLike, name: str) -> Numbers:
    """Return the values, or raise `ValueError` where one is negative: shares are 0 or more."""
    array = finite(values, name)
    if array.min() < 0:
        raise ValueError(
            f"{name} needs values of 0 or more, but row {int(np.argmin(array))} is negative"
        )
    return array


def labels(values: Labels, what: str) -> NDArray[Any]:
    """Return one label per row, or raise `ValueError` if one is missing: NaN would be a group."""
    plain = isinstance(values, np.ndarray) and values.dtype.kind in "iubU"
    for row, value in enumerate(() if plain else values):
        if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
            raise ValueError(f"row {row} has no {what}")
    return np.asarray(values)


def codes(values: Labels, what: str) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct labels in order, and for each row the position of its label there."""
    names, places = np.unique(labels(values, what), return_inverse=True)
    return names.tolist(), places.astype(np.int64)


def means_of(values: Numbers, groups: Labels) -> tuple[list[Any], NDArray[np.int64], Numbers]:
    """Return the groups in order, the group of each row, and the mean of each group."""
    names, places = codes(groups, "group")
    if len(places) != len(values):
        raise ValueError(f"{len(values)} values for {len(places)} groups")
    return names, places, np.bincount(places, weights=values) / np.bincount(places)


def binary(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Return 0/1 values as booleans, or raise `ValueError`."""
    array = np.asarray(values).reshape(-1)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only")
    return array.astype(np.bool_)


def rate(part: float, whole: float) -> float:
    """Return part / whole; NaN where the whole is 0."""
    return part / whole if whole else math.nan
