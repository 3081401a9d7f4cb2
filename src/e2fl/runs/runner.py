"""The runner of one experiment: rounds, evaluations, checkpoints, and the files of the run."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from e2fl.algorithms import ALGORITHMS, AnyAlgorithm, Election, types_of
from e2fl.codec import to_json
from e2fl.config.experiment import Experiment
from e2fl.config.sections import completed
from e2fl.data import Client, ClientId, FederatedData, GroupId
from e2fl.errors import ConfigError, RunError, StorageError
from e2fl.evaluation import Score
from e2fl.files import finite, remove
from e2fl.kernels import ENGINE_VERSION
from e2fl.models import Model
from e2fl.rounds import Federation, Round, Server, Traffic, UnseenScores, run
from e2fl.runs import checkpoint, measure
from e2fl.runs.chain import Chain
from e2fl.runs.checkpoint import Checkpoint
from e2fl.runs.data_files import write_data
from e2fl.runs.measure import Totals
from e2fl.runs.records import FAILED, Budget, Json, Summary, divergence_warnings
from e2fl.runs.store import ENCODING, Folder, Run, read_run
from e2fl.runs.watcher import Watcher
from e2fl.simulation.attacked import AttackedFederation
from e2fl.simulation.client_memory import Memories, newest_versions
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.version import __version__, environment
from e2fl.wire import Nothing

SLOW = 10.0  # seconds; loading compiled code takes less, compiling it takes more
RISEN = 10  # times the loss of guessing: training that diverged, if accuracy is that of guessing


class Runtime(Federation, Protocol):
    """A federation that a run can be stored with and resumed on."""

    traffic: Traffic

    def rewind(self, round_number: int) -> None:
        """Restore the clients to their state after this round."""
        ...

    def forget(self, before: int) -> None:
        """Drop what is only needed to resume from a round before this one."""
        ...

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Score unseen clients; a fault of one of them is recorded, never raised."""
        ...

    def warnings(self) -> list[str]:
        """Return what went wrong outside training since the last call, as "kind: reason"."""
        ...


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
    """Run to the end. With `out`, everything is stored there, and the run can be resumed.

    A finished run is read, or continued if the experiment has more rounds. data, network: made in
    Python, in place of the configured ones. federate: makes the federation to run on; default: one
    simulated in this process.
    """
    watcher = watcher or Watcher()
    experiment = completed(experiment)
    experiment.build_runtime()  # a mistake in it is found before data is read
    for section in ("attack", "runtime"):
        if federate is not None and getattr(experiment, section):
            raise ConfigError(f"section '{section}' is for simulations only: remove it")
    folder = None if out is None else Folder(out)
    stored: Experiment | None = None
    if folder is not None and folder.exists():
        folder.require_new(resume)
        stored = folder.read_experiment()
        checkpoint.require_same(folder, stored, experiment)
        if folder.finished():
            finished = read_run(folder.path)
            if experiment.rounds == stored.rounds:
                return finished
    data = experiment.build_data() if data is None else data.for_seed(experiment.seed)
    model = experiment.build_model(data, network)
    federate = federate or partial(simulated, experiment, data, watcher)
    runner = _Runner(experiment, folder, data, model, watcher, federate)
    with folder.claimed() if folder is not None else nullcontext():
        return runner.run(stored)


def simulated(
    experiment: Experiment,
    data: FederatedData,
    watcher: Watcher,
    algorithm: AnyAlgorithm,
    model: Model,
    folder: Folder | None,
) -> Runtime:
    """Return the federation of a run, simulated in this process or in Ray actors."""
    # With fewer clients than the default of clients_per_round, all of them take part.
    few = len(data.population) < algorithm.clients_per_round
    if few and algorithm.clients_per_round != type(algorithm).clients_per_round:
        raise ConfigError(
            f"algorithm.clients_per_round is {algorithm.clients_per_round}, "
            f"but there are only {len(data.population)} clients"
        )
    make: Callable[..., SimulatedFederation] = SimulatedFederation
    attack, runtime = experiment.build_attack(), experiment.build_runtime()
    if attack is not None:
        attackers = attack.attackers(data.population, experiment.seed)
        make = partial(AttackedFederation, attack=attack, attackers=attackers)
    elif runtime is not None:
        try:
            from e2fl.simulation.cluster import RayFederation
        except ModuleNotFoundError as error:
            raise ConfigError("runtime 'ray' needs Ray: pip install 'e2fl[ray]'") from error
        make = partial(RayFederation, runtime=runtime)
    learner = experiment.build_learner(model)
    slow = threading.Timer(SLOW, watcher.prepare)
    slow.start()
    try:
        learner.engine.warm()
    finally:
        slow.cancel()
    memories = Memories(folder.memories if folder else None)
    return make(data, algorithm, learner, threads=experiment.threads, memories=memories)


