"""For existing Flower pipelines: any e2fl algorithm as a strategy, and fairness metrics for others.

Clients of the strategy run `client.client_app` of the same experiment.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from e2fl import metrics
from e2fl.config.experiment import Experiment
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.runs.progress import Progress
from e2fl.runs.records import numbers_of
from e2fl.runs.store import Run


class AlgorithmStrategy(Strategy):
    """An experiment as a strategy: `start` runs it like `server_app`, but stores nothing.

    `run` is the finished run, with the algorithm's state.
    """

    def __init__(self, experiment: Experiment, config: RunConfig | None = None):
        self.experiment = experiment
        self.config = replace(config or RunConfig(), out="", resume=False)
        self.run: Run  # set by `start`

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Wait for clients, run the experiment, and return its models and every evaluation.

        Models are weights, or masks as booleans, named MODEL/LAYER. Metrics are the numbers of
        history.jsonl, such as `clients-mean`. evaluate_fn: called with the final models.
        num_rounds, timeout: by default those of the experiment and of the run configuration.
        initial_arrays, train_config, evaluate_config: not used; the experiment has them.
        """
        experiment, config = self.experiment, self.config
        if num_rounds is not None:
            experiment = replace(experiment, rounds=num_rounds)
        if timeout is not None:
            config = replace(config, round_seconds=timeout, evaluate_seconds=timeout)
        self.summary()
        self.run = run_on(grid, experiment, config, watcher=Progress())
        models = experiment.build_algorithm().describe(self.run.state).models()
        result = Result(
            ArrayRecord(
                {
                    f"{name}/{layer}": Array(np.asarray(value))
                    for name, model in models.items()
                    for layer, value in model.items()
                }
            )
        )
        for line in self.run.history:
            counts = {"asked": line["asked"], "answered": line["answered"]}
            faults = {f"faults-{kind}": count for kind, count in line["faults"].items()}
            measured: dict[str, Any] = {
                path.replace("/", "-"): value for path, value in numbers_of(line).items()
            }
            result.train_metrics_clientapp[line["round"]] = MetricRecord(counts | faults)
            result.evaluate_metrics_clientapp[line["round"]] = MetricRecord(measured)
        last = self.run.summary["rounds"]
        central = None if evaluate_fn is None else evaluate_fn(last, result.arrays)
        result.evaluate_metrics_serverapp |= {} if central is None else {last: central}
        return result

    def summary(self) -> None:
        """Log what will run."""
        log(INFO, "\t└──> e2fl: %s, seed %s", self.experiment.label, self.experiment.seed)

    def _not_by_steps(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("an e2fl algorithm runs as a whole: call start()")

    configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = _not_by_steps


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
