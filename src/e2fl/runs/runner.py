"""Runs an experiment: the loop, with everything it leaves on disk, and going on where it stopped."""

import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from e2fl.algorithms import AnyAlgorithm, Description
from e2fl.config.experiment import UNSAVED, Experiment, from_dict
from e2fl.data import Client, ClientId, FederatedData, GroupId
from e2fl.errors import ConfigError, RunError
from e2fl.models import Model
from e2fl.rounds import Federation, Round, Traffic, UnseenScores, run
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.folder import Folder, Json, astray, byte_summary, client_rows, line, measure_unseen
from e2fl.runs.group_recovery import found_groups, of_round
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation
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

    def prepare(self, what: str) -> None:
        for watcher in self.watchers:
            watcher.prepare(what)

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


class Runtime(Federation, Protocol):
    """A federation that can be stopped and gone on with."""

    traffic: Traffic

    def rewind(self, number: int) -> None:
        """Clients shall go on as they were after this round."""
        ...

    def forget(self, before: int) -> None:
        """The run will not be gone on with from any round before this one."""
        ...

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """How clients fare that never took part; what is wrong with one of them is no reason to raise."""
        ...

    def notices(self) -> list[str]:
        """What went wrong beside a round's training since this was last asked: a kind, a colon, the reason."""
        ...


Federate = Callable[[AnyAlgorithm, Model, Folder | None], Runtime]


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
    federate: Federate | None = None,
) -> Run:
    """Run to the end. With `out`, everything is kept there, and an interrupted run can go on from there.

    federate: makes the federation that the run is for; default: one simulated in this process.
    """
    watcher = watcher or Watcher()
    folder = None if out is None else Folder(out)
    if folder is not None and folder.exists():
        if not resume:
            raise RunError(f"{out} is there already; choose another with --out, or go on with it with --resume")
        _refuse_another(folder, experiment)
        if folder.finished():
            return read_run(folder.path)
    data = data or experiment.build_data()
    return _Runner(experiment, folder, data, watcher, federate or _simulate(experiment, data, watcher)).run(resume)


def _simulate(experiment: Experiment, data: FederatedData, watcher: Watcher) -> Federate:
    def federate(algorithm: AnyAlgorithm, model: Model, folder: Folder | None) -> Runtime:
        if "clients_per_round" in experiment.algorithm and algorithm.clients_per_round > len(data.population):
            raise ConfigError(
                f"algorithm.clients_per_round is {algorithm.clients_per_round}, "
                f"but there are only {len(data.population)} clients"
            )
        learner = experiment.build_learner(model)
        learner.engine.warm(watcher.prepare)
        return SimulatedFederation(
            data,
            algorithm,
            learner,
            threads=experiment.threads,
            memories=Memories(folder.memories if folder else None),
        )

    return federate


@dataclass(frozen=True)
class _Kept:
    """What a runner knows after a round, beside the state; a round that is interrupted leaves it as it was."""

    traffic: Traffic = field(default_factory=Traffic)
    found: Mapping[ClientId, GroupId] = field(default_factory=dict)  # the groups of the last evaluation
    faults: Counter[str] = field(default_factory=Counter)  # by kind, since the last line of history
    finding: tuple[Json, ...] = ()  # how groups were found, in each round since the last line of history


