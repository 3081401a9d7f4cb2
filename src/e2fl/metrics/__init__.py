"""Fairness and utility of any scores or predictions: functions on arrays, NumPy and SciPy only.

Accuracies are in percent. Every client weighs the same, however many examples it has; every group
weighs the same, however many clients it has. Variances are population variances, in squared
percentage points. A NaN among the values makes every measure of them NaN. `MEASURES` is the
registry of everything that a run records; docs/metrics.md explains each measure.
"""

from e2fl.metrics.accuracy import (
    METRICS,
    accuracies,
    adjusted_rand,
    best10,
    changed,
    combined,
    fairness,
    group_means,
    matched,
    mean,
    purity,
    spread,
    tenth,
    variance,
    worst10,
)
from e2fl.metrics.inequality import (
    atkinson,
    between_group_entropy,
    cvar,
    entropy,
    gap,
    generalized_entropy,
    gini,
    jain,
    objective_std,
    p10,
    p90,
    std,
    theil,
)
from e2fl.metrics.intervals import Interval, bootstrap
from e2fl.metrics.measures import COLUMNS, DEFINITIONS, MEASURES, Measure, measure_of, own_measure
from e2fl.metrics.protected import (
    calibration_by_group,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    f1,
    predictive_parity_difference,
    protected,
    rates_by_group,
    signed_differences,
)

__all__ = ["COLUMNS", "DEFINITIONS", "MEASURES", "METRICS", "Interval", "Measure", "measure_of"]
__all__ += ["accuracies", "best10", "combined", "fairness", "group_means", "mean", "spread"]
__all__ += ["bootstrap", "own_measure", "tenth", "variance", "worst10"]
__all__ += ["adjusted_rand", "changed", "matched", "purity"]
__all__ += ["atkinson", "between_group_entropy", "cvar", "entropy", "gap", "generalized_entropy"]
__all__ += ["gini", "jain", "objective_std", "p10", "p90", "std", "theil"]
__all__ += ["calibration_by_group", "demographic_parity_difference", "equal_opportunity_difference"]
__all__ += ["equalized_odds_difference", "f1", "predictive_parity_difference", "protected"]
__all__ += ["rates_by_group", "signed_differences"]
