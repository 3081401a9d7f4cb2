"""Fairness metrics for any Flower strategy, as an aggregation function.

FedAvg(evaluate_metrics_aggr_fn=fairness("accuracy")), for example: the strategy stays as it is, and its history shows
how evenly clients are served, not only the average.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import MetricRecord, RecordDict

from e2fl import metrics

Aggregation = Callable[[list[RecordDict], str], MetricRecord]


def fairness(accuracy: str = "accuracy", *, group: str = "group", scale: float = 100.0) -> Aggregation:
    """Return a function that aggregates the metric `accuracy` reported by every client.

    group: the metric that holds a client's group, an integer; clients may omit it.
    scale: factor for reported accuracies; 100 turns fractions into percent.
    The result has `clients`, then mean, worst10, best10 and variance over clients as `user-mean` and so on, then the
    same over the means of groups as `group-mean` and so on, and each group's mean as `group-NUMBER`. A client that does
    not report a finite number is counted in `unmeasured` only.
    """

    def aggregate(records: list[RecordDict], weighting: str) -> MetricRecord:
        values: list[float] = []
        groups: list[int | None] = []
        for record in records:
            reported = {key: value for part in record.metric_records.values() for key, value in part.items()}
            value = reported.get(accuracy)
            if isinstance(value, int | float) and math.isfinite(value):
                values.append(scale * value)
                own = reported.get(group)
                groups.append(own if isinstance(own, int) else None)
        return summarise(values, groups, unmeasured=len(records) - len(values))

    return aggregate


def summarise(values: list[float], groups: Iterable[int | None], *, unmeasured: int = 0) -> MetricRecord:
    """Return the metrics of these accuracies, under the names that `fairness` documents."""
    found: dict[str, int | float] = {"clients": len(values), "unmeasured": unmeasured}
    if values:
        found |= _named("user", metrics.spread(values))
    grouped = [(value, group) for value, group in zip(values, groups, strict=True) if group is not None]
    if grouped:
        means = metrics.group_means([value for value, _ in grouped], [group for _, group in grouped])
        found |= _named("group", metrics.spread(list(means.values())))
        found |= {f"group-{group}": mean for group, mean in means.items()}
    return MetricRecord(dict(found))


def _named(what: str, values: Mapping[str, Any]) -> dict[str, float]:
    return {f"{what}-{name}": float(value) for name, value in values.items()}
