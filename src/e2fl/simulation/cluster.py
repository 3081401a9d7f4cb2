"""RayFederation: the simulated federation with its clients in Ray actors, on one machine or many.

Every actor holds the data, the model and the compiled loops of a run. Messages travel as the bytes
of the wire. What clients keep stays with the driver and travels with them, so any actor can train
any client, and an actor that is lost takes nothing with it.
"""

import copy
import math
import os
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import RayError, RayTaskError

from e2fl import codec
from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Ray
from e2fl.data.federated import ClientId, FederatedData
from e2fl.errors import ConfigError, E2flError, E2flWarning, RunError, reason_of
from e2fl.evaluation import Score
from e2fl.kernels import ENGINE_VERSION
from e2fl.learning import Learner
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import ModelSpec
from e2fl.rounds import MAX_DECODED
from e2fl.simulation.client_memory import Memories, checked_memory
from e2fl.simulation.simulator import SimulatedFederation, Trained
from e2fl.version import __version__, environment
from e2fl.wire import Message

Ref = Any  # ray.ObjectRef: passed inside a list, an actor gets it and not its value
Actor = Any
Key = TypeVar("Key")

START_SECONDS = 300.0  # for an actor to start when no other one is left
TRIES = 3  # actors that one client may lose, as one that needs too much memory does


@dataclass(frozen=True)
class Job:
    """What an actor holds of a run; the data apart, since runs share it."""

    data: Ref
    algorithm: AnyAlgorithm
    learner: Learner  # without its engine
    cores: int


class Worker:
    """What an actor does."""

    def __init__(self, path: Sequence[str]):
        sys.path += [entry for entry in path if entry not in sys.path]  # of the user's own code
        self._lock = threading.Lock()
        self._job: Ref = None
        self._data: tuple[Ref, FederatedData] | None = None
        self._federation: SimulatedFederation
        self._open: Callable[..., Message]

    def require_same(self, theirs: Mapping[str, str]) -> None:
        """Raise `RunError` if versions differ: results could, too."""
        if versions() != theirs:
            raise RunError(f"a machine of the cluster has {versions()}, and this one {theirs}")

    def train(
        self,
        job: Sequence[Ref],
        message: Sequence[Ref],
        client_id: ClientId,
        round_number: int,
        spec: ModelSpec,
        memory: bytes,
    ) -> Trained | tuple[str, str]:
        """Let one client train; return what it keeps as bytes, or the name and text of its error.

        The error itself may not survive the journey.
        """
        federation = self._loaded(*job)
        received = self._open(message[0], federation.types.down)

        def work() -> Trained:
            client = replace(federation.data.client(client_id), memory=_unpacked(memory))
            trained = federation.train_one(client, received, round_number, spec)
            return trained._replace(memory=checked_memory(trained.memory))

        try:
            trained = federation.pool.submit(work).result()  # in a thread with one core
            return trained._replace(memory=cast(Any, _packed(trained.memory)), reply=None)
        except Exception as error:  # a client that fails never stops the others
            return type(error).__name__, str(error)

    def evaluate(
        self,
        job: Sequence[Ref],
        messages: Sequence[Ref],
        which: Mapping[ClientId, int],
        round_number: int,
        memories: Mapping[ClientId, bytes],
    ) -> Mapping[ClientId, Score]:
        """Let clients evaluate. which: the message of each."""
        federation = copy.copy(self._loaded(*job))
        federation.memories = Memories()
        for client, memory in memories.items():
            federation.memories.store(client, round_number, _unpacked(memory))
        received = [self._open(message, federation.types.served) for message in messages]
        delivered = {client: received[position] for client, position in which.items()}
        return federation.evaluate_all(round_number, delivered)

    def _loaded(self, job: Ref) -> SimulatedFederation:
        """Return the federation of a run; that of the last run stays until there is another."""
        with self._lock:
            if self._job != job:
                parts: Job = ray.get(job)
                if self._data is None or self._data[0] != parts.data:
                    self._data = parts.data, ray.get(parts.data)
                given = parts.learner
                learner = replace(
                    given,
                    engine=engine_for(given.model),
                    supernet=copy.deepcopy(given.supernet),  # arrays of Ray cannot be written to
                    initial=copy.deepcopy(given.initial),
                )
                learner.engine.warm()
                self._federation = SimulatedFederation(
                    self._data[1], parts.algorithm, learner, threads=parts.cores
                )
                spec = learner.model.spec
                self._open = lru_cache(maxsize=8)(
                    lambda message, kind: kind.from_bytes(ray.get(message), spec)
                )
                self._job = job
            return self._federation


def versions() -> dict[str, str]:
    """Return the versions that must be equal for the same bits."""
    known = environment() | {"e2fl": __version__, "engine": str(ENGINE_VERSION)}
    return {name: known[name] for name in ("e2fl", "engine", "torch", "numpy", "numba")}


