"""RayFederation: the simulated federation with its clients in Ray actors, on one machine or many.

Every actor holds the data, the model and the compiled loops of a run. Messages travel as the bytes
of the wire. What clients keep stays with the driver and travels with them, so any actor can train
any client, and an actor that is lost takes nothing with it. Ray starts a lost actor again.
"""

import copy
import math
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast

import ray
from ray.exceptions import RayError, RayTaskError

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Ray
from e2fl.data.federated import ClientId, FederatedData, Memory
from e2fl.errors import ConfigError, E2flError, E2flWarning, RunError, reason_of
from e2fl.evaluation import Score
from e2fl.kernels import ENGINE_VERSION
from e2fl.learning import Learner
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import ModelSpec
from e2fl.rounds import HELD
from e2fl.simulation.client_memory import Memories, checked_memory
from e2fl.simulation.simulator import SimulatedFederation, Trained
from e2fl.version import __version__, environment
from e2fl.wire import Message

Ref = Any  # ray.ObjectRef: passed inside a list, an actor gets it and not its value
Actor = Any
Key = TypeVar("Key")

START_SECONDS = 300.0  # for all actors to start; those that have started by then begin


@dataclass(frozen=True)
class Job:
    """What an actor holds of a run; the data apart, since runs share it."""

    data: Ref
    algorithm: AnyAlgorithm
    learner: Learner  # without its engine
    cores: int


class Worker:
    """What an actor does; the clients that it trains at a time are threads of one process."""

    def __init__(self, path: Sequence[str], theirs: Mapping[str, str]):
        """Raise `RunError` if versions differ: results could, too."""
        sys.path += [entry for entry in path if entry not in sys.path]  # of the user's own code
        if versions() != theirs:
            raise RunError(f"a machine of the cluster has {versions()}, and this one {theirs}")

    def train(
        self,
        job: Sequence[Ref],
        message: Sequence[Ref],
        client_id: ClientId,
        round_number: int,
        spec: ModelSpec,
        memory: Memory,
    ) -> Trained | tuple[str, str]:
        """Let one client train; return the name and text of its error if it fails.

        The error itself may not survive the journey.
        """
        federation = _loaded(*job)
        received = _opened(*job, *message, "down")

        def work() -> Trained:
            client = replace(federation.data.client(client_id), memory=memory)
            return federation.train_one(client, received, round_number, spec)

        try:
            trained = federation.pool.submit(work).result()  # in a thread with one core
            return trained._replace(memory=checked_memory(trained.memory), reply=None)
        except Exception as error:  # a client that fails never stops the others
            return type(error).__name__, str(error)

    def evaluate(
        self,
        job: Sequence[Ref],
        messages: Sequence[Ref],
        which: Mapping[ClientId, int],
        round_number: int,
        memories: Mapping[ClientId, Memory],
    ) -> Mapping[ClientId, Score]:
        """Let clients evaluate. which: the message of each."""
        federation = copy.copy(_loaded(*job))
        federation.memories = Memories()
        for client, memory in memories.items():
            federation.memories.store(client, round_number, memory)
        received = [_opened(*job, message, "served") for message in messages]
        delivered = {client: received[position] for client, position in which.items()}
        return federation.evaluate_all(round_number, delivered)


_loading = threading.Lock()  # of an actor, so that its threads load a run once


def _loaded(job: Ref) -> SimulatedFederation:
    """Return the federation of a run; that of the last run stays until there is another."""
    with _loading:
        return _federation(job)


@lru_cache(maxsize=1)
def _federation(job: Ref) -> SimulatedFederation:
    parts: Job = ray.get(job)
    learner = replace(
        parts.learner,
        engine=engine_for(parts.learner.model),
        supernet=copy.deepcopy(parts.learner.supernet),  # arrays of Ray cannot be written to
        initial=copy.deepcopy(parts.learner.initial),
    )
    learner.engine.warm()
    return SimulatedFederation(_data(parts.data), parts.algorithm, learner, threads=parts.cores)


