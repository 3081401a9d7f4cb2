"""SimulatedFederation: a federation in this process, with clients in parallel threads.

Each core runs one client at a time, with torch single-threaded inside. Clients are independent, so
results cannot depend on the number of threads. Clients that train for less than about two
milliseconds run one after the other, because the threads would mostly wait for each other.
"""

import math
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.algorithms.validate import OutputChecks
from e2fl.data.federated import Client, ClientId, FederatedData, Lazy, Memory, Population
from e2fl.errors import WireError
from e2fl.evaluation import Score
from e2fl.learning import Learner, one_thread
from e2fl.learning.learner import Meter
from e2fl.models import ModelSpec
from e2fl.rounds import MAX_DECODED, Replies, RoundRequest, Traffic, UnseenScores, count_work
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.evaluator import ClientEvaluation, Scoreboard, run_job, score_alone
from e2fl.wire import Message

Item = TypeVar("Item")
Key = TypeVar("Key")
Result = TypeVar("Result")

IN_MEMORY = 256 * 2**20  # bytes of the replies of a round; more are in a temporary file
BRIEF = 0.002  # seconds of computation per item; below this, threads do not pay off


class Trained(NamedTuple):
    """What one client did when it was asked to train."""

    raw: bytes  # its reply, as it is sent
    meter: Meter
    examples: int  # for training
    memory: Memory  # what it keeps
    reply: Message | None  # before encoding; None if it came from another process


