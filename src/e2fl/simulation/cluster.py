"""RayFederation: the simulated federation with its clients in tasks of Ray, on many machines.

A process of Ray keeps the data, the model and the compiled loops of a run from one task to the
next. Messages travel as the bytes of the wire. What clients keep stays with the driver and travels
with them, so any process can train any client, and Ray repeats the tasks of one that is lost.
"""

import copy
import math
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import ray
from ray.exceptions import RayError, RayTaskError

from e2fl.config.build import Ray
from e2fl.data.federated import ClientId, FederatedData, Memory
from e2fl.errors import ConfigError, E2flError, RunError, reason_of
from e2fl.evaluation import Score
from e2fl.kernels import ENGINE_VERSION
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import ModelSpec
from e2fl.rounds import MAX_DECODED
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation, Trained
from e2fl.version import __version__, environment
from e2fl.wire import Message

Ref = Any  # ray.ObjectRef: passed inside a list, a task gets it and not its value

RETRIES = 2  # of a task whose process is lost; Ray itself limits those that need too much memory


@dataclass(frozen=True)
class RunSetup:
    """What a process needs for a run; the user's own classes stand apart, to be imported last."""

    path: Sequence[str]  # on which they are found
    versions: Mapping[str, str]
    data: Ref  # runs share it
    parts: Ref  # the algorithm, and the learner without its engine
    cores: int


def work(
    job: Sequence[Ref],
    messages: Sequence[Ref],
    which: Mapping[ClientId, int],
    round_number: int,
    spec: ModelSpec | None,
    memories: Mapping[ClientId, Memory],
) -> Mapping[ClientId, Any]:
    """Let clients train or, without a spec, evaluate. which: the message of each.

    Of an error in training, name and text are returned: itself, it may not survive the journey.
    """
    federation = copy.copy(_federation(*job))
    federation.memories = Memories()
    for client, memory in memories.items():
        federation.memories.store(client, round_number, memory)
    received = [_opened(*job, message, trains=spec is not None) for message in messages]
    delivered = {client: received[position] for client, position in which.items()}
    if spec is None:
        return federation.evaluate_all(round_number, delivered)
    return {
        client: (type(done).__name__, str(done))
        if isinstance(done, Exception)
        else done._replace(memory=federation.memories.load(client, round_number + 1), reply=None)
        for client, done in federation._train_all(round_number, spec, delivered)
    }


@lru_cache(maxsize=1)
def _federation(job: Ref) -> SimulatedFederation:
    """Return the federation of a run, or raise `RunError` if versions differ: results could, too.

    That of the last run stays until there is another.
    """
    _opened.cache_clear()  # messages of the run before
    known: RunSetup = ray.get(job)
    sys.path += [entry for entry in known.path if entry not in sys.path]
    if versions() != known.versions:
        text = f"a machine of the cluster has {versions()}, and this one {known.versions}"
        raise RunError(text)
    algorithm, given = ray.get(known.parts)
    learner = replace(
        given,
        engine=engine_for(given.model),
        supernet=copy.deepcopy(given.supernet),  # arrays of Ray cannot be written to
        initial=copy.deepcopy(given.initial),
    )
    learner.engine.warm()
    return SimulatedFederation(_data(known.data), algorithm, learner, threads=known.cores)


@lru_cache(maxsize=1)
def _data(ref: Ref) -> FederatedData:
    data: FederatedData = ray.get(ref)
    return data


@lru_cache(maxsize=8)
def _opened(job: Ref, message: Ref, *, trains: bool) -> Message:
    """Return a message from its bytes."""
    federation = _federation(job)
    kind = federation.types.down if trains else federation.types.served
    return kind.from_bytes(ray.get(message), federation.learner.model.spec)


def versions() -> dict[str, str]:
    """Return the versions that must be equal for the same bits."""
    known = environment() | {"e2fl": __version__, "engine": str(ENGINE_VERSION)}
    return {name: known[name] for name in ("e2fl", "engine", "torch", "numpy", "numba")}


def connected(runtime: Ray) -> int:
    """Return how many tasks run at a time, in the cluster at RAY_ADDRESS or on this machine."""
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
    return count