class _Runner:
    def __init__(
        self,
        experiment: Experiment,
        folder: Folder | None,
        data: FederatedData,
        watcher: Watcher,
        federate: Federate,
    ):
        self.experiment, self.folder, self.data, self.watcher = experiment, folder, data, watcher
        self.algorithm = experiment.build_algorithm()
        self.model = experiment.build_model(data)
        self.federation = federate(self.algorithm, self.model, folder)
        # A mistake in the configuration is found here, before anything is written.
        self.fresh = experiment.build_server(self.algorithm, self.model, self.federation.population).done
        self.history: list[Json] = []
        self.seconds = 0.0
        self.kept = _Kept()

    def run(self, resume: bool) -> Run:
        with self.folder.claimed() if self.folder is not None else nullcontext():
            return self._run(resume)

    def _run(self, resume: bool) -> Run:
        experiment = self.experiment
        if self.folder is not None and not resume:
            self.folder.write("config.toml", experiment.to_toml())
            self.folder.write_history([])
        latest = resumed = self._restore() if resume else None
        started, saved = time.monotonic() - self.seconds, time.monotonic()
        first = (latest or self.fresh).number + 1
        server = experiment.build_server(
            self.algorithm, self.model, self.federation.population, resume=resumed or self.fresh
        )
        last = server.last
        self.watcher.begin(experiment, first, last)
        for warning in self.algorithm.describe(self.fresh.state).warnings:
            self.watcher.warn(warning)
        try:
            for done in run(server, self.federation):
                self.seconds = time.monotonic() - started
                self.kept = self._record(done, latest)
                latest = done  # only now: whoever is interrupted before has this round to live again
                # Never after the last round: a run killed before its summary must have a round left to live again.
                if latest.number < last and time.monotonic() - saved >= experiment.checkpoint_seconds:
                    self._save(latest)
                    saved = time.monotonic()
        except (KeyboardInterrupt, RunError):
            if latest is not None and latest.number < last:
                self._save(latest)
            raise
        finally:
            self.watcher.end()
        if latest is None or latest is resumed:
            raise RunError("there was no round to run")
        if latest.scores is None:
            raise RunError(f"after round {latest.number}, the last, no client could say how it fares")
        return self._finish(latest)

    def _record(self, done: Round, before: Round | None) -> _Kept:
        """Write down what a round came to. before: the round before it, if this process knows of one."""
        measured = None
        kept = self._keep(done, before)
        notices = self.federation.notices()
        for client, fault in done.faults.items():
            self.watcher.warn(f"round {done.number}: client {self.data.client_name(client)} left out, {fault}")
        for notice in notices:
            self.watcher.warn(f"round {done.number}: {notice}")
        faults = kept.faults + Counter(fault.split(":", 1)[0] for fault in (*done.faults.values(), *notices))
        kept = replace(kept, faults=faults)
        if done.scores is not None:
            notes = self.algorithm.describe(done.state).metadata
            measured = line(done, self.data, kept.traffic, notes, faults, kept.found, kept.finding)
            kept = _Kept(kept.traffic, found_groups(done.scores))
            if not any(astray(past) for past in self.history):  # once is enough
                for warning in astray(measured):
                    self.watcher.warn(f"round {done.number}: {warning}")
            self.history.append(measured)
            if self.folder is not None:
                self.folder.append_history(measured)
        self.watcher.advance(done.number, measured)
        return kept

    def _keep(self, done: Round, before: Round | None) -> _Kept:
        """What is kept after this round, but for its faults."""
        traffic = replace(self.federation.traffic)
        found = self.algorithm.describe(done.state).assignments
        if found is None:
            return replace(self.kept, traffic=traffic)
        spent = Traffic(
            finding=traffic.finding - self.kept.traffic.finding, passes=traffic.passes - self.kept.traffic.passes
        )
        known = None if before is None else carried(self.algorithm.describe(before.state))
        finding = of_round(done, found, known or {}, self.data.population, spent)
        return replace(self.kept, traffic=traffic, finding=(*self.kept.finding, finding))

    def _save(self, done: Round) -> None:
        if self.folder is None:
            return
        extra = {
            "experiment": self.experiment.fingerprint(),
            "ever_answered": done.ever_answered,
            "traffic": asdict(self.kept.traffic),
            "seconds": self.seconds,
            "found": list(self.kept.found.items()),
            "faults": dict(self.kept.faults),
            "finding": list(self.kept.finding),
            "data": self._data_file,
        }
        checkpoint.save(self.folder.checkpoints, Checkpoint(done.number, done.state, extra))
        # The checkpoint before this one stays usable, and so must what clients kept then.
        self.federation.forget(before=checkpoint.oldest(self.folder.checkpoints))

    @cached_property
    def _data_file(self) -> object:
        """The digest of the file that a user's own data is in; None for data that cannot change."""
        return self.data.about().get("sha256")

    def _restore(self) -> Round | None:
        """Go back to the last good checkpoint: history and memories are cut to it."""
        assert self.folder is not None
        found = checkpoint.latest(
            self.folder.checkpoints,
            type(self.fresh.state),
            experiment=self.experiment.fingerprint(),
            warn=self.watcher.warn,
        )
        if found is not None and found.extra.get("data", self._data_file) != self._data_file:
            raise RunError(
                f"{self.folder.path} was begun with other data: the file has changed since; "
                "put back what it was, or begin anew in another folder with --out"
            )
        number = self.fresh.number if found is None else found.number
        self.history = [kept for kept in self.folder.read_history() if kept["round"] <= number]
        self.folder.write("config.toml", self.experiment.to_toml())
        self.folder.write_history(self.history)
        self.federation.rewind(number)
        if found is None:
            return None
        self.kept = _Kept(
            Traffic(**found.extra["traffic"]),
            {int(client): int(group) for client, group in found.extra["found"]},
            Counter(found.extra["faults"]),
            tuple(found.extra.get("finding", ())),
        )
        self.federation.traffic = replace(self.kept.traffic)
        self.seconds = float(found.extra["seconds"])
        return Round(found.number, found.state, bool(found.extra["ever_answered"]))

    def _finish(self, done: Round) -> Run:
        assert done.scores is not None
        last = self.history[-1]
        measured: Json = {
            key: last[key]
            for key in ("user", "group", "groups", "diverged", "views", "protected", "inference", "notes")
            if key in last
        }
        if "inference" in measured:
            measured["inference"] = {key: value for key, value in measured["inference"].items() if key != "rounds"}
        caution = "; ".join(self.algorithm.describe(self.fresh.state).warnings)
        summary: Json = {
            "algorithm": self.experiment.algorithm["name"],
            "label": self.experiment.label,
            "dataset": self.data.name,
            "rounds": done.number,
            "seed": self.experiment.seed,
            "version": __version__,
            **measured,
            **({"caution": caution} if caution else {}),
            "bytes": byte_summary(self.kept.traffic),
            "seconds": {"total": self.seconds, "per_round": self.seconds / max(1, done.number)},
            "data": self.data.about(),
            "inputs": {
                "shape": list(self.data.shape),
                "classes": self.data.classes,
                "groups": self.data.population.groups,
            },
            "environment": environment(),
        }
        newcomers = self._newcomers(done)
        if newcomers is not None:
            summary["unseen"] = newcomers
        rows = client_rows(done.scores, self.data)
        if self.folder is not None:
            self.folder.write_clients(rows)
            self.folder.write_models(self.algorithm.describe(done.state).models())
            self.folder.write_json("summary.json", summary)
            self._save(done)
        return Run(self.experiment, summary, self.history, rows, done.state, self.folder.path if self.folder else None)

    def _newcomers(self, done: Round) -> Json | None:
        """How clients fare that were kept out of training; None where there are none."""
        unseen = self.data.unseen()
        if not unseen:
            return None
        assert done.scores is not None
        welcomed = self.federation.evaluate_unseen(done.state, unseen)
        for client, fault in welcomed.faults.items():
            self.watcher.warn(f"client {self.data.client_name(client)}, kept out of training, left out, {fault}")
        measured = measure_unseen(welcomed, unseen, done.scores, self.data)
        for warning in astray(measured):
            self.watcher.warn(f"of clients kept out of training, {warning}")
        return measured


def carried(description: Description) -> Mapping[ClientId, GroupId] | None:
    """Return the assignments that the next round starts from."""
    return description.assignments if description.carried is None else description.carried


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
