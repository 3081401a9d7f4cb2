"""One preparation for several runs.

Rank clustering starts with a ballot of every client. Methods that differ only in what they do with
these ballots (Table 5: the layer and the start of k-means; Table 6: the number of groups) need the
same training of all clients, which takes nearly all the time of such a run. It is done once, and
the rankings are kept in a temporary folder.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId, Examples, FederatedData
from e2fl.learning import Learner
from e2fl.learning.autograd import Loss, Losses
from e2fl.rankings.order import Ranking
from e2fl.runs.runner import Federate, simulate
from e2fl.runs.watcher import Watcher
from e2fl.simulation.simulator import SimulatedFederation


class Preparations:
    """The rankings of the latest preparation that runs share; those before are dropped."""

    def __init__(self, out: Path, planned: Sequence[Experiment]):
        keys = [key_of(experiment) for experiment in planned]
        self.shared = {key for key in keys if key is not None and keys.count(key) > 1}
        self.out = out
        self.key = ""  # what decided the rankings that are kept
        self.work: dict[ClientId, tuple[int, Losses]] = {}  # examples and losses of each client

    def federate(self, experiment: Experiment, data: FederatedData, watcher: Watcher) -> Federate:
        """Return what makes the federation of a run, which may share its preparation."""
        key = key_of(experiment)
        if key is None or key not in self.shared:
            return simulate(experiment, data, watcher)
        if self.key != key:
            self.out.mkdir(parents=True, exist_ok=True)
            self.folder = tempfile.TemporaryDirectory(dir=self.out, prefix="rankings-")
            self.key, self.work = key, {}

        def kind(data: Any, algorithm: Any, learner: Learner, **settings: Any) -> Any:
            sharing = _SharingLearner(**vars(learner), sharing=self)
            return SimulatedFederation(data, algorithm, sharing, **settings)

        return simulate(experiment, data, watcher, kind)


@dataclass(frozen=True)
class _SharingLearner(Learner):
    """A learner that takes the first rankings from an earlier run, and keeps those it trains."""

    sharing: Preparations | None = None

    def fit_scores(
        self, ranking: Ranking, examples: Examples, *, part: int = 0, loss: Loss | None = None
    ) -> Ranking:
        if self.sharing is None or self.round_number > 0:
            return super().fit_scores(ranking, examples, part=part, loss=loss)
        path, work = Path(self.sharing.folder.name) / f"{self.client_id}.npz", self.sharing.work
        if self.client_id in work:
            seen, losses = work[self.client_id]
            self.meter.examples += seen
            self.meter.losses.total += losses.total
            self.meter.losses.examples += losses.examples
            with np.load(path, allow_pickle=False) as kept:
                return dict(kept)
        trained = super().fit_scores(ranking, examples, part=part, loss=loss)
        np.savez(path, allow_pickle=False, **trained)
        work[self.client_id] = self.meter.examples, replace(self.meter.losses)
        return trained


def key_of(experiment: Experiment) -> str | None:
    """Return what decides the first rankings: all but the grouping; None if none are clustered."""
    grouping = experiment.algorithm.get("grouping")
    if not isinstance(grouping, dict) or grouping.get("name") != "rank_clustering":
        return None
    config = completed(experiment).to_dict()
    algorithm = {k: v for k, v in config["algorithm"].items() if k not in ("grouping", "label")}
    decisive = [config[name] for name in ("seed", "data", "model", "learner")]
    return json.dumps([*decisive, algorithm], sort_keys=True)
