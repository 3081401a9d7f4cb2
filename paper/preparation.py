"""One preparation for several runs.

Rank clustering starts with a ballot of every client. Methods that differ only in what they do with
these ballots (Table 5: the layer and the start of k-means; Table 6: the number of groups) need the
same training of all clients, which takes nearly all the time of such a run. It is done once, and
the rankings are kept in a temporary folder.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId, Examples, FederatedData
from e2fl.learning import Learner
from e2fl.learning.autograd import Loss, Losses
from e2fl.rankings.order import Ranking
from e2fl.rounds import Replies, Request
from e2fl.runs.runner import Federate, simulate
from e2fl.runs.watcher import Watcher
from e2fl.simulation.simulator import SimulatedFederation


@dataclass(frozen=True)
class FirstRankings:
    """The rankings that clients have trained in one preparation, and the work each took."""

    key: str  # what decides them
    folder: tempfile.TemporaryDirectory[str]  # deleted with this object
    work: dict[ClientId, tuple[int, Losses]] = field(default_factory=dict)

    def path(self, client_id: ClientId) -> Path:
        """Return the file of a client's ranking."""
        return Path(self.folder.name) / f"{client_id}.npz"


@dataclass(frozen=True)
class _SharingLearner(Learner):
    """A learner that takes rankings from an earlier preparation, and keeps those it trains."""

    first: FirstRankings | None = None

    def fit_scores(
        self, ranking: Ranking, examples: Examples, *, part: int = 0, loss: Loss | None = None
    ) -> Ranking:
        assert self.first is not None
        path = self.first.path(self.client_id)
        if self.client_id in self.first.work:
            examples_seen, losses = self.first.work[self.client_id]
            self.meter.examples += examples_seen
            self.meter.losses.total += losses.total
            self.meter.losses.examples += losses.examples
            with np.load(path, allow_pickle=False) as kept:
                return dict(kept)
        trained = super().fit_scores(ranking, examples, part=part, loss=loss)
        np.savez(path, allow_pickle=False, **trained)
        self.first.work[self.client_id] = self.meter.examples, replace(self.meter.losses)
        return trained


class _PreparedOnce(SimulatedFederation):
    """A federation whose clients train for a preparation only if no run before has done it."""

    def __init__(self, sharing: "Preparations", key: str, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.sharing, self.key = sharing, key

    def train(self, request: Request) -> Replies:
        if request.ask.kind != "prepare":
            return super().train(request)
        own = self.learner
        self.learner = _SharingLearner(**vars(own), first=self.sharing.rankings(self.key))
        try:
            return super().train(request)
        finally:
            self.learner = own


class Preparations:
    """The preparation that the latest runs have shared; the one before is dropped."""

    def __init__(self, folder: Path, planned: Sequence[Experiment]):
        self.folder = folder
        keys = [key_of(experiment) for experiment in planned]
        self.shared = {key for key in keys if key is not None and keys.count(key) > 1}
        self.latest: FirstRankings | None = None

    def federate(self, experiment: Experiment, data: FederatedData, watcher: Watcher) -> Federate:
        """Return what makes the federation of a run, which may share its preparation."""
        key = key_of(experiment)
        if key is None or key not in self.shared:
            return simulate(experiment, data, watcher)

        def kind(*args: Any, **settings: Any) -> SimulatedFederation:
            return _PreparedOnce(self, key, *args, **settings)

        return simulate(experiment, data, watcher, kind)

    def rankings(self, key: str) -> FirstRankings:
        """Return the rankings of a preparation that begins now, or that a run before has made."""
        if self.latest is None or self.latest.key != key:
            self.latest = None  # deletes its files before the next ones are written
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(dir=self.folder, prefix="rankings-")
            self.latest = FirstRankings(key, folder)
        return self.latest


def key_of(experiment: Experiment) -> str | None:
    """Return what decides the first rankings: all but the grouping; None if none are clustered."""
    grouping = experiment.algorithm.get("grouping")
    if not isinstance(grouping, dict) or grouping.get("name") != "rank_clustering":
        return None
    config = completed(experiment).to_dict()
    algorithm = {k: v for k, v in config["algorithm"].items() if k not in ("grouping", "label")}
    decisive = [config[name] for name in ("seed", "data", "model", "learner")]
    return json.dumps([*decisive, algorithm], sort_keys=True)