class SimulatedFederation:
    """A federation on one machine."""

    def __init__(
        self,
        data: FederatedData,
        algorithm: AnyAlgorithm,
        learner: Learner,
        *,
        threads: int | None = None,
        memories: Memories | None = None,
    ):
        self.data = data
        self.algorithm = algorithm
        self.types = types_of(algorithm)
        self.checks = OutputChecks(algorithm, learner.model.spec)
        self.learner = learner
        self.threads = threads or os.cpu_count() or 1
        self.memories = memories or Memories()
        self.pool = ThreadPoolExecutor(self.threads, initializer=_single_threaded)
        # Seconds of computing per item, by kind of work, as last measured.
        self.pace: dict[str, float] = {}
        self.population: Population = data.sized_population()
        self.traffic = Traffic()

    def train(self, request: RoundRequest) -> Replies:
        """Let every client in the inbox train.

        A client that fails is a fault and does not stop the others.
        """
        inbox, whole = request.inbox, self.learner.model.spec
        spec, prepares = whole.only(request.ask.layers), request.ask.kind == "prepare"
        sent, trained = self._trained(request, spec)
        self.traffic.down += sum(sent.values())
        self.traffic.exchanges += len(sent)
        self.traffic.grouping_bytes += sum(
            size if prepares else inbox[client].grouping_bytes(whole)
            for client, size in sent.items()
        )
        errors: dict[ClientId, Exception] = {}
        file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # ends with the replies
        places: dict[ClientId, tuple[int, int]] = {}  # of the replies in the file
        decoded: dict[ClientId, Message] = {}

        def read(client: ClientId) -> Message:
            if client in decoded:
                return decoded[client]
            start, size = places[client]
            file.seek(start)
            return self.types.up.from_bytes(file.read(size), spec)

        answers = Lazy(places, read)
        weakref.finalize(answers, file.close)
        faults: dict[ClientId, str] = {}
        losses: dict[ClientId, float] = {}
        for client, done in trained:
            if isinstance(done, Exception):
                errors[client], done = done, _failed(done)
            if isinstance(done, str):
                faults[client] = done
                continue
            raw, meter = done.raw, done.meter
            count_work(self.traffic, meter, done.examples)
            if meter.losses.mean is not None:
                losses[client] = meter.losses.mean
            self.traffic.up += len(raw)
            self.traffic.grouping_bytes += len(raw) if prepares else 0
            try:
                reply = self.types.up.from_bytes(raw, spec)
                if len(decoded) < MAX_DECODED:
                    decoded[client] = reply
                places[client] = file.tell(), file.write(raw)
            except WireError as error:
                faults[client] = f"malformed: {error}"
        if request.round_number <= 1 and 1 < len(inbox) == len(errors):
            # Every client failed in the first round: a bug, not a bad client.
            raise errors[min(errors)]
        return Replies(answers, faults, losses)

    def _trained(
        self, request: RoundRequest, spec: ModelSpec
    ) -> tuple[Mapping[ClientId, int], Iterator[tuple[ClientId, Trained | Exception | str]]]:
        """Let clients train; return the bytes sent to each that was reached, and what each did.

        An exception or a fault stands for a client that failed. spec: of the layers in a reply.
        """
        delivered, sent = self._deliver(request.inbox)
        return sent, self._train_all(request.round_number, spec, delivered)

    def _train_all(
        self, round_number: int, spec: ModelSpec, delivered: Mapping[ClientId, Any]
    ) -> Iterator[tuple[ClientId, Trained | Exception]]:
        """Let these clients train; yield what each of them did, or why it failed, in order."""

        def work(client_id: ClientId) -> Trained | Exception:
            try:
                client = self._client(client_id, round_number)
                trained = self.train_one(client, delivered[client_id], round_number, spec)
                self.memories.store(client_id, round_number, trained.memory)
                return trained
            except Exception as error:  # a client that fails never stops the others
                return error

        yield from self._each("train", work, sorted(delivered))

    def train_one(
        self, client: Client, message: Message, round_number: int, spec: ModelSpec
    ) -> Trained:
        """Let one client train. spec: of the layers in its reply."""
        learner = self._learner(client.id, round_number)
        reply = self._reply(message, client, learner)
        answer = OutputChecks(self.algorithm, spec).message(reply, self.types.up, "train")
        raw = answer.to_bytes(spec)
        return Trained(raw, learner.meter, len(client.train), client.memory, answer)

    def _reply(self, message: Message, client: Client, learner: Learner) -> Message:
        """Return what a client replies; may be another message than it should be."""
        reply: Message = self.algorithm.train(message, client, learner)
        return reply

    def evaluate(
        self, round_number: int, inbox: Mapping[ClientId, Message], then: RoundRequest | None = None
    ) -> Mapping[ClientId, Score]:
        """Let every client in the inbox evaluate what it is sent; equal work is done once."""
        delivered, lengths = self._deliver(inbox)
        self.traffic.served += sum(lengths.values())
        return self.evaluate_all(round_number, delivered)

    def evaluate_all(
        self, round_number: int, delivered: Mapping[ClientId, Any]
    ) -> Mapping[ClientId, Score]:
        """Let clients evaluate what was delivered to them."""

        def look(client_id: ClientId) -> ClientEvaluation:
            client = self._client(client_id, round_number + 1)
            learner = self._learner(client_id, round_number)
            models = self.algorithm.model_for(delivered[client_id], client, learner)
            models = self.checks.models(models, "model_for")
            passes = learner.meter.grouping_passes
            return ClientEvaluation(models, client.test, client.group, passes, client.validation)

        clients, board = sorted(delivered), Scoreboard()
        scores: dict[ClientId, Score] = {}
        names: dict[ClientId, list[str]] = {}
        for start in range(0, len(clients), MAX_DECODED):  # the models of all clients may not fit
            trials = dict(self._each("look", look, clients[start : start + MAX_DECODED]))
            names |= {client: list(trial.models.views) for client, trial in trials.items()}
            self.checks.same_views(names)
            for trial in trials.values():
                board.plan(trial)
            work = partial(run_job, learner=self.learner)
            for job, tallies in self._each("score", work, board.jobs()):
                board.add(job, tallies)
            scores |= {client: board.score(trial) for client, trial in trials.items()}
            board.forget_personal()
        return scores

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Evaluate unseen clients; one that fails is a fault and does not stop the others."""

        def work(client_id: ClientId) -> Score | Exception:
            learner = self._learner(client_id, 0)
            client = replace(clients[client_id], memory={})
            try:
                models = self.algorithm.for_unseen(state, client, learner)
                models = self.checks.models(models, "for_unseen")
                return score_alone(models, client, learner)
            except Exception as error:  # one client's data must not lose a finished run
                return error

        scores: dict[ClientId, Score] = {}
        faults: dict[ClientId, str] = {}
        for client, score in self._each("unseen", work, sorted(clients)):
            if isinstance(score, Exception):
                faults[client] = _failed(score)
            else:
                scores[client] = score
        return UnseenScores(scores, faults)

    def rewind(self, round_number: int) -> None:
        """Restore clients as they were after this round."""
        self.memories.rewind(round_number)

    def forget(self, before: int) -> None:
        """Drop what clients stored before this round."""
        self.memories.forget(before)

    def warnings(self) -> list[str]:
        """Return no warnings: in one process, nothing can go wrong besides training."""
        return []

    def _deliver(self, inbox: Mapping[Key, Message]) -> tuple[dict[Key, Any], dict[Key, int]]:
        """Return what clients receive, and its size; a message for many is encoded once."""
        sent: dict[int, tuple[Any, int]] = {}
        for message in inbox.values():
            if id(message) not in sent:
                raw = message.to_bytes(self.learner.model.spec)
                sent[id(message)] = self._received(message, raw), len(raw)
        pairs = {key: sent[id(message)] for key, message in inbox.items()}
        delivered = {key: received for key, (received, _) in pairs.items()}
        return delivered, {key: size for key, (_, size) in pairs.items()}

    def _received(self, message: Message, raw: bytes) -> Any:
        """Return what clients receive of a message: what its bytes say."""
        return type(message).from_bytes(raw, self.learner.model.spec)

    def _client(self, client: ClientId, before: int) -> Client:
        return replace(self.data.client(client), memory=self.memories.load(client, before))

    def _learner(self, client: ClientId, round_number: int) -> Learner:
        return replace(self.learner, round_number=round_number, client_id=client, meter=Meter())

    def _each(
        self, kind: str, work: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Do work for every item, in parallel unless it is brief; yield results in order."""
        todo = list(items)
        spent: list[float] = []

        def timed(item: Item) -> Result:
            start = time.thread_time()
            result = work(item)
            spent.append(time.thread_time() - start)
            return result

        brief = self.pace.get(kind, math.inf) < BRIEF
        yield from zip(
            todo, _in_this_thread(timed, todo) if brief else self.pool.map(timed, todo), strict=True
        )
        if spent:
            self.pace[kind] = sum(spent) / len(spent)


def _failed(error: Exception) -> str:
    return f"failed: {type(error).__name__}: {error}"


def _in_this_thread(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Do the work in this thread, on one core as in the threads of the pool."""
    with one_thread():
        return [work(item) for item in items]


def _single_threaded() -> None:
    # Asking first settles this thread's number: else torch reads it at the first operation from
    # the whole process, where another thread may have set it since.
    torch.get_num_threads()
    torch.set_num_threads(1)