@lru_cache(maxsize=1)
def _data(ref: Ref) -> FederatedData:
    data: FederatedData = ray.get(ref)
    return data


@lru_cache(maxsize=8)
def _opened(job: Ref, message: Ref, role: Literal["down", "served"]) -> Message:
    """Return a message from its bytes."""
    federation = _loaded(job)
    kind: type[Message] = getattr(federation.types, role)
    return kind.from_bytes(ray.get(message), federation.learner.model.spec)


def versions() -> dict[str, str]:
    """Return the versions that must be equal for the same bits."""
    known = environment() | {"e2fl": __version__, "engine": str(ENGINE_VERSION)}
    return {name: known[name] for name in ("e2fl", "engine", "torch", "numpy", "numba")}


class Actors:
    """The actors of this process, for one run after the other."""

    def __init__(self, count: int, cores: int):
        self.count, self.cores = count, cores
        self._shared: tuple[FederatedData, Ref] | None = None
        settings = {"num_cpus": cores, "max_concurrency": cores + 2, "max_restarts": -1}
        path = [entry or os.getcwd() for entry in sys.path]
        made = ray.remote(Worker).options(**settings)
        self.actors = [made.remote(path, versions()) for _ in range(count)]
        self._starts = [actor.__ray_ready__.remote() for actor in self.actors]
        ray.wait(self._starts, num_returns=count, timeout=START_SECONDS)

    def put_data(self, data: FederatedData) -> Ref:
        """Return the data in Ray's store, once for the runs that share it."""
        if self._shared is None or self._shared[0] is not data:
            self._shared = data, ray.put(data)
        return self._shared[1]

    def each(
        self, keys: Sequence[Key], call: Callable[[Actor, Key], Ref], at_once: int
    ) -> Iterator[tuple[Key, Any]]:
        """Yield what `call` computes for every key, in order; another actor repeats what is lost.

        at_once: calls that an actor has at a time. A lost actor gets no other call this time.
        """
        free, lost = deque(self._started() * at_once), set[Actor]()
        waiting, done = deque(keys), dict[Key, Any]()
        running: dict[Ref, tuple[Actor, Key]] = {}
        for wanted in keys:
            while wanted not in done:
                while waiting and free:
                    actor, key = free.popleft(), waiting.popleft()
                    running[call(actor, key)] = actor, key
                (ready,), _ = ray.wait([*running])
                actor, key = running.pop(ready)
                try:
                    done[key] = _got(ready)
                    free.extend([actor] if actor not in lost else [])
                except RayError as error:
                    waiting.appendleft(key)
                    if actor not in lost:
                        told = f"a Ray actor was lost ({_why(error)}); its clients train elsewhere"
                        warnings.warn(told, E2flWarning, stacklevel=2)
                    lost.add(actor)
                    free = deque(other for other in free if other not in lost)
                    if not free and not running:
                        raise RunError(
                            f"all Ray actors were lost, the last one because {_why(error)}; start "
                            "fewer actors if memory ran out, then resume"
                        ) from error
            yield wanted, done.pop(wanted)

    def end(self) -> None:
        """Give the cores back to the cluster."""
        for actor in self.actors:
            ray.kill(actor)

    def _started(self) -> list[Actor]:
        """Return the actors that have started."""
        starts = zip(self._starts, self.actors, strict=True)
        ready, _ = ray.wait(self._starts, num_returns=self.count, timeout=0)
        if not ready:
            raise RunError(f"no Ray actor started in {START_SECONDS:g} s: the cluster is busy")
        try:
            ray.get(ready)
        except RayError as error:
            raise RunError(
                f"a Ray actor cannot start: {_why(error)}; every machine of the cluster needs the "
                "same version of e2fl"
            ) from error
        return [actor for start, actor in starts if start in ready]


