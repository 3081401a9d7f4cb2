"""One preparation for several runs.

Rank clustering starts with a ballot of every client. Methods that differ only in what they do with
these ballots (Table 5: the layer and the start of k-means; Table 6: the number of groups) need the
same training of all clients, which takes nearly all the time of such a run. It is done once, and
the rankings are kept in a temporary file.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.data.federated import ClientId, Examples, FederatedData
from e2fl.learning import Learner
from e2fl.learning.autograd import Loss, Losses
from e2fl.models import ModelSpec
from e2fl.rankings.order import Ranking
from e2fl.rounds import Replies, Request
from e2fl.runs.runner import Federate, simulate
from e2fl.runs.watcher import Watcher
from e2fl.simulation.simulator import SimulatedFederation

ITEM = np.dtype(np.int32).itemsize


@dataclass(frozen=True)
class _Kept:
    """A trained ranking: where it is in the file, and the work it took."""

    start: int
    examples: int
    losses: Losses


class FirstRankings:
    """The rankings that clients have trained in one preparation, in a temporary file."""

    def __init__(self, folder: Path, tell: Callable[[str], None]):
        folder.mkdir(parents=True, exist_ok=True)
        # Deleted with this object.
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self.tell = tell
        self.kept: dict[ClientId, _Kept] = {}
        self.end = 0
        self.full = False
        self.lock = Lock()

    def add(self, client: ClientId, ranking: Ranking, examples: int, losses: Losses) -> None:
        """Keep a client's ranking; if it cannot be stored, the client is trained again."""
        raw = np.concatenate([ranks.ravel() for ranks in ranking.values()]).astype(
            np.int32, copy=False
        )
        with self.lock:
            if self.full:
                return
            try:
                self._write(raw.tobytes())
            except OSError as error:
                self._give_up(error)
            else:
                self.kept[client] = _Kept(self.end, examples, replace(losses))
                self.end += raw.nbytes

    def _write(self, raw: bytes) -> None:
        self.file.seek(self.end)
        if self.file.write(raw) < len(raw):
            raise OSError("no space left on the device")

    def _give_up(self, error: OSError) -> None:
        """Free the space: the run itself needs it."""
        self.tell(
            f"cannot keep the first rankings ({error}), so each method trains the clients again"
        )
        self.full = True
        self.kept.clear()
        self.file.truncate(0)

    def find(self, client: ClientId, spec: ModelSpec) -> tuple[Ranking, _Kept] | None:
        """Return the kept ranking of a client and the work it took; None if it was not kept."""
        with self.lock:
            kept = self.kept.get(client)
            if kept is None:
                return None
            found = {}
            try:
                self.file.seek(kept.start)
                for layer in spec.layers:
                    found[layer.name] = np.frombuffer(
                        self.file.read(ITEM * layer.edges), dtype=np.int32
                    )
            except OSError:
                return None
            return found, kept


@dataclass(frozen=True)
class _SharingLearner(Learner):
    """A learner that takes rankings from an earlier preparation, and keeps those it trains."""

    first: FirstRankings | None = None

    def fit_scores(
        self, ranking: Ranking, examples: Examples, *, part: int = 0, loss: Loss | None = None
    ) -> Ranking:
        assert self.first is not None
        known = self.first.find(self.client_id, self.model.spec)
        if known is not None:
            found, kept = known
            self.meter.examples += kept.examples
            self.meter.losses.total += kept.losses.total
            self.meter.losses.examples += kept.losses.examples
            return found
        trained = super().fit_scores(ranking, examples, part=part, loss=loss)
        self.first.add(self.client_id, trained, self.meter.examples, self.meter.losses)
        return trained


class _PreparedOnce(SimulatedFederation):
    """A federation whose clients train for a preparation only if no run before has done it."""

    def __init__(self, first: Callable[[], FirstRankings], *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.first = first

    def train(self, request: Request) -> Replies:
        if request.ask.kind != "prepare":
            return super().train(request)
        own = self.learner
        self.learner = _SharingLearner(**vars(own), first=self.first())
        try:
            return super().train(request)
        finally:
            self.learner = own


class Preparations:
    """The preparation that the latest runs have shared; the one before is dropped."""

    def __init__(self, folder: Path, planned: Sequence[Experiment], tell: Callable[[str], None]):
        self.folder, self.tell = folder, tell
        keys = [key_of(experiment) for experiment in planned]
        self.shared = {key for key in keys if key is not None and keys.count(key) > 1}
        self.latest: tuple[str, FirstRankings] | None = None

    def federate(self, experiment: Experiment, data: FederatedData, watcher: Watcher) -> Federate:
        """Return what makes the federation of a run, which may share its preparation."""
        key = key_of(experiment)
        if key is None or key not in self.shared:
            return simulate(experiment, data, watcher)

        # Not before it is needed: a run past its preparation must not drop what others share.
        first = partial(self._first_rankings, key)
        return simulate(experiment, data, watcher, partial(_PreparedOnce, first))

    def _first_rankings(self, key: str) -> FirstRankings:
        if self.latest is None or self.latest[0] != key:
            self.latest = None  # deletes its file before the next one grows
            self.latest = key, FirstRankings(self.folder, self.tell)
        return self.latest[1]


def key_of(experiment: Experiment) -> str | None:
    """Return what decides the first rankings: all but the grouping; None if none are clustered."""
    grouping = experiment.algorithm.get("grouping")
    if not isinstance(grouping, dict) or grouping.get("name") != "rank_clustering":
        return None
    config = completed(experiment).to_dict()
    config["algorithm"] = {
        k: v for k, v in config["algorithm"].items() if k not in ("grouping", "label")
    }
    return json.dumps(
        [config[name] for name in ("seed", "data", "model", "learner", "algorithm")], sort_keys=True
    )
