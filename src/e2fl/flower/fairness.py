"""Fairness metrics for any Flower strategy."""

import math
from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord, RecordDict

from e2fl import metrics


def fairness(
    accuracy: str = "accuracy", *, group: str = "group", scale: float = 100.0
) -> Callable[[list[RecordDict], str], MetricRecord]:
    """Return a function that aggregates the metric `accuracy` reported by every client.

    With FedAvg(evaluate_metrics_aggr_fn=fairness("accuracy")), for example, the strategy stays as
    it is, and its history shows how evenly clients are served, not only the average.

    group: the metric that holds a client's group, an integer; clients may omit it.
    scale: factor for reported accuracies; 100 turns fractions into percent.
    The result has `clients`, then mean, worst10, best10 and variance over clients as `clients-mean`
    and so on, then the same over the means of groups as `group-mean` and so on, and each group's
    mean as `group-NUMBER`. A client that does not report a finite number is counted in
    `unmeasured` only.
    """

    def aggregate(records: list[RecordDict], weighting: str) -> MetricRecord:
        values: list[float] = []
        grouped: list[tuple[float, int]] = []
        for record in records:
            reported = {k: v for part in record.metric_records.values() for k, v in part.items()}
            value, own = reported.get(accuracy), reported.get(group)
            if isinstance(value, int | float) and math.isfinite(value):
                values.append(scale * value)
                grouped += [(scale * value, own)] if isinstance(own, int) else []
        means = metrics.group_means(*zip(*grouped, strict=True)) if grouped else {}
        summary: dict[str, Any] = {"clients": len(values), "unmeasured": len(records) - len(values)}
        for level, numbers in (("clients", values), ("group", list(means.values()))):
            spread = metrics.spread(numbers) if numbers else {}
            summary |= {f"{level}-{name}": float(value) for name, value in spread.items()}
        return MetricRecord(summary | {f"group-{own}": mean for own, mean in means.items()})

    return aggregate
