"""Intervals of means and tests of equal means, with Student's t."""

import math

import numpy as np

from e2fl.metrics.arrays import Numbers

# scipy.special is imported where it is used: it takes longer to load than an audit of a small table takes to run.


def t_quantile(freedom: Numbers) -> Numbers:
    """Return the two-sided 95 % quantile of Student's t; NaN without a degree of freedom."""
    from scipy.special import stdtrit

    return np.where(freedom >= 1, stdtrit(np.maximum(freedom, 1.0), 0.975), np.nan)


def two_sided(statistic: float, freedom: float | None = None) -> float:
    """Return the two-sided p-value of a normal statistic, or of Student's t with so many degrees of freedom."""
    from scipy.special import stdtr

    if math.isnan(statistic):
        return math.nan
    if freedom is None:
        return math.erfc(abs(statistic) / math.sqrt(2))
    return 2 * float(stdtr(freedom, -abs(statistic)))


def mean_interval(values: Numbers) -> tuple[float, float]:
    """Return the 95 % interval of a mean; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    half = float(t_quantile(np.array([len(values) - 1.0]))[0]) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    average = float(np.mean(values))
    return average - half, average + half


def mean_test(values: Numbers) -> float:
    """Return the p-value of the t-test that a mean is 0."""
    average, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return _p_value(average, error, len(values) - 1)


def welch(one: Numbers, other: Numbers) -> float:
    """Return the p-value of Welch's t-test of two means; NaN for fewer than two values on a side."""
    if len(one) < 2 or len(other) < 2:
        return math.nan
    error, freedom = _welch(one, other)
    return _p_value(float(np.mean(one)) - float(np.mean(other)), error, freedom)


def welch_half(one: Numbers, other: Numbers) -> float:
    """Return half the width of Welch's 95 % interval of a difference of means; 0 where values do not vary."""
    error, freedom = _welch(one, other)
    if error <= 1e-15 * max(float(np.abs(one).max()), float(np.abs(other).max())):
        return 0.0  # rounding
    return float(t_quantile(np.array([max(1.0, freedom)]))[0]) * error


def _welch(one: Numbers, other: Numbers) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom."""
    first, second = (float(np.var(values, ddof=1)) / len(values) for values in (one, other))
    if first + second == 0:
        return 0.0, 1.0
    freedom = (first + second) ** 2 / (first**2 / (len(one) - 1) + second**2 / (len(other) - 1))
    return math.sqrt(first + second), freedom


def _p_value(difference: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return two_sided(difference / error, freedom)
