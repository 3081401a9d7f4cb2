"""The runner of one experiment: rounds, evaluations, checkpoints, and the files of the run."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from e2fl.algorithms import AnyAlgorithm, Election, types_of
from e2fl.codec import to_json
from e2fl.config.experiment import Experiment
from e2fl.config.sections import completed
from e2fl.data import ClientId, FederatedData, Population
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.evaluation import Score
from e2fl.files import finite, remove, writing
from e2fl.kernels import ENGINE_VERSION
from e2fl.models import Model
from e2fl.rounds import Round, Server, run
from e2fl.runs import checkpoint, measure
from e2fl.runs.chain import CHAIN, Chain
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.measure import Totals
from e2fl.runs.records import FAILED, Json, divergence_warnings, known
from e2fl.runs.store import ENCODING, HISTORY, Folder, StoredRun, read_run, write_data
from e2fl.runs.watcher import Watcher
from e2fl.simulation import simulated
from e2fl.simulation.attacked import AttackedFederation
from e2fl.simulation.client_memory import newest_versions
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.version import __version__, environment
from e2fl.wire import Nothing

OF_A_ROUND = ("round", "asked", "answered", "faults", "influence", "training_loss")


class StoppedError(RunError):
    """A run that was told to stop between two rounds; it leaves a checkpoint."""


Federate = Callable[[AnyAlgorithm, Model, Folder | None], SimulatedFederation]


def run_experiment(
    experiment: Experiment,
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    network: nn.Module | None = None,
    watcher: Watcher | None = None,
    federate: Federate | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> StoredRun:
    """Run to the end. With `out`, everything is stored there, and the run can be resumed.

    A finished run is read, or continued if the experiment has more rounds. data, network: made in
    Python, in place of the configured ones. federate: makes the federation to run on; default: one
    simulated in this process. stop: asked between rounds; True ends the run with `StoppedError`.
    """
    watcher = watcher or Watcher()
    experiment = completed(experiment)
    experiment.build.runtime()  # a mistake in it is found before data is read
    for section in ("attack", "runtime"):
        if federate is not None and getattr(experiment, section):
            raise ConfigError(f"section '{section}' is for simulations only: remove it")
    folder = None if out is None else Folder(out)
    stored: Experiment | None = None
    if folder is not None and folder.exists():
        folder.require_new(resume)
        stored = folder.require_same(experiment)
        if folder.finished() and experiment.rounds == stored.rounds:
            return read_run(folder.path)
    data = experiment.build.data() if data is None else data.for_seed(experiment.seed)
    model = experiment.build.model(data, network)
    memories = None if folder is None else folder.memories
    simulate = partial(simulated, experiment, data, warn=watcher.warn, memories=memories)
    federate = federate or (lambda algorithm, model, _: simulate(algorithm, model))
    runner = _Runner(experiment, folder, data, model, watcher, federate, stop)
    with folder.claimed() if folder is not None else nullcontext():
        return runner.run(stored)


def server_of(
    experiment: Experiment, algorithm: AnyAlgorithm, model: Model, population: Population
) -> Server:
    """Return the server of a run."""
    return Server(
        algorithm,
        model,
        population,
        rounds=experiment.rounds,
        seed=experiment.seed,
        evaluate_every=experiment.evaluate_every,
        evaluate_clients=experiment.evaluate_clients,
        participation=experiment.build.participation(),
        update_limit=experiment.update_limit,
        examples_limit=experiment.examples_limit,
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
        stop: Callable[[], bool],
    ):
        self.experiment, self.folder, self.data, self.watcher = experiment, folder, data, watcher
        self.algorithm, self.model, self.stop = experiment.build.algorithm(), model, stop
        self.federation = federate(self.algorithm, model, folder)
        population = self.federation.population
        # Mistakes in the configuration raise an error here, before anything is written.
        self.server = server_of(experiment, self.algorithm, model, population)
        self.server.on_election = self._witness
        self.first, self.last = self.server.done.number, self.server.last  # first: nothing done
        # Why results on such data need care; empty if nothing is wrong.
        self.warnings = list(self.algorithm.describe(self.server.state).warnings)
        self.history: list[Json] = []
        self.totals = self.unevaluated = Totals()  # the second: as if a round was not evaluated
        self.chain = None if folder is None else Chain(folder.path, experiment.keep_ballots)
        self.influence: Json | None = None  # of single voters, in the last evaluated election
        # Now: files may change while the run goes on.
        self.environment = environment() | {"engine": str(ENGINE_VERSION)}
        self.identity = checkpoint.identity_of(experiment, data.about())

    def _witness(self, number: int, evaluated: bool, election: Election) -> None:
        """Record an election, and what its voters could have changed."""
        if self.chain is not None:
            self.chain.add(number, election)
        if evaluated:
            self.influence = measure.influence_of(election, self.data)

    def run(self, stored: Experiment | None) -> StoredRun:
        """Run to the end. stored: the configuration of the run to resume; None for a new run."""
        if self.folder is not None:
            self._start(self.folder, stored)
        self.watcher.begin(self.experiment, self.server.done.number + 1, self.last)
        for warning in self.warnings:
            self.watcher.warn(warning)
        latest = self._run_rounds()
        if latest.scores is None:
            raise RunError(f"no client could be evaluated after the last round, {latest.number}")
        return self._finish(latest, latest.scores)

    def _start(self, folder: Folder, stored: Experiment | None) -> None:
        """Prepare the folder, and go back to the round to begin after."""
        resumed = stored is not None and self._restore(folder, stored)
        with writing(folder.path):
            (folder.path / "summary.json").unlink(missing_ok=True)
        folder.write("config.toml", self.experiment.to_toml())
        folder.write_history(self.history)
        assert self.chain is not None
        self.chain.begin(self.server.done.number)
        write_data(folder, self.data, self.watcher.warn)
        if self.data.encoding is not None:
            folder.write(ENCODING, self.data.encoding.to_json())
        if not resumed:  # a run killed before its next checkpoint repeats the same rounds
            self._save(self.server.done, self.totals)

    def _restore(self, folder: Folder, stored: Experiment) -> bool:
        """Go back to the last usable checkpoint; False if there is none, and nothing to lose.

        History and client models are cut to it.
        """
        first, reached = self.server.done.number, checkpoint.rounds(folder.checkpoints)
        ended = self.algorithm.rounds(stored.rounds, self.federation.population)
        extends = stored.rounds == ended < self.last
        if max(reached, default=first) > self.last or (folder.finished() and not extends):
            raise RunError(
                f"{folder.path} cannot be continued to round {self.last}: it has reached "
                "that round, or its last round depends on their number; start a new run with --out"
            )
        folder.clean()
        history, memories = folder.read_history(), folder.memories
        unusable: list[str] = []
        saved = checkpoint.latest(
            folder.checkpoints,
            types_of(self.algorithm).state,
            problem=lambda saved: checkpoint.problem_of(saved, self.identity, history, memories),
            below=self.last,  # a run stopped before its summary must have a round left to repeat
            warn=unusable.append,
        )
        if saved is None and (history or max(reached, default=first) > first):
            reason = "; ".join(unusable) or "its checkpoints are gone"
            raise RunError(
                f"{folder.path} cannot be resumed: {reason}; starting again would erase what it "
                "has: start a new run with --out"
            )
        for reason in unusable:
            self.watcher.warn(f"{reason}; trying the one before")
        begin = first if saved is None else saved.round_number
        checkpoint.drop_after(folder.checkpoints, begin)
        self.federation.rewind(begin)
        if saved is not None:
            self.totals = saved.totals
            self.history = history[: self.totals.lines]
            self.federation.traffic = replace(self.totals.traffic)
            self.server.done = Round(saved.round_number, saved.state, saved.ever_answered)
        return saved is not None

    def _run_rounds(self) -> Round:
        """Run the rounds that are left, and return the last."""
        latest = self.server.done
        # The newest round to resume from, with its totals: one value, so that an interruption finds
        # both or neither.
        safe: tuple[Round, Totals] | None = None
        saved = time.monotonic()
        self.started = saved - self.totals.seconds
        try:
            for done in run(self.server, self.federation):
                self.totals = self._record(done, latest)
                latest = done
                if done.number == self.last:
                    continue
                safe = done, self.totals  # a round interrupted before this is repeated
                if time.monotonic() - saved >= self.experiment.checkpoint_seconds:
                    self._save(*safe)
                    saved = time.monotonic()
                if self.stop():
                    raise StoppedError(f"stopped after round {done.number}")
        except StorageError:
            raise  # another checkpoint could not be written either; the last one is complete
        except (KeyboardInterrupt, RunError):
            if safe is not None:
                self._save(*safe)
            raise
        finally:
            self.watcher.end()
        return latest

    def _record(self, done: Round, before: Round) -> Totals:
        """Record the results of a round, and return the totals after it."""
        warnings = self.federation.warnings()
        for client, fault in done.faults.items():
            name = self.data.client_name(client)
            outcome = fault if fault.startswith("clipped") else f"left out, {fault}"
            self.watcher.warn(f"round {done.number}: client {name} {outcome}")
        for warning in warnings:
            self.watcher.warn(f"round {done.number}: {warning}")
        totals = self._add_up(done, before, measure.kinds_of((*done.faults.values(), *warnings)))
        measured = None
        if done.scores is not None:
            metadata = finite(self.algorithm.describe(done.state).metadata)
            measured = to_json(
                measure.evaluation(done, self.data, totals, metadata, self.influence)
            )
            # Evaluating adds only the bytes served.
            served = self.totals.traffic.served
            self.unevaluated = replace(totals, traffic=replace(totals.traffic, served=served))
            found, lines = measure.found_groups(done.scores), totals.lines + 1
            totals = replace(totals, found=found, faults={}, grouping=(), lines=lines)
            self._record_line(done.number, measured)
        self.watcher.advance(done.number, measured)
        return totals

    def _record_line(self, number: int, measured: Json) -> None:
        if not any(divergence_warnings(past) for past in self.history):  # warn once
            for warning in divergence_warnings(measured):
                self.watcher.warn(f"round {number}: {warning}")
        self.history.append(measured)
        if self.folder is not None:
            self.folder.append_history(measured)

    def _add_up(self, done: Round, before: Round, faults: Counter[str]) -> Totals:
        """Return the totals after this round, before it is evaluated."""
        traffic, loss = replace(self.federation.traffic), done.training_loss or 0.0
        totals = replace(
            self.totals,
            traffic=traffic,
            asked=Counter(self.totals.asked) + Counter(done.asked),
            highest_loss=max(self.totals.highest_loss, loss if math.isfinite(loss) else math.inf),
            seconds=time.monotonic() - self.started,
            faults=Counter(self.totals.faults) + faults,
        )
        found = self.algorithm.describe(done.state).assignments
        if found is None:  # groups are declared, or there are none
            return totals
        began = before.number > self.first  # there were groups when this round began
        known = self.algorithm.describe(before.state).assignments if began else None
        heard = {client: found[client] for client in done.answered if client in found}
        spent, population = (self.totals.traffic, traffic), self.data.population
        recovered = measure.recovery(found, heard, known or {}, population, spent)
        grouping = {"round": done.number, "clients": len(found), **recovered}
        return replace(totals, grouping=(*totals.grouping, grouping))

    def _save(self, done: Round, totals: Totals) -> None:
        if self.folder is None:
            return
        assert self.chain is not None
        self.folder.flush(HISTORY, *([CHAIN] if self.chain.head else []))
        memories = newest_versions(self.folder.memories, done.number)
        saved = Checkpoint(
            done.number, done.state, self.identity, done.ever_answered, totals, memories
        )
        checkpoint.save(self.folder.checkpoints, saved)
        # The checkpoint before this one stays usable, and so must the models that clients kept.
        self.federation.forget(before=checkpoint.rounds(self.folder.checkpoints)[-1])

    def _finish(self, done: Round, scores: Mapping[ClientId, Score]) -> StoredRun:
        # If the run continues, a round that was evaluated only for being the last is not any more.
        self._save(done, self.totals if self.server.due else self.unevaluated)
        rows = measure.client_rows(scores, self.data)
        summary = to_json(self._summary(done, scores))
        if self.folder is not None:
            self.folder.write_clients(rows)
            self.folder.write_models(self.algorithm.describe(done.state).models())
            self.folder.write("summary.json", summary)
            self.folder.clean()
            checkpoint.keep_newest(self.folder.checkpoints, 1)
            self.federation.forget(before=done.number)
            if not self.experiment.keep_client_models:
                remove(self.folder.memories)
        path = self.folder.path if self.folder else None
        config = self.experiment.to_dict()
        return StoredRun(config, summary, self.history, rows, done.state, path)

    def _summary(self, done: Round, scores: Mapping[ClientId, Score]) -> Json:
        """Return the last line of the history, and what is about the whole run."""
        experiment, data, totals = self.experiment, self.data, self.totals
        finds_groups = self.algorithm.describe(done.state).assignments is not None
        served = measure.found_groups(scores)
        alone = types_of(self.algorithm).up is Nothing  # clients send nothing
        accuracy, attack = self.history[-1]["clients"]["mean"], None
        trouble = measure.trouble(totals.highest_loss, accuracy, scores, data)
        if isinstance(self.federation, AttackedFederation):
            attack = measure.attack_summary(self.federation.malicious, data)
            trouble = trouble if trouble == FAILED else ""  # the attack raised the loss
        if trouble:
            self.watcher.warn(trouble)
        return {
            **{name: part for name, part in self.history[-1].items() if name not in OF_A_ROUND},
            "algorithm": experiment.algorithm["name"],
            "label": experiment.label,
            **experiment.build.naming(),
            "dataset": data.name,
            "rounds": done.number,
            "seed": experiment.seed,
            "version": __version__,
            # How the algorithm knows the group of a client; None: it has no groups.
            "membership": "found" if finds_groups else "declared" if served else None,
            "trains_alone": alone,
            **measure.costs(totals.traffic, self.model.spec.edges, alone=alone),
            "seconds": {"total": totals.seconds, "per_round": totals.seconds / max(1, done.number)},
            "data": data.about(),
            "inputs": measure.inputs_summary(data),
            "environment": self.environment,
        } | known(
            warnings=self.warnings + ([trouble] if trouble else []),
            failed=trouble == FAILED,
            own_measures={m.name: m.described for m in experiment.build.measures()},
            participation=measure.participation_summary(totals.asked, data, served),
            attack=attack,
            unseen=self._unseen(done),
        )

    def _unseen(self, done: Round) -> Json | None:
        """Return the results of clients kept out of training; None if there are none."""
        clients = self.data.unseen()
        if not clients:
            return None
        tried = self.federation.evaluate_unseen(done.state, clients)
        for client, fault in tried.faults.items():
            name = self.data.client_name(client)
            self.watcher.warn(f"client {name}, kept out of training, left out, {fault}")
        measured = measure.measure_unseen(tried, self.data)
        for warning in divergence_warnings(measured):
            self.watcher.warn(f"of clients kept out of training, {warning}")
        return measured
