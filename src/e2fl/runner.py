"""Runs an experiment: the loop, with everything it leaves on disk, and going on where it stopped."""

import time
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from e2fl import checkpoint
from e2fl.checkpoint import Checkpoint
from e2fl.data import ClientId, FederatedData, GroupId
from e2fl.errors import ConfigError, RunError
from e2fl.experiment import UNSAVED, Experiment, from_dict
from e2fl.history import Folder, Json, byte_summary, client_rows, found_groups, line, measure_unseen
from e2fl.memory import Memories
from e2fl.rounds import Round, Traffic, run
from e2fl.simulator import Simulated
from e2fl.version import __version__, environment


class Watcher:
    """Is told how a run goes; does nothing with it. The command line has one that draws a bar."""

    def prepare(self, what: str) -> None:
        """A part of the program is about to be compiled, or loaded if that was done before."""

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        """A run starts, or goes on, with round `first`."""

    def advance(self, number: int, measured: Json | None) -> None:
        """A round is over; `measured` is its line of history, if it was evaluated."""

    def warn(self, message: str) -> None:
        """Something is wrong, but the run goes on."""

    def end(self) -> None:
        """The run is over, finished or not."""


class Watchers(Watcher):
    """Several at once."""

    def __init__(self, *watchers: Watcher):
        self.watchers = watchers

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        for watcher in self.watchers:
            watcher.begin(experiment, first, last)

    def advance(self, number: int, measured: Json | None) -> None:
        for watcher in self.watchers:
            watcher.advance(number, measured)

    def warn(self, message: str) -> None:
        for watcher in self.watchers:
            watcher.warn(message)

    def end(self) -> None:
        for watcher in self.watchers:
            watcher.end()