class Actors:
    """The actors of this process, for one run after the other; lost ones are replaced."""

    def __init__(self, count: int, cores: int):
        self.count, self.cores = count, cores
        self._made = ray.remote(Worker).options(num_cpus=cores, max_concurrency=cores + 2)
        self._starting: dict[Ref, Actor] = {}
        self._live: list[Actor] = []
        self._shared: tuple[FederatedData, Ref] | None = None
        for _ in range(count):
            self._start()

    def put_data(self, data: FederatedData) -> Ref:
        """Return the data in Ray's store, once for the runs that share it."""
        if self._shared is None or self._shared[0] is not data:
            self._shared = data, ray.put(data)
        return self._shared[1]

    def each(
        self, keys: Sequence[Key], call: Callable[[Actor, Key], Ref], at_once: int
    ) -> Iterator[tuple[Key, Any]]:
        """Yield what `call` computes for every key, in order; another actor repeats what is lost.

        at_once: calls that an actor has at a time.
        """
        waiting, done, tries = deque(keys), dict[Key, Any](), Counter[Key]()
        running: dict[Ref, tuple[Actor, Key]] = {}
        for wanted in keys:
            while wanted not in done:
                busy = Counter(dict.fromkeys(self._live, 0))
                busy.update(actor for actor, _ in running.values() if actor in busy)
                while waiting and busy and min(busy.values()) < at_once:
                    actor = min(busy, key=busy.__getitem__)
                    key = waiting.popleft()
                    running[call(actor, key)] = actor, key
                    busy[actor] += 1
                ready = self._next(running)
                if ready not in running:
                    continue
                actor, key = running.pop(ready)
                try:
                    done[key] = _got(ready)
                except RayError as error:
                    self._lose(actor, error)
                    waiting.appendleft(key)
                    tries[key] += 1
                    if tries[key] == TRIES:
                        raise RunError(
                            f"{TRIES} Ray actors were lost in the same work, the last one because "
                            f"{_why(error)}; start fewer actors if memory ran out, then resume"
                        ) from error
            yield wanted, done.pop(wanted)

    def end(self) -> None:
        """Give the cores back to the cluster."""
        for actor in (*self._live, *self._starting.values()):
            ray.kill(actor)

    def _start(self) -> None:
        path = [entry or os.getcwd() for entry in sys.path]
        actor = self._made.remote(path)
        self._starting[actor.require_same.remote(versions())] = actor

    def _lose(self, actor: Actor, error: RayError) -> None:
        if actor in self._live:  # else another of its calls was lost before
            self._live.remove(actor)
            ray.kill(actor)
            told = f"a Ray actor was lost ({_why(error)}); its clients train again elsewhere"
            warnings.warn(told, E2flWarning, stacklevel=2)
            self._start()

    def _next(self, running: Mapping[Ref, Any]) -> Ref:
        """Wait for a call to end or an actor to start; return the call."""
        alone = not running and not self._live
        calls = [*self._starting, *running]
        ready, _ = ray.wait(calls, timeout=START_SECONDS if alone else None) if calls else ([], [])
        if not ready:
            raise RunError(f"no Ray actor started in {START_SECONDS:g} s: the cluster is busy")
        (call,) = ready
        if call in self._starting:
            actor = self._starting.pop(call)
            try:
                _got(call)
                self._live.append(actor)
            except RayError as error:
                if not self._live and not self._starting:
                    raise RunError(
                        f"no Ray actor can start: {_why(error)}; every machine of the cluster "
                        "needs the same version of e2fl"
                    ) from error
        return call


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
            memory = _packed(self.memories.load(client, round_number))
            message = [delivered[client]]
            return actor.train.remote([self.job], message, client, round_number, spec, memory)

        # One more than an actor trains at a time, so that it never waits for the next.
        at_once = self.actors.cores + 1
        for client, done in self.actors.each(sorted(delivered), call, at_once):
            if not isinstance(done, Trained):
                name, text = done
                yield client, type(name, (RunError,), {})(text)
                continue
            self.memories.store(client, round_number, _unpacked(done.memory))
            yield client, done

    def evaluate_all(
        self, round_number: int, delivered: Mapping[ClientId, Any]
    ) -> Mapping[ClientId, Score]:
        clients = sorted(delivered)
        # Large parts, since clients with the same model and test set are evaluated once in each.
        size = max(1, math.ceil(len(clients) / self.actors.count))
        size = min(size, MAX_DECODED) if self.memories.rounds else size
        parts = [clients[start : start + size] for start in range(0, len(clients), size)]

        def call(actor: Actor, part: int) -> Ref:
            messages = list(dict.fromkeys(delivered[client] for client in parts[part]))
            positions = {message: position for position, message in enumerate(messages)}
            which = {client: positions[delivered[client]] for client in parts[part]}
            kept = {client: self.memories.load(client, round_number + 1) for client in parts[part]}
            memories = {client: _packed(memory) for client, memory in kept.items() if memory}
            return actor.evaluate.remote([self.job], messages, which, round_number, memories)

        scores: dict[ClientId, Score] = {}
        for _, done in self.actors.each(range(len(parts)), call, at_once=1):
            scores |= done
        views = {client: list(score.views) for client, score in scores.items()}
        self.checks.same_views(views)
        return scores


def _packed(memory: Any) -> bytes:
    return codec.pack(memory) if memory else b""


def _unpacked(memory: Any) -> Any:
    return codec.unpack(memory, dict[str, Any]) if memory else {}