def _got(call: Ref) -> Any:
    """Return what a call computed; raise its own error, or `RayError` if the actor is lost."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, E2flError):
            raise error.cause from None
        raise RuntimeError(str(error)) from error


def _why(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return reason_of(RuntimeError(lines[-1] if lines else type(error).__name__))


def connected(runtime: Ray) -> Actors:
    """Return the actors, in the cluster at RAY_ADDRESS or in one on this machine."""
    address = os.environ.get("RAY_ADDRESS", "local")
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if not ray.is_initialized() and address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cores = max(os.cpu_count() or 1, runtime.actors * runtime.cores)
        ray.init("local", num_cpus=cores, include_dashboard=False, **quiet)
    elif not ray.is_initialized():
        try:
            ray.init(address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"there is no Ray cluster at RAY_ADDRESS={address}: {reason_of(error)}"
            ) from error
    cores = int(ray.cluster_resources().get("CPU", 0))
    count = runtime.actors or cores // runtime.cores
    if not 0 < count * runtime.cores <= cores:
        raise ConfigError(
            f"runtime.actors of {runtime.cores} cores: {max(1, count)} do not fit into the "
            f"{cores} cores of the cluster"
        )
    connection = ray.get_runtime_context().get_job_id()
    key = count, runtime.cores, connection
    if key not in _pools:
        for (*_, former), actors in _pools.items():
            if former == connection:
                actors.end()
        _pools.clear()
        _pools[key] = Actors(count, runtime.cores)
    return _pools[key]


_pools: dict[tuple[int, int, str], Actors] = {}  # one at most, which the next run finds here


class RayFederation(SimulatedFederation):
    """A simulated federation whose clients train and evaluate in Ray actors."""

    def __init__(self, *parts: Any, runtime: Ray, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self.actors = connected(runtime)
        sent = replace(self.learner, engine=cast(Any, None))
        data = self.actors.put_data(self.data)
        self.job = ray.put(Job(data, self.algorithm, sent, runtime.cores))

    def _received(self, message: Message, raw: bytes) -> Ref:
        """Return a message in Ray's store, as bytes."""
        return ray.put(raw)

    def _train_all(
        self, round_number: int, spec: ModelSpec, delivered: Mapping[ClientId, Any]
    ) -> Iterator[tuple[ClientId, Trained | Exception]]:
        def call(actor: Actor, client: ClientId) -> Ref:
            memory = self.memories.load(client, round_number)
            message = [delivered[client]]
            return actor.train.remote([self.job], message, client, round_number, spec, memory)

        # One more than an actor trains at a time, so that it never waits for the next.
        at_once = self.actors.cores + 1
        for client, done in self.actors.each(sorted(delivered), call, at_once):
            if not isinstance(done, Trained):
                name, text = done
                yield client, type(name, (RunError,), {})(text)
                continue
            self.memories.store(client, round_number, done.memory)
            yield client, done

    def evaluate_all(
        self, round_number: int, delivered: Mapping[ClientId, Any]
    ) -> Mapping[ClientId, Score]:
        clients = sorted(delivered)
        # Large parts, since clients with the same model and test set are evaluated once in each.
        size = max(1, math.ceil(len(clients) / self.actors.count))
        size = min(size, HELD) if self.memories.rounds else size
        parts = [clients[start : start + size] for start in range(0, len(clients), size)]

        def call(actor: Actor, part: int) -> Ref:
            messages = list(dict.fromkeys(delivered[client] for client in parts[part]))
            positions = {message: position for position, message in enumerate(messages)}
            which = {client: positions[delivered[client]] for client in parts[part]}
            kept = {client: self.memories.load(client, round_number + 1) for client in parts[part]}
            memories = {client: memory for client, memory in kept.items() if memory}
            return actor.evaluate.remote([self.job], messages, which, round_number, memories)

        scores: dict[ClientId, Score] = {}
        for _, done in self.actors.each(range(len(parts)), call, at_once=1):
            scores |= done
        views = {client: list(score.views) for client, score in scores.items()}
        self.border.same_views(views)
        return scores