@dataclass(frozen=True)
class Run:
    """What came out of a run."""

    experiment: Experiment
    summary: Json
    history: list[Json]
    clients: list[Json]
    state: Any = field(repr=False, default=None)
    folder: Path | None = None


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run to the end. With `out`, everything is kept there, and an interrupted run can go on from there."""
    watcher = watcher or Watcher()
    folder = None if out is None else Folder(out)
    if folder is not None and folder.exists():
        if not resume:
            raise RunError(f"{out} is there already; choose another with --out, or go on with it with --resume")
        _refuse_another(folder, experiment)
        if folder.finished():
            return read_run(folder.path)
    return _Runner(experiment, folder, data or experiment.build_data(), watcher).run(resume)


class _Runner:
    def __init__(self, experiment: Experiment, folder: Folder | None, data: FederatedData, watcher: Watcher):
        self.experiment, self.folder, self.data, self.watcher = experiment, folder, data, watcher
        self.algorithm = experiment.build_algorithm()
        if self.algorithm.clients_per_round > len(data.roll):
            raise ConfigError(
                f"algorithm.clients_per_round is {self.algorithm.clients_per_round}, "
                f"but there are only {len(data.roll)} clients"
            )
        self.model = experiment.build_model(data)
        self.federation = Simulated(
            data,
            self.algorithm,
            experiment.build_learner(self.model),
            threads=experiment.threads,
            memories=Memories(folder.memories if folder else None),
        )
        self.history: list[Json] = []
        self.found: dict[ClientId, GroupId] = {}  # the groups of the last evaluation
        self.seconds = 0.0
        self.traffic = Traffic()  # as it was after the last whole round

    def run(self, resume: bool) -> Run:
        experiment = self.experiment
        if self.folder is not None and not resume:
            self.folder.write("config.toml", experiment.to_toml())
            self.folder.write_history([])
        self.federation.learner.engine.warm(self.watcher.prepare)
        latest = resumed = self._restore() if resume else None
        started, saved = time.monotonic() - self.seconds, time.monotonic()
        first = self.algorithm.first_round if latest is None else latest.number + 1
        self.watcher.begin(experiment, first, self.algorithm.rounds(experiment.rounds, self.data.roll))
        try:
            for latest in run(
                self.algorithm,
                self.federation,
                self.model,
                rounds=experiment.rounds,
                seed=experiment.seed,
                evaluate_every=experiment.evaluate_every,
                resume=resumed,
            ):
                self.seconds = time.monotonic() - started
                self.traffic = replace(self.federation.traffic)
                self._record(latest)
                if time.monotonic() - saved >= experiment.checkpoint_seconds:
                    self._save(latest)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if latest is not None:
                self._save(latest)
            raise
        finally:
            self.watcher.end()
        if latest is None or latest.scores is None:
            raise RunError("there was no round to run")
        return self._finish(latest)

    def _record(self, done: Round) -> None:
        measured = None
        for client, fault in done.faults.items():
            self.watcher.warn(f"round {done.number}: client {self.data.client_name(client)} left out, {fault}")
        if done.scores is not None:
            notes = self.algorithm.notes(done.state)
            measured = line(done, self.data, self.traffic, notes, self.found)
            self.found = found_groups(done.scores)
            self.history.append(measured)
            if self.folder is not None:
                self.folder.append_history(measured)
        self.watcher.advance(done.number, measured)

    def _save(self, done: Round) -> None:
        if self.folder is None:
            return
        extra = {
            "ever_answered": done.ever_answered,
            "traffic": asdict(self.traffic),
            "seconds": self.seconds,
            "found": list(self.found.items()),
        }
        checkpoint.save(self.folder.checkpoints, Checkpoint(done.number, done.state, extra))
        # The checkpoint before this one stays usable, and so must what clients kept then.
        self.federation.memories.forget(before=checkpoint.oldest(self.folder.checkpoints))

    def _restore(self) -> Round | None:
        """Go back to the last good checkpoint: history and memories are cut to it."""
        assert self.folder is not None
        fresh = self.algorithm.start(self.model, self.data.roll, self.experiment.seed)
        found = checkpoint.latest(self.folder.checkpoints, type(fresh), warn=self.watcher.warn)
        number = self.algorithm.first_round - 1 if found is None else found.number
        self.history = [kept for kept in self.folder.read_history() if kept["round"] <= number]
        self.folder.write("config.toml", self.experiment.to_toml())
        self.folder.write_history(self.history)
        self.federation.memories.rewind(number)
        if found is None:
            return None
        self.traffic = Traffic(**found.extra["traffic"])
        self.federation.traffic = replace(self.traffic)
        self.seconds = float(found.extra["seconds"])
        self.found = {int(client): int(group) for client, group in found.extra["found"]}
        return Round(found.number, found.state, bool(found.extra["ever_answered"]))

    def _finish(self, done: Round) -> Run:
        assert done.scores is not None
        last = self.history[-1]
        measured: Json = {
            key: last[key]
            for key in ("user", "group", "groups", "views", "protected", "inference", "notes")
            if key in last
        }
        summary: Json = {
            "algorithm": self.experiment.algorithm["name"],
            "label": self.experiment.label,
            "dataset": self.data.name,
            "rounds": done.number,
            "seed": self.experiment.seed,
            "version": __version__,
            **measured,
            "bytes": byte_summary(self.traffic),
            "seconds": {"total": self.seconds, "per_round": self.seconds / max(1, done.number)},
            "data": self.data.about(),
            "inputs": {"shape": list(self.data.shape), "classes": self.data.classes},
            "environment": environment(),
        }
        newcomers = self._newcomers(done)
        if newcomers is not None:
            summary["unseen"] = newcomers
        rows = client_rows(done.scores, self.data)
        if self.folder is not None:
            self.folder.write_clients(rows)
            self.folder.write_models(self.algorithm.models(done.state))
            self.folder.write_json("summary.json", summary)
            self._save(done)
        return Run(self.experiment, summary, self.history, rows, done.state, self.folder.path if self.folder else None)

    def _newcomers(self, done: Round) -> Json | None:
        """How clients fare that were kept out of training; None where there are none."""
        unseen = self.data.unseen()
        if not unseen:
            return None
        assert done.scores is not None
        return measure_unseen(self.federation.welcome(done.state, unseen), unseen, done.scores, self.data)


def read_run(path: Path) -> Run:
    """A finished run, from what it left on disk."""
    folder = Folder(path)
    summary = folder.read_summary()
    experiment = from_dict(tomllib.loads((path / "config.toml").read_text(encoding="utf-8")))
    return Run(experiment, summary, folder.read_history(), folder.read_clients(), None, path)


def _refuse_another(folder: Folder, experiment: Experiment) -> None:
    """Going on is possible only with the same configuration."""
    path = folder.path / "config.toml"
    try:
        before = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{folder.path} is not the folder of a run: {path.name} cannot be read ({error})") from error
    now = tomllib.loads(experiment.to_toml())
    differing = sorted(
        name for name in before.keys() | now.keys() if name not in UNSAVED and before.get(name) != now.get(name)
    )
    if differing:
        raise RunError(
            f"{folder.path} was run with another configuration: {_differences(before, now, differing)}; "
            "use the same one, or choose another folder with --out"
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names)