def naming(experiment: Experiment) -> Json:
    """Return the title of the algorithm and its position in tables: own algorithms come last."""
    name = experiment.algorithm["name"]
    title = experiment.build_algorithm().title
    return {"title": title, "order": [*ALGORITHMS, name].index(name)}


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
        self.algorithm, self.model = experiment.build_algorithm(), model
        self.federation = federate(self.algorithm, model, folder)
        # Mistakes in the configuration raise an error here, before anything is written.
        self.server = self._server(None)
        self.fresh = self.server.done  # the state before the first round
        self.last = self.server.last
        # Why results on such data need care; empty if nothing is wrong.
        self.warnings = tuple(self.algorithm.describe(self.fresh.state).warnings)
        self.trains_alone = types_of(self.algorithm).up is Nothing  # clients send nothing
        self.history: list[Json] = []
        self.totals = Totals()
        attack = experiment.build_attack()
        self.attackers = (
            attack.attackers(data.population, experiment.seed) if attack else frozenset()
        )
        self.malicious: dict[ClientId, Score] = {}  # scores of malicious clients
        self.chain = None if folder is None else Chain(folder.path, experiment.keep_ballots)
        self.influence: Json | None = None  # of single voters, in the last evaluated election
        self.unevaluated = self.totals  # as if the last round had not been evaluated
        # Now: files may change while the run goes on.
        self.environment = environment() | {"engine": str(ENGINE_VERSION)}
        # The digest of the file that a user's own data is in; None for data that stays.
        digest = None if folder is None else data.about().get("sha256")
        self.data_file = None if digest is None else str(digest)

    def _server(self, resume: Round | None) -> Server:
        population = self.federation.population
        server = self.experiment.build_server(self.algorithm, self.model, population, resume)
        server.witness = self._witness
        return server

    def _witness(self, number: int, evaluated: bool, election: Election) -> None:
        """Record an election, and what its voters could have changed."""
        if self.chain is not None:
            self.chain.add(number, election)
        if evaluated:
            self.influence = measure.influence_of(election, self.data)

    def run(self, stored: Experiment | None) -> Run:
        """Run to the end. stored: the configuration of the run to resume; None for a new run."""
        begun = self._start(stored)
        self.watcher.begin(self.experiment, begun.number + 1, self.last)
        self._warn_at_the_start()
        latest = self._run_rounds(begun)
        if latest is begun:
            raise RunError("there was no round to run")
        if latest.scores is None:
            raise RunError(f"no client could be evaluated after the last round, {latest.number}")
        return self._finish(latest)

    def _start(self, stored: Experiment | None) -> Round:
        """Prepare the folder; return the round to begin after."""
        if self.folder is None:
            return self.fresh
        resumed = None
        if stored is not None:
            resumed = self._restore(self.folder, stored)
            self.folder.unfinish()
        self.folder.write("config.toml", self.experiment.to_toml())
        self.folder.write_history(self.history)
        assert self.chain is not None
        self.chain.begin(-1 if resumed is None else resumed.number)
        write_data(self.folder, self.data, self.watcher.warn)
        if self.data.encoding is not None:
            self.folder.write_json(ENCODING, self.data.encoding.to_json())
        if resumed is None:  # a run killed before its next checkpoint repeats the same rounds
            self._save(self.fresh, self.totals)
        return resumed or self.fresh

    def _restore(self, folder: Folder, stored: Experiment) -> Round | None:
        """Go back to the last usable checkpoint; None if there is none, and nothing to lose.

        History and client models are cut to it.
        """
        if folder.finished():
            self._require_more_rounds(folder, stored.rounds)
        folder.clean()
        history, reached = folder.read_history(), checkpoint.rounds(folder.checkpoints)
        if reached and reached[0] > self.last:
            raise RunError(
                f"{folder.path} has reached round {reached[0]}, beyond round {self.last}: resume "
                "it with as many rounds, or start a new run with --out"
            )
        unusable: list[str] = []
        saved = checkpoint.latest(
            folder.checkpoints,
            types_of(self.algorithm).state,
            require=lambda saved: checkpoint.require_usable(
                saved, stored, folder, history, self.data_file
            ),
            below=self.last,  # a run stopped before its summary must have a round left to repeat
            warn=unusable.append,
        )
        if saved is None and (history or any(number > self.fresh.number for number in reached)):
            reason = "; ".join(unusable) or "its checkpoints are gone"
            raise RunError(
                f"{folder.path} cannot be resumed: {reason}; starting again would erase what it "
                "has: start a new run with --out"
            )
        for reason in unusable:
            self.watcher.warn(f"{reason}; trying the one before")
        begin = self.fresh.number if saved is None else saved.round_number
        checkpoint.drop_after(folder.checkpoints, begin)
        self.federation.rewind(begin)
        if saved is None:
            return None
        self.totals = saved.totals
        self.history = history[: self.totals.lines]
        self.federation.traffic = replace(self.totals.traffic)
        return Round(saved.round_number, saved.state, saved.ever_answered)

    def _require_more_rounds(self, folder: Folder, done: int) -> None:
        """Raise `RunError` unless a finished run of `done` rounds can continue."""
        last_before = self.algorithm.rounds(done, self.federation.population)
        if not done == last_before < self.last:
            raise RunError(
                f"{folder.path} cannot be continued from round {last_before} to round {self.last}: "
                "there is nothing to add, or its last round depends on the number of rounds; start "
                "a new run with --out"
            )

    def _warn_at_the_start(self) -> None:
        for warning in self.warnings:
            self.watcher.warn(warning)
        if self.trains_alone and self.last != self.experiment.rounds:
            self.watcher.warn(
                f"each client trains alone and only once, so there are {self.last} rounds, not "
                f"{self.experiment.rounds}; algorithm.epochs decides how long it trains "
                "(summary.json has the budget)"
            )

    def _run_rounds(self, latest: Round) -> Round:
        """Run the rounds after this one, and return the last."""
        # The newest round to resume from, with its totals: one value, so that an interruption finds
        # both or neither.
        safe: tuple[Round, Totals] | None = None
        saved = time.monotonic()
        self.started = saved - self.totals.seconds
        self.server = self._server(latest)
        try:
            for done in map(self._honest, run(self.server, self.federation)):
                self.totals = self._record(done, latest)
                latest = done
                if done.number < self.last:
                    safe = done, self.totals  # a round interrupted before this is repeated
                self.watcher.pause(done.number)
                due = time.monotonic() - saved >= self.experiment.checkpoint_seconds
                if due and done.number < self.last:
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
        return latest

    def _honest(self, done: Round) -> Round:
        """Return a round without the scores of malicious clients, which are kept apart."""
        if not self.attackers or done.scores is None:
            return done
        scores = dict(done.scores)
        self.malicious = {client: scores.pop(client) for client in self.attackers & scores.keys()}
        return replace(done, scores=scores)

    def _record(self, done: Round, before: Round) -> Totals:
        """Record the results of a round, and return the totals after it."""
        warnings = self.federation.warnings()
        for client, fault in done.faults.items():
            name = self.data.client_name(client)
            outcome = fault if fault.startswith("clipped") else f"left out, {fault}"
            self.watcher.warn(f"round {done.number}: client {name} {outcome}")
        for warning in warnings:
            self.watcher.warn(f"round {done.number}: {warning}")
        faults = measure.kinds_of((*done.faults.values(), *warnings))
        totals = self._add_up(done, before)
        totals = replace(totals, faults=Counter(totals.faults) + faults)
        measured = None
        if done.scores is not None:
            metadata = finite(self.algorithm.describe(done.state).metadata)
            evaluation = measure.evaluation(done, self.data, totals, metadata)
            measured = to_json(replace(evaluation, influence=self.influence))
            # Evaluating adds only the bytes served.
            served = self.totals.traffic.served
            self.unevaluated = replace(totals, traffic=replace(totals.traffic, served=served))
            groups, lines = measure.found_groups(done.scores), totals.lines + 1
            totals = replace(totals, found=groups, faults={}, grouping=(), lines=lines)
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

    def _add_up(self, done: Round, before: Round) -> Totals:
        """Return the totals after this round, except its faults."""
        traffic = replace(self.federation.traffic)
        asked = Counter(self.totals.asked) + Counter(done.asked)
        loss = 0.0 if done.training_loss is None else done.training_loss
        highest = max(self.totals.highest_loss, loss if math.isfinite(loss) else math.inf)
        seconds = time.monotonic() - self.started
        totals = replace(
            self.totals, traffic=traffic, asked=asked, highest_loss=highest, seconds=seconds
        )
        found = self.algorithm.describe(done.state).assignments
        if found is None:  # groups are declared, or there are none
            return totals
        known: Mapping[ClientId, GroupId] | None = {}  # when this round began
        if before.number > self.fresh.number:
            described = self.algorithm.describe(before.state)
            following = described.next_assignments
            known = described.assignments if following is None else following
        both = (self.totals.traffic, traffic)
        grouping = measure.recovery_in_round(done, found, known or {}, self.data.population, both)
        return replace(totals, grouping=(*totals.grouping, grouping))

    def _save(self, done: Round, totals: Totals) -> None:
        if self.folder is None:
            return
        self.folder.flush_history()
        assert self.chain is not None
        self.chain.flush()
        saved = Checkpoint(
            done.number,
            done.state,
            self.experiment.identity(),
            done.ever_answered,
            totals,
            newest_versions(self.folder.memories, done.number),
            self.data_file,
        )
        checkpoint.save(self.folder.checkpoints, saved)
        # The checkpoint before this one stays usable, and so must the models that clients kept.
        self.federation.forget(before=checkpoint.rounds(self.folder.checkpoints)[-1])

    def _finish(self, done: Round) -> Run:
        assert done.scores is not None
        # If the run continues, a round that was evaluated only for being the last is not any more.
        self._save(done, self.totals if self.server.due else self.unevaluated)
        rows = measure.client_rows(done.scores, self.data)
        has_models = self.folder is not None and bool(
            newest_versions(self.folder.memories, done.number)
        )
        drop = has_models and not self.experiment.keep_client_models
        kept = "dropped" if drop else "kept" if has_models else "none"
        summary = to_json(self._summary(done, kept))
        if self.folder is not None:
            self.folder.write_clients(rows)
            self.folder.write_models(self.algorithm.describe(done.state).models())
            self.folder.write_json("summary.json", summary)
            self.folder.clean()
            checkpoint.keep_newest(self.folder.checkpoints, 1)
            self.federation.forget(before=done.number)
            if drop:
                remove(self.folder.memories)
        path = self.folder.path if self.folder else None
        config = self.experiment.to_dict()
        return Run(config, summary, self.history, rows, done.state, path)

    def _failed(self, done: Round) -> bool:
        """Return whether the loss of training rose far, and accuracy ends at that of one class."""
        if self.totals.highest_loss <= RISEN * math.log(self.data.classes):
            return False
        commonest = measure.commonest_class(done.scores or (), self.data)
        return bool(self.history[-1]["clients"]["mean"] <= commonest)

    def _summary(self, done: Round, client_models: str) -> Summary:
        assert done.scores is not None
        last_line, traffic, seconds = self.history[-1], self.totals.traffic, self.totals.seconds
        inference = last_line.get("inference")
        served = measure.found_groups(done.scores)
        finds_groups = self.algorithm.describe(done.state).assignments is not None
        failed = self._failed(done)
        if failed:
            self.watcher.warn(FAILED)
        worked = (traffic.trainings, traffic.client_epochs, traffic.trained_examples)
        return Summary(
            **vars(measure.measure(done.scores, self.data)),
            algorithm=self.experiment.algorithm["name"],
            label=self.experiment.label,
            **naming(self.experiment),
            dataset=self.data.name,
            rounds=done.number,
            seed=self.experiment.seed,
            version=__version__,
            membership="found" if finds_groups else "declared" if served else None,
            trains_alone=self.trains_alone,
            inference=inference and {key: inference[key] for key in inference if key != "rounds"},
            metadata=last_line["metadata"],
            warnings=self.warnings + ((FAILED,) if failed else ()),
            failed=failed,
            own_measures={m.name: m.described for m in self.experiment.build_measures()},
            bytes=measure.byte_summary(traffic),
            bits=None if self.trains_alone else measure.bit_summary(traffic, self.model.spec.edges),
            participation=measure.participation_summary(self.totals.asked, self.data, served),
            budget=Budget(*worked) if traffic.trainings else None,
            seconds={"total": seconds, "per_round": seconds / max(1, done.number)},
            data=self.data.about(),
            attack=measure.attack_summary(self.malicious, self.data) if self.attackers else None,
            inputs=self._inputs(),
            environment=self.environment,
            unseen=self._unseen(done),
            validation=measure.measure_validation(done.scores, self.data),
            client_models=client_models,
        )

    def _inputs(self) -> Json:
        data, groups = self.data, self.data.population.groups
        return {
            "shape": list(data.shape),
            "classes": data.classes,
            "groups": groups,
            "group_names": [data.group_name(group) for group in range(groups)],
            "label_names": list(data.label_names),
        }

    def _unseen(self, done: Round) -> Json | None:
        """Return the results of clients kept out of training; None if there are none."""
        clients = self.data.unseen()
        if not clients:
            return None
        tried = self.federation.evaluate_unseen(done.state, clients)
        for client, fault in tried.faults.items():
            name = self.data.client_name(client)
            self.watcher.warn(f"client {name}, kept out of training, left out, {fault}")
        measured = measure.measure_unseen(tried, clients, done.scores or {}, self.data)
        for warning in divergence_warnings(measured):
            self.watcher.warn(f"of clients kept out of training, {warning}")
        return measured
