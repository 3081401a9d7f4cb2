"""Fairness and utility of any scores or predictions: functions on arrays, NumPy and SciPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group
weighs the same, however many clients it has. Variances are population variances, in squared
percentage points. A NaN among the values makes every measure of them NaN. `MEASURES` is the
registry of everything that a run records; docs/metrics.md explains each measure.
"""

from e2fl.metrics.accuracy import (
    METRICS,
    adjusted_rand,
    best10,
    changed,
    fairness,
    gini,
    group_means,
    jain,
    matched,
    mean,
    purity,
    spread,
    tenth,
    variance,
    worst10,
)
from e2fl.metrics.intervals import Interval
from e2fl.metrics.measures import COLUMNS, DEFINITIONS, MEASURES, Measure, measure_of, own_measure
from e2fl.metrics.protected import eod_std, f1, protected, signed_differences

__all__ = ["COLUMNS", "DEFINITIONS", "MEASURES", "METRICS", "Interval", "Measure", "measure_of"]
__all__ += ["best10", "fairness", "gini", "jain", "mean", "spread", "tenth", "variance", "worst10"]
__all__ += ["adjusted_rand", "changed", "group_means", "matched", "own_measure", "purity"]
__all__ += ["eod_std", "f1", "protected", "signed_differences"]
