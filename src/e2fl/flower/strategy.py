"""For existing Flower pipelines: any e2fl algorithm as a strategy, and fairness metrics for others.

`server.server_app` does more than the strategy: it stores checkpoints and resumes a run that was
killed. Clients of the strategy run `client.client_app` of the same experiment.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
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
from e2fl.evaluation import total
from e2fl.flower.federation import FlowerFederation
from e2fl.flower.run_config import RunConfig
from e2fl.rounds import Round, run


class AlgorithmStrategy(Strategy):
    """The server side of the experiment's algorithm, to be run with `start`.

    The strategy keeps the state; Flower only gets the models. A round of Flower is a round of the
    algorithm. If the algorithm starts with a preparation, that is Flower's first round. `state`,
    `done` and `warnings` describe the last round.
    """

    def __init__(self, experiment: Experiment, config: RunConfig | None = None):
        self.experiment, self.config = experiment, config or RunConfig()
        self.algorithm = experiment.build_algorithm()
        self.done: Round  # set by `start`
        self.warnings: list[str] = []  # besides faults: rejected nodes, and unused replies

    @property
    def state(self) -> Any:
        """The state of the algorithm after the last round."""
        return self.done.state

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
        """Wait for clients and run the experiment.

        num_rounds, timeout: by default those of the experiment and of the run configuration.
        initial_arrays, train_config, evaluate_config: not used; the experiment has them.
        """
        config = self.config
        if timeout is not None:
            config = replace(config, round_seconds=timeout, evaluate_seconds=timeout)
        data = self.experiment.build_data()
        model = self.experiment.build_model(data)
        federation = FlowerFederation(grid, self.experiment, config, data, self.algorithm, model)
        population = federation.population
        server = self.experiment.build_server(self.algorithm, model, population)
        if num_rounds is not None:
            server.last = server.done.number + num_rounds
        self.summary()
        result, rounds = Result(), server.last - server.done.number
        for number, self.done in enumerate(run(server, federation), start=1):
            log(INFO, "[ROUND %s/%s]", number, rounds)
            self.warnings = federation.warnings()
            result.train_metrics_clientapp[number] = self._train_metrics()
            if self.done.answered:
                result.arrays = self.models()
            if self.done.scores is not None:
                own = [next(iter(score.views.values())) for score in self.done.scores.values()]
                result.evaluate_metrics_clientapp[number] = summarise(
                    [total(tallies.values()).accuracy for tallies in own],
                    [population.declared[client] for client in self.done.scores],
                    unmeasured=len(population) - len(own),
                )
            central = evaluate_fn(number, result.arrays) if evaluate_fn is not None else None
            if central is not None:
                result.evaluate_metrics_serverapp[number] = central
        return result

    def summary(self) -> None:
        """Log what will run."""
        log(INFO, "\t└──> e2fl: %s, seed %s", self.algorithm, self.experiment.seed)

    def models(self) -> ArrayRecord:
        """Return the algorithm's models, named MODEL/LAYER: weights, or masks as booleans."""
        models = self.algorithm.describe(self.state).models()
        return ArrayRecord(
            {
                f"{name}/{layer}": Array(np.asarray(value))
                for name, model in models.items()
                for layer, value in model.items()
            }
        )

    def _train_metrics(self) -> MetricRecord:
        reasons = (*self.done.faults.values(), *self.warnings)
        kinds = Counter(f"faults-{reason.split(':', 1)[0]}" for reason in reasons)
        counts = {"asked": len(self.done.asked), "answered": len(self.done.answered)}
        return MetricRecord({**counts, **dict(sorted(kinds.items()))})

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
        groups: list[int | None] = []
        for record in records:
            reported = {k: v for part in record.metric_records.values() for k, v in part.items()}
            value, own = reported.get(accuracy), reported.get(group)
            if isinstance(value, int | float) and math.isfinite(value):
                values.append(scale * value)
                groups.append(own if isinstance(own, int) else None)
        return summarise(values, groups, unmeasured=len(records) - len(values))

    return aggregate


def summarise(
    values: Sequence[float], groups: Sequence[int | None], *, unmeasured: int = 0
) -> MetricRecord:
    """Return the metrics of these accuracies, under the names that `fairness` documents."""
    grouped = [pair for pair in zip(values, groups, strict=True) if pair[1] is not None]
    means = metrics.group_means(*zip(*grouped, strict=True)) if grouped else {}
    summary: dict[str, Any] = {"clients": len(values), "unmeasured": unmeasured}
    for level, numbers in (("clients", values), ("group", list(means.values()))):
        if numbers:
            spread = metrics.spread(numbers)
            summary |= {f"{level}-{name}": float(value) for name, value in spread.items()}
    return MetricRecord(summary | {f"group-{group}": mean for group, mean in means.items()})
