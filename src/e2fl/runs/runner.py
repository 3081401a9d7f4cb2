"""Runs an experiment and stores what it leaves on disk; resumes a run that was interrupted, or needs more rounds."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.defaults import completed
from e2fl.config.experiment import Experiment
from e2fl.data import ClientId, FederatedData, GroupId
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.files import remove
from e2fl.models import Model
from e2fl.rounds import Round, Traffic
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.compiling import compiling
from e2fl.runs.data_files import write_data
from e2fl.runs.folder import Folder
from e2fl.runs.group_recovery import difference, found_groups, of_round
from e2fl.runs.loop import Loop, Runtime
from e2fl.runs.measure import (
    bit_summary,
    budget_of,
    byte_summary,
    client_rows,
    divergence_warnings,
    evaluation,
    measure,
    measure_unseen,
    measure_validation,
    participation_summary,
)
from e2fl.runs.records import Evaluation, Json, Summary
from e2fl.runs.resume import (
    Requirements,
    digest_of_history,
    lineage,
    memories_of,
    missing_memories,
    require_more_rounds,
    require_same,
)
from e2fl.runs.watcher import Watcher, Watchers
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.version import __version__, environment

__all__ = ["Federate", "Run", "Runtime", "Watcher", "Watchers", "read_run", "run_experiment"]

Federate = Callable[[AnyAlgorithm, Model, Folder | None], Runtime]


@dataclass(frozen=True)
class Run:
    """A finished run, as recorded: plain JSON values, as in its files."""

    experiment: Experiment
    summary: Json
    history: list[Json]
    clients: list[Json]
    state: Any = field(repr=False, default=None)
    folder: Path | None = None

    @property
    def result(self) -> Summary:
        """The summary, typed."""
        return Summary.from_json(self.summary)

    @property
    def evaluations(self) -> list[Evaluation]:
        """The history, typed."""
        return [Evaluation.from_json(line) for line in self.history]


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    network: nn.Module | None = None,
    watcher: Watcher | None = None,
    federate: Federate | None = None,
) -> Run:
    """Run to the end. With `out`, everything is stored there, and the run can be resumed from there.

    A finished run is read, or continued if the experiment has more rounds. data, network: made in Python, in place of
    the configured ones. federate: makes the federation to run on; default: one simulated in this process.
    """
    watcher = watcher or Watcher()
    experiment = completed(experiment)
    folder = None if out is None else Folder(out)
    stored: Experiment | None = None
    if folder is not None and folder.exists():
        if not resume:
            raise RunError(f"{out} already exists; pass --resume to continue it, or choose another folder with --out")
        stored = folder.read_experiment()
        require_same(folder, stored, experiment)
        if folder.finished():
            run = read_run(folder.path)
            if experiment.rounds == stored.rounds:
                return run
    data = data or experiment.build_data()
    model = experiment.build_model(data, network)
    runner = _Runner(experiment, folder, data, model, watcher, federate or _simulate(experiment, data, watcher))
    return runner.run(stored)


def _simulate(experiment: Experiment, data: FederatedData, watcher: Watcher) -> Federate:
    def federate(algorithm: AnyAlgorithm, model: Model, folder: Folder | None) -> Runtime:
        # A population smaller than the default number of clients per round is served whole.
        few = len(data.population) < algorithm.clients_per_round
        if few and algorithm.clients_per_round != type(algorithm).clients_per_round:
            raise ConfigError(
                f"algorithm.clients_per_round is {algorithm.clients_per_round}, "
                f"but there are only {len(data.population)} clients"
            )
        learner = experiment.build_learner(model)
        with compiling(watcher.prepare):
            learner.engine.warm(lambda part: None)
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
    """What a runner knows after a round besides the state; an interrupted round leaves it as it was."""

    traffic: Traffic = field(default_factory=Traffic)
    found: Mapping[ClientId, GroupId] = field(default_factory=dict)  # the groups of the last evaluation
    faults: Counter[str] = field(default_factory=Counter)  # by kind, since the last line of history
    grouping: tuple[Json, ...] = ()  # how groups were found, in each round since the last line of history
    asked: Counter[ClientId] | None = field(default_factory=Counter)  # since the run began; None: not recorded

    def to_json(self) -> Json:
        return {
            "traffic": asdict(self.traffic),
            "found": list(self.found.items()),
            "faults": dict(self.faults),
            "finding": list(self.grouping),
            "asked": None if self.asked is None else sorted(self.asked.items()),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "_Kept":
        return cls(
            Traffic(**values["traffic"]),
            {int(client): int(group) for client, group in values["found"]},
            Counter(values["faults"]),
            tuple(values.get("finding", ())),
            None if values.get("asked") is None else Counter(dict(values["asked"])),  # None in earlier versions
        )


class _Runner:
    def __init__(
        self,
        experiment: Experiment,
        folder: Folder | None,
        data: FederatedData,
        model: Model,
        watcher: Watcher,
        federate: Federate,
    ):
        self.experiment, self.folder, self.data, self.watcher = experiment, folder, data, watcher
        algorithm = experiment.build_algorithm()
        self.federation = federate(algorithm, model, folder)
        # A mistake in the configuration is found here, before anything is written.
        self.loop = Loop(experiment, algorithm, self.federation, model)
        self.history: list[Json] = []
        self.seconds = 0.0
        self.kept = _Kept()
        self.unevaluated: _Kept | None = None  # what would be kept had the last round not been evaluated

    def run(self, stored: Experiment | None) -> Run:
        """stored: the configuration of the run to resume; None for a new run."""
        with self.folder.claimed() if self.folder is not None else nullcontext():
            return self._run(stored)

    def _run(self, stored: Experiment | None) -> Run:
        resumed = self._start(stored)
        latest = resumed
        started, saved = time.monotonic() - self.seconds, time.monotonic()
        last = self.loop.last
        self.watcher.begin(self.experiment, self.loop.first if resumed is None else resumed.number + 1, last)
        self._warn_at_the_start()
        try:
            for done in self.loop.rounds(resumed):
                self.seconds = time.monotonic() - started
                self.kept = self._record(done, latest)
                latest = done  # only now: a round that is interrupted before this is repeated
                # Never after the last round: a run killed before its summary must have a round left to repeat.
                if latest.number < last and time.monotonic() - saved >= self.experiment.checkpoint_seconds:
                    self._save(latest)
                    saved = time.monotonic()
        except StorageError:
            raise  # another checkpoint could not be written either; the last one is complete
        except (KeyboardInterrupt, RunError):
            if latest is not None and latest is not resumed and latest.number < last:
                self._save(latest)
            raise
        finally:
            self.watcher.end()
        if latest is None or latest is resumed:
            raise RunError("there was no round to run")
        if latest.scores is None:
            raise RunError(f"no client could be evaluated after round {latest.number}, the last one")
        return self._finish(latest)

    def _start(self, stored: Experiment | None) -> Round | None:
        if self.folder is None:
            return None
        resumed = None
        if stored is not None:
            if self.folder.finished():
                require_more_rounds(self.folder, self.loop, stored.rounds)
            resumed = self._restore(stored)
            self.folder.unfinish()
        self.folder.write("config.toml", self.experiment.to_toml())
        self.folder.write_history(self.history)
        if not (self.folder.path / "data.json").is_file():
            write_data(self.folder, self.data, self.watcher.warn)
        return resumed

    def _warn_at_the_start(self) -> None:
        if self.loop.warning:
            self.watcher.warn(self.loop.warning)
        if self.loop.trains_alone and self.loop.last != self.experiment.rounds:
            self.watcher.warn(
                f"each client trains alone and only once, so there are {self.loop.last} rounds, not "
                f"{self.experiment.rounds}; algorithm.epochs decides how long it trains (summary.json has the budget)"
            )

    def _record(self, done: Round, before: Round | None) -> _Kept:
        """Write down what came of a round. before: the round before it, if this process knows it."""
        measured = None
        kept = self._keep(done, before)
        warnings = self.federation.warnings()
        for client, fault in done.faults.items():
            self.watcher.warn(f"round {done.number}: client {self.data.client_name(client)} left out, {fault}")
        for warning in warnings:
            self.watcher.warn(f"round {done.number}: {warning}")
        faults = kept.faults + Counter(fault.split(":", 1)[0] for fault in (*done.faults.values(), *warnings))
        kept = replace(kept, faults=faults)
        if done.scores is not None:
            metadata = self.loop.metadata(done.state)
            evaluated = evaluation(done, self.data, kept.traffic, metadata, faults, kept.found, kept.grouping)
            measured = evaluated.to_json()
            # Evaluating adds only the bytes served.
            served = self.kept.traffic.served
            self.unevaluated = replace(kept, traffic=replace(kept.traffic, served=served))
            kept = _Kept(kept.traffic, found_groups(done.scores), asked=kept.asked)
            if not any(divergence_warnings(past) for past in self.history):  # once is enough
                for warning in divergence_warnings(measured):
                    self.watcher.warn(f"round {done.number}: {warning}")
            self.history.append(measured)
            if self.folder is not None:
                self.folder.append_history(measured)
        self.watcher.advance(done.number, measured)
        return kept

    def _keep(self, done: Round, before: Round | None) -> _Kept:
        """What is kept after this round, except its faults."""
        traffic = replace(self.federation.traffic)
        asked = None if self.kept.asked is None else self.kept.asked + Counter(done.asked)
        found = self.loop.assignments(done.state)
        if found is None:
            return replace(self.kept, traffic=traffic, asked=asked)
        spent = difference(traffic, self.kept.traffic)
        known = {} if before is None else self.loop.assignments_before(before.state)
        grouping = of_round(done, found, known, self.data.population, spent)
        return replace(self.kept, traffic=traffic, grouping=(*self.kept.grouping, grouping), asked=asked)

    def _save(self, done: Round, *, final: bool = False) -> None:
        if self.folder is None:
            return
        if not (self.folder.path / "config.toml").is_file():
            raise StorageError(
                f"cannot write a checkpoint: {self.folder.path} was removed while the run used it; start the run again"
            )
        extra = {
            "experiment": lineage(self.experiment),
            "ever_answered": done.ever_answered,
            "seconds": self.seconds,
            **self.kept.to_json(),
            "data": self._data_file,
            "history": digest_of_history(self.folder),
            "memories": memories_of(self.folder, done.number),
        }
        if final and self.unevaluated is not None and not self.loop.is_regular(done.number):
            extra["unevaluated"] = self.unevaluated.to_json() | {
                "history": digest_of_history(self.folder, without_last=True)
            }
        checkpoint.save(self.folder.checkpoints, Checkpoint(done.number, done.state, extra))
        # The checkpoint before this one stays usable, and so must the models that clients kept then.
        self.federation.forget(before=checkpoint.oldest(self.folder.checkpoints))

    @cached_property
    def _data_file(self) -> object:
        """The digest of the file that a user's own data is in; None for data that cannot change."""
        return self.data.about().get("sha256")

    def _restore(self, stored: Experiment) -> Round | None:
        """Go back to the last good checkpoint: history and client models are cut to it."""
        assert self.folder is not None
        self.folder.clean()
        finished = self.folder.finished()
        found = checkpoint.latest(
            self.folder.checkpoints,
            self.loop.state_type,
            require=(lambda found: None) if finished else Requirements(self.folder, stored, self.experiment),
            below=self.loop.last,
            warn=self.watcher.warn,
        )
        if finished:
            self._require_continuable(found, stored)
        elif found is None and checkpoint.any_in(self.folder.checkpoints):
            self.watcher.warn("no usable checkpoint is left; the run starts again from its first round")
        if found is not None and found.extra.get("data", self._data_file) != self._data_file:
            raise RunError(
                f"{self.folder.path} was started with other data: the file has changed since; "
                "restore the file, or start a new run in another folder with --out"
            )
        number = self.loop.first - 1 if found is None else found.number
        extra = {} if found is None else dict(found.extra)
        if "unevaluated" in extra:  # the last round of a run that now has more
            number, extra = number - 1, extra | extra["unevaluated"]
        if found is None:
            self.federation.rewind(number)
            return None
        size = extra.get("history", {}).get("bytes")
        self.history = [line for line in self.folder.read_history(size) if line["round"] <= number]
        self.federation.rewind(found.number)
        self.kept = _Kept.from_json(extra)
        self.federation.traffic = replace(self.kept.traffic)
        self.seconds = float(extra["seconds"])
        return Round(found.number, found.state, bool(extra["ever_answered"]))

    def _require_continuable(self, found: Checkpoint | None, stored: Experiment) -> None:
        """A finished run is continued from its very end, or not at all: its results must not be lost."""
        assert self.folder is not None
        path = self.folder.path
        if found is None or found.number != self.loop.last_of(stored.rounds):
            raise RunError(f"{path} cannot be continued: its last checkpoint is gone or damaged; start a new run")
        if missing_memories(self.folder, found):
            raise RunError(
                f"{path} cannot be continued: the models that its clients keep were dropped when it finished; "
                "repeat it with --keep-client-models"
            )
        Requirements(self.folder, stored, self.experiment)(found)
        if "history" not in found.extra and not self.loop.is_regular(found.number):
            raise RunError(
                f"{path} cannot be continued: it was made by an earlier version, and its last round, "
                f"{found.number}, is not a multiple of evaluate_every; start a new run with --out"
            )

    def _finish(self, done: Round) -> Run:
        assert done.scores is not None
        self._save(done, final=True)
        rows = client_rows(done.scores, self.data)
        models_kept = self.folder is not None and bool(memories_of(self.folder, done.number))
        drop = models_kept and not self.experiment.keep_client_models
        summary = replace(
            self._summary(done), client_models="dropped" if drop else "kept" if models_kept else "none"
        ).to_json()
        if self.folder is not None:
            self.folder.write_clients(rows)
            self.folder.write_models(self.loop.models(done.state))
            self.folder.write_summary(summary)
            self.folder.clean()
            checkpoint.keep_newest(self.folder.checkpoints, 1)
            self.federation.forget(before=done.number)
            if drop:
                remove(self.folder.memories)
        return Run(self.experiment, summary, self.history, rows, done.state, self.folder.path if self.folder else None)

    def _summary(self, done: Round) -> Summary:
        assert done.scores is not None
        inference = self.history[-1].get("inference")
        traffic = self.kept.traffic
        return Summary(
            algorithm=self.experiment.algorithm["name"],
            label=self.experiment.label,
            dataset=self.data.name,
            rounds=done.number,
            seed=self.experiment.seed,
            measures=measure(done.scores, self.data),
            version=__version__,
            membership=self.loop.membership(done.state, found_groups(done.scores)),
            trains_alone=self.loop.trains_alone,
            inference=inference and {key: value for key, value in inference.items() if key != "rounds"},
            metadata=self.history[-1]["notes"],
            warning=self.loop.warning,
            bytes=byte_summary(traffic),
            bits=None if self.loop.trains_alone else bit_summary(traffic, self.loop.model.spec.edges),
            participation=None if self.kept.asked is None else participation_summary(self.kept.asked, self.data),
            budget=budget_of(traffic) if traffic.trainings else None,
            seconds={"total": self.seconds, "per_round": self.seconds / max(1, done.number)},
            data=self.data.about(),
            inputs={
                "shape": list(self.data.shape),
                "classes": self.data.classes,
                "groups": self.data.population.groups,
                "group_names": [self.data.group_name(group) for group in range(self.data.population.groups)],
                "label_names": list(self.data.label_names),
            },
            environment=environment(),
            unseen=self._unseen(done),
            validation=measure_validation(done.scores, self.data),
        )

    def _unseen(self, done: Round) -> Json | None:
        """How clients fare that were kept out of training; None where there are none."""
        unseen = self.data.unseen()
        if not unseen:
            return None
        assert done.scores is not None
        tried = self.federation.evaluate_unseen(done.state, unseen)
        for client, fault in tried.faults.items():
            self.watcher.warn(f"client {self.data.client_name(client)}, kept out of training, left out, {fault}")
        measured = measure_unseen(tried, unseen, done.scores, self.data)
        for warning in divergence_warnings(measured):
            self.watcher.warn(f"of clients kept out of training, {warning}")
        return measured


def read_run(path: str | Path) -> Run:
    """A finished run, from its folder. Nothing that the folder names is imported, and damaged files are refused."""
    folder = Folder(Path(path))
    summary = folder.read_summary()
    folder.verify()
    return Run(folder.read_experiment(), summary, folder.read_history(), folder.read_clients(), None, folder.path)
