"""How unevenly values are distributed over clients or groups.

`gap`, `std`, `p10`, `p90` and `cvar` are in the unit of the values. The other measures are free of
units; they compare shares of a total and need values of 0 or more.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from e2fl.metrics.accuracy import Labels, means_of, numbers


def gap(values: ArrayLike) -> float:
    """Return the highest value minus the lowest."""
    return float(np.ptp(numbers(values)))


def std(values: ArrayLike) -> float:
    """Return the population standard deviation; 0 means that all values are equal."""
    return float(np.std(numbers(values)))


def p10(values: ArrayLike) -> float:
    """Return the 10th percentile, with linear interpolation."""
    return float(np.percentile(numbers(values), 10))


def p90(values: ArrayLike) -> float:
    """Return the 90th percentile, with linear interpolation."""
    return float(np.percentile(numbers(values), 90))


def cvar(values: ArrayLike, alpha: float = 0.1) -> float:
    """Return the conditional value at risk: the mean of the lowest share `alpha` of the values.

    The last value counts in part where `alpha` times the number of values is not a whole number.
    """
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be above 0 and at most 1, not {alpha}")
    ordered = np.sort(numbers(values, "cvar"))
    amount = alpha * len(ordered)
    weights = np.clip(amount - np.arange(len(ordered)), 0.0, 1.0)
    return float(ordered @ weights / amount)


def gini(values: ArrayLike) -> float:
    """Return the Gini coefficient: 0 where all values are equal, near 1 where one has all."""
    ordered = np.sort(numbers(values, "gini", 0))
    count, total = len(ordered), ordered.sum()
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(ranks @ ordered / (count * total)) if total else 0.0


def jain(values: ArrayLike) -> float:
    """Return Jain's index: 1 where all values are equal, 1 / count where one has everything."""
    array = numbers(values, "jain", 0)
    squares = float(array @ array)
    return float(array.sum() ** 2 / (len(array) * squares)) if squares else 1.0


def entropy(values: ArrayLike) -> float:
    """Return the entropy of the shares divided by its maximum: 1 where all values are equal."""
    array = numbers(values, "entropy", 0)
    if len(array) == 1 or not array.any():
        return 1.0
    shares = array[array > 0] / array.sum()
    return float(-(shares @ np.log(shares)) / math.log(len(array)))


def atkinson(values: ArrayLike, epsilon: float = 1.0) -> float:
    """Return Atkinson's index: the share that equal values of the same welfare would save.

    epsilon: the aversion to inequality, above 0; larger values weigh the low end more.
    """
    if epsilon <= 0:
        raise ValueError(f"epsilon must be above 0, not {epsilon}")
    array = numbers(values, "atkinson", 0)
    average = array.mean()
    if average == 0:
        return 0.0
    if epsilon >= 1 and array.min() == 0:
        return 1.0
    if epsilon == 1:
        return float(1 - math.exp(np.log(array).mean()) / average)
    power = 1 - epsilon
    return float(1 - ((array / average) ** power).mean() ** (1 / power))


def theil(values: ArrayLike) -> float:
    """Return Theil's index, the generalised entropy with alpha 1; 0 where all are equal."""
    return generalized_entropy(values, alpha=1.0)


def generalized_entropy(values: ArrayLike, alpha: float = 2.0) -> float:
    """Return the generalised entropy index: alpha 0 is the mean log deviation, 1 is Theil's index.

    With alpha 0 or below, a value of 0 makes the index infinite.
    """
    array = numbers(values, "generalized_entropy", 0)
    if not array.any():
        return 0.0
    relative = array / array.mean()
    if alpha <= 0 and relative.min() == 0:
        return math.inf
    if alpha == 0:
        return float(-np.log(relative).mean())
    if alpha == 1:
        positive = relative[relative > 0]
        return float((positive * np.log(positive)).sum() / len(relative))
    return float((relative**alpha - 1).mean() / (alpha * (alpha - 1)))


def between_group_entropy(
    values: ArrayLike, sensitive_features: Labels, alpha: float = 2.0
) -> float:
    """Return the generalised entropy between groups: that of the means of their groups."""
    array = numbers(values, "between_group_entropy", 0)
    _, positions, means = means_of(array, sensitive_features)
    return generalized_entropy(means[positions], alpha)


def objective_std(
    loss: ArrayLike, sensitive_features: Labels | None = None
) -> dict[str, float | None]:
    """Return the standard deviation of the objective over clients and over groups.

    These are Definition 1 (equality) and Definition 2 (equity) of the E2FL paper. loss: [rows], the
    mean loss of each client, or of a client's part in one group. A group's objective is the mean
    over its rows; every group weighs the same.
    """
    rows = numbers(loss, "loss")
    groups = None if sensitive_features is None else std(means_of(rows, sensitive_features)[2])
    return {"clients": std(rows), "group": groups}
