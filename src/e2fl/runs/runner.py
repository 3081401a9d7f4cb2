"""The runner of an experiment: stores results on disk, and resumes a run that was interrupted or needs more rounds."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from torch import nn

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.data import FederatedData
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.files import remove
from e2fl.models import Model
from e2fl.rounds import Round
from e2fl.runs import checkpoint
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.compiling import compiling
from e2fl.runs.data_files import write_data
from e2fl.runs.folder import Folder
from e2fl.runs.group_recovery import difference, found_groups, of_round
from e2fl.runs.loop import Loop, Runtime
from e2fl.runs.measure import client_rows, divergence_warnings, evaluation
from e2fl.runs.records import Json
from e2fl.runs.resume import digest_of_history, lineage, memories_of, require_more_rounds, require_same, restore
from e2fl.runs.run import Run, read_run
from e2fl.runs.summary import summarise
from e2fl.runs.totals import Totals
from e2fl.runs.watcher import Watcher, Watchers
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.version import environment

__all__ = ["Federate", "Run", "Runtime", "Watcher", "Watchers", "read_run", "run_experiment", "simulate"]

Federate = Callable[[AnyAlgorithm, Model, Folder | None], Runtime]


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
        folder.require_new(resume)
        stored = folder.read_experiment()
        require_same(folder, stored, experiment)
        if folder.finished():
            run = read_run(folder.path)
            if experiment.rounds == stored.rounds:
                return run
    data = data or experiment.build_data()
    model = experiment.build_model(data, network)
    runner = _Runner(experiment, folder, data, model, watcher, federate or simulate(experiment, data, watcher))
    return runner.run(stored)


def simulate(
    experiment: Experiment,
    data: FederatedData,
    watcher: Watcher,
    kind: Callable[..., SimulatedFederation] = SimulatedFederation,
) -> Federate:
    """Return what makes the federation of a run, simulated in this process."""

    def federate(algorithm: AnyAlgorithm, model: Model, folder: Folder | None) -> Runtime:
        # With fewer clients than the default of clients_per_round, all of them take part.
        few = len(data.population) < algorithm.clients_per_round
        if few and algorithm.clients_per_round != type(algorithm).clients_per_round:
            raise ConfigError(
                f"algorithm.clients_per_round is {algorithm.clients_per_round}, "
                f"but there are only {len(data.population)} clients"
            )
        learner = experiment.build_learner(model)
        with compiling(watcher.prepare):
            learner.engine.warm(lambda part: None)
        return kind(
            data,
            algorithm,
            learner,
            threads=experiment.threads,
            memories=Memories(folder.memories if folder else None),
        )

    return federate


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
        # Mistakes in the configuration raise an error here, before anything is written.
        self.loop = Loop(experiment, algorithm, self.federation, model)
        self.history: list[Json] = []
        self.times: dict[int, float] = {}  # by evaluated round: seconds since the one before
        self.seconds = 0.0
        self.evaluated_at = 0.0  # seconds of the run at the last line of history
        self.totals = Totals()
        self.unevaluated: Totals | None = None  # the totals as if the last round had not been evaluated
        self.environment = environment()  # now: files may change while the run goes on

    def run(self, stored: Experiment | None) -> Run:
        """Run to the end. stored: the configuration of the run to resume; None for a new run."""
        with self.folder.claimed() if self.folder is not None else nullcontext():
            return self._run(stored)

    def _run(self, stored: Experiment | None) -> Run:
        resumed = self._start(stored)
        if resumed is None:  # a run killed before its next checkpoint is known to repeat the same rounds
            self._save(self.loop.fresh, self.totals)
        latest = resumed
        # The newest round to resume from, with its totals: one value, so that an interruption finds both or neither.
        # Never the last round: a run stopped before its summary must have a round left to repeat.
        safe: tuple[Round, Totals] | None = None
        started, saved = time.monotonic() - self.seconds, time.monotonic()
        last = self.loop.last
        self.watcher.begin(self.experiment, self.loop.first if resumed is None else resumed.number + 1, last)
        self._warn_at_the_start()
        try:
            for done in self.loop.rounds(resumed):
                self.seconds = time.monotonic() - started
                self.totals = self._record(done, latest)
                latest = done
                if done.number < last:
                    safe = done, self.totals  # a round that is interrupted before this is repeated
                self.watcher.pause(done.number)
                if done.number < last and time.monotonic() - saved >= self.experiment.checkpoint_seconds:
                    self._save(done, self.totals)
                    saved = time.monotonic()
        except StorageError:
            raise  # another checkpoint could not be written either; the last one is complete
        except (KeyboardInterrupt, RunError):
            if safe is not None:
                self._save(*safe)
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
        self.folder.write_times(self.times)
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

    def _record(self, done: Round, before: Round | None) -> Totals:
        """Record the results of a round. before: the round before it, if this process knows it."""
        measured = None
        totals = self._add_up(done, before)
        warnings = self.federation.warnings()
        for client, fault in done.faults.items():
            self.watcher.warn(f"round {done.number}: client {self.data.client_name(client)} left out, {fault}")
        for warning in warnings:
            self.watcher.warn(f"round {done.number}: {warning}")
        faults = totals.faults + Counter(fault.split(":", 1)[0] for fault in (*done.faults.values(), *warnings))
        totals = replace(totals, faults=faults)
        if done.scores is not None:
            metadata = self.loop.metadata(done.state)
            evaluated = evaluation(done, self.data, totals.traffic, metadata, faults, totals.found, totals.grouping)
            measured = evaluated.to_json()
            # Evaluating adds only the bytes served.
            served = self.totals.traffic.served
            self.unevaluated = replace(totals, traffic=replace(totals.traffic, served=served))
            totals = Totals(totals.traffic, found_groups(done.scores), asked=totals.asked)
            if not any(divergence_warnings(past) for past in self.history):  # warn once
                for warning in divergence_warnings(measured):
                    self.watcher.warn(f"round {done.number}: {warning}")
            self.history.append(measured)
            self.times[done.number] = round(self.seconds - self.evaluated_at, 3)
            self.evaluated_at = self.seconds
            if self.folder is not None:
                self.folder.append_history(measured)
                self.folder.append_times(done.number, self.times[done.number])
        self.watcher.advance(done.number, measured)
        return totals

    def _add_up(self, done: Round, before: Round | None) -> Totals:
        """Return the totals after this round, except its faults."""
        traffic = replace(self.federation.traffic)
        asked = self.totals.asked + Counter(done.asked)
        found = self.loop.assignments(done.state)
        if found is None:
            return replace(self.totals, traffic=traffic, asked=asked)
        spent = difference(traffic, self.totals.traffic)
        known = {} if before is None else self.loop.assignments_before(before.state)
        grouping = of_round(done, found, known, self.data.population, spent)
        return replace(self.totals, traffic=traffic, grouping=(*self.totals.grouping, grouping), asked=asked)

    def _save(self, done: Round, totals: Totals, *, final: bool = False) -> None:
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
            **totals.to_json(),
            "data": self._data_file,
            "history": digest_of_history(self.folder, done.number),
            "memories": memories_of(self.folder, done.number),
        }
        if final and self.unevaluated is not None and not self.loop.server.due:
            extra["unevaluated"] = self.unevaluated.to_json() | {
                "history": digest_of_history(self.folder, done.number - 1)
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
        found = restore(self.folder, self.loop, stored, self.experiment, self._data_file, self.watcher.warn)
        if found is None:
            self.federation.rewind(self.loop.first - 1)
            return None
        self.federation.rewind(found.round.number)
        self.history, self.times, self.totals, self.seconds = found.history, found.times, found.totals, found.seconds
        self.evaluated_at = sum(found.times.values())
        self.federation.traffic = replace(self.totals.traffic)
        if found.ahead:  # before the history is cut
            self._save(found.round, found.totals)
        return found.round

    def _finish(self, done: Round) -> Run:
        assert done.scores is not None
        self._save(done, self.totals, final=True)
        rows = client_rows(done.scores, self.data)
        models_kept = self.folder is not None and bool(memories_of(self.folder, done.number))
        drop = models_kept and not self.experiment.keep_client_models
        summary = summarise(
            self.experiment,
            self.loop,
            self.data,
            done,
            self.totals,
            self.history[-1],
            seconds=self.seconds,
            environment=self.environment,
            client_models="dropped" if drop else "kept" if models_kept else "none",
            warn=self.watcher.warn,
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
        path = self.folder.path if self.folder else None
        return Run(self.experiment, summary, self.history, rows, done.state, path, self.times)
