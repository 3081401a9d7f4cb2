"""Fairness and utility of any scores or predictions: functions on arrays, NumPy and SciPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group
weighs the same, however many clients it has. Variances are population variances, in squared
percentage points. A NaN among the values makes every measure of them NaN. `MEASURES` is the
registry of everything that a run records; docs/metrics.md explains each measure.
"""

from e2fl.metrics.accuracy import (
    adjusted_rand,
    changed,
    combined,
    fairness,
    group_means,
    matched,
    purity,
)
from e2fl.metrics.inequality import (
    METRICS,
    best10,
    gap,
    gini,
    jain,
    mean,
    p10,
    p90,
    spread,
    std,
    tenth,
    variance,
    worst10,
)
from e2fl.metrics.intervals import Interval
from e2fl.metrics.measures import COLUMNS, DEFINITIONS, MEASURES, Measure, measure_of, own_measure
from e2fl.metrics.protected import eod_std, f1, protected, signed_differences

__all__ = ["COLUMNS", "DEFINITIONS", "MEASURES", "METRICS", "Interval", "Measure", "measure_of"]
__all__ += ["combined", "fairness", "group_means", "spread", "tenth"]
__all__ += ["best10", "gap", "mean", "p10", "p90", "std", "variance", "worst10"]
__all__ += ["gini", "jain", "own_measure"]
__all__ += ["adjusted_rand", "changed", "matched", "purity"]
__all__ += ["eod_std", "f1", "protected", "signed_differences"]