_shared: dict[tuple[int, str], tuple[FederatedData, Ref]] = {}  # one at most: the last data


def _put(data: FederatedData) -> Ref:
    """Return the data in Ray's store, once for the runs that share it."""
    key = id(data), ray.get_runtime_context().get_job_id()
    if key not in _shared:
        _shared.clear()
        _shared[key] = data, ray.put(data)
    return _shared[key][1]


class RayFederation(SimulatedFederation):
    """A simulated federation whose clients train and evaluate in tasks of Ray."""

    def __init__(self, *parts: Any, runtime: Ray, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self.at_once, self.cores = connected(runtime), runtime.cores
        path = [entry or os.getcwd() for entry in sys.path]
        self.task = ray.remote(num_cpus=self.cores, max_retries=RETRIES)(work).remote
        own = ray.put((self.algorithm, replace(self.learner, engine=cast(Any, None))))
        self.job = ray.put(RunSetup(path, versions(), _put(self.data), own, runtime.cores))

    def _received(self, message: Message, raw: bytes) -> Ref:
        """Return a message in Ray's store, as bytes."""
        return ray.put(raw)

    def _train_all(
        self, round_number: int, spec: ModelSpec, delivered: Mapping[ClientId, Any]
    ) -> Iterator[tuple[ClientId, Trained | Exception]]:
        for client, done in self._spread(round_number, spec, delivered, self.cores):
            if isinstance(done, Trained):
                self.memories.store(client, round_number, done.memory)
                yield client, done
            else:
                name, text = done
                yield client, type(name, (RunError,), {})(text)

    def evaluate_all(
        self, round_number: int, delivered: Mapping[ClientId, Any]
    ) -> Mapping[ClientId, Score]:
        # Large parts, since clients with the same model and test set are evaluated once in each.
        size = max(1, math.ceil(len(delivered) / self.at_once))
        size = min(size, MAX_DECODED) if self.memories.rounds else size
        scores: dict[ClientId, Score] = dict(self._spread(round_number, None, delivered, size))
        self.checks.same_views({client: list(score.views) for client, score in scores.items()})
        return scores

    def _spread(
        self,
        round_number: int,
        spec: ModelSpec | None,
        delivered: Mapping[ClientId, Any],
        size: int,
    ) -> Iterator[tuple[ClientId, Any]]:
        """Yield what `work` returns for every client, in order. size: the clients of a task."""
        clients = sorted(delivered)
        parts = [clients[start : start + size] for start in range(0, len(clients), size)]
        waiting, running, done = deque(range(len(parts))), dict[Ref, int](), dict[int, Any]()
        try:
            for wanted in range(len(parts)):
                while wanted not in done:
                    while waiting and len(running) < self.at_once:
                        number = waiting.popleft()
                        sent = {client: delivered[client] for client in parts[number]}
                        running[self._start(round_number, spec, sent)] = number
                    (ready,), _ = ray.wait([*running])
                    done[running.pop(ready)] = _got(ready)
                yield from done.pop(wanted).items()
        finally:
            for call in running:  # the next run would wait for them
                ray.cancel(call)

    def _start(
        self, round_number: int, spec: ModelSpec | None, sent: Mapping[ClientId, Ref]
    ) -> Ref:
        """Start a task for these clients, with what they keep."""
        before = round_number + (spec is None)
        places = {message: at for at, message in enumerate(set(sent.values()))}
        which = {client: places[message] for client, message in sent.items()}
        kept = {client: self.memories.load(client, before) for client in sent}
        kept = {client: memory for client, memory in kept.items() if memory}
        return self.task([self.job], [*places], which, round_number, spec, kept)


def _got(call: Ref) -> Any:
    """Return what a task returned, or raise its error."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, E2flError):
            raise error.cause from None
        raise RuntimeError(str(error)) from error
    except RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = reason_of(RuntimeError(lines[-1] if lines else type(error).__name__))
        raise RunError(
            f"Ray lost processes in the same work several times, the last one because {reason}; "
            "set fewer actors if memory ran out, then resume"
        ) from error
