"""SimulatedFederation: a federation in this process, its clients side by side in threads.

One client a core, torch single-threaded inside: clients are independent, so this is the parallelism that costs nothing,
and a result cannot depend on how many threads there are. Clients that train for a moment only are trained one after
the other: in so short a time threads mostly wait for each other.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import torch

from e2fl.algorithms import AnyAlgorithm, ClientModels
from e2fl.data.federated import Client, ClientId, Examples, FederatedData, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import Score
from e2fl.learning import Learner
from e2fl.rounds import Replies, Traffic, UnseenScores
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.evaluator import Scoreboard, do
from e2fl.simulation.spool import Spool
from e2fl.wire import Message

Item = TypeVar("Item")
Result = TypeVar("Result")

BRIEF = 0.002  # seconds of computing; for less, threads do not pay


class SimulatedFederation:
    """A federation of one machine."""

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
        self.learner = learner
        self.threads = threads or os.cpu_count() or 1
        self.memories = memories or Memories()
        self.pool = ThreadPoolExecutor(self.threads, initializer=_single_threaded)
        self.pace: dict[str, float] = {}  # by kind of work: seconds of computing an item took, when last measured
        self.population: Population = data.population
        self.traffic = Traffic()

    def train(self, number: int, inbox: Mapping[ClientId, Message]) -> Replies:
        """Every client in `inbox` trains; an answer that cannot be had is a fault of that client alone."""
        delivered, lengths = self._deliver(inbox)
        self.traffic.down += sum(lengths.values())
        self.traffic.exchanges += len(inbox)
        spec = self.algorithm.reply_spec(number, self.learner.model.spec)
        prepares = number < 1
        self.traffic.finding += sum(
            lengths[client] if prepares else message.finding_bytes(self.learner.model.spec)
            for client, message in inbox.items()
        )
        errors: dict[ClientId, Exception] = {}

        def work(number_of: ClientId) -> tuple[bytes, float, int, int] | None:
            try:
                client = self._client(number_of, number)
                learner = replace(self.learner, number=number, client=number_of, passes=[], trained=[])
                answer: Message = self.algorithm.train(delivered[number_of], client, learner)
                self.memories.store(number_of, number, client.memory)
                return answer.to_bytes(spec), sum(learner.passes), sum(learner.trained), len(client.train)
            except Exception as error:  # whatever a client does, the others go on
                errors[number_of] = error
                return None

        answers: Spool[Message] = Spool(self.algorithm.up, spec)
        faults: dict[ClientId, str] = {}
        for client, done in self._each("train", work, sorted(inbox)):
            if done is None:
                faults[client] = _failed(errors[client])
                continue
            raw, passes, trained, own = done
            self.traffic.passes += passes
            self.traffic.trainings += 1
            self.traffic.trained_examples += trained
            self.traffic.client_epochs += trained / max(1, own)
            self.traffic.up += len(raw)
            self.traffic.finding += len(raw) if prepares else 0
            try:
                answers.add(client, raw)
            except WireError as error:
                faults[client] = f"malformed: {error}"
        if number == self.algorithm.first_round and 1 < len(inbox) == len(errors):
            raise errors[min(errors)]  # nobody got through from the start: that is no bad client but a bad program
        return Replies(answers, faults)

    def evaluate(self, number: int, inbox: Mapping[ClientId, Message]) -> Mapping[ClientId, Score]:
        """Every client in `inbox` tries what it is given; equal work is done once."""
        delivered, lengths = self._deliver(inbox)
        self.traffic.served += sum(lengths.values())
        tests: dict[ClientId, tuple[Examples, GroupId | None]] = {}

        def look(number_of: ClientId) -> tuple[ClientModels, float]:
            client = self._client(number_of, number + 1)
            learner = replace(self.learner, number=number, client=number_of, passes=[])
            tests[number_of] = (client.test, client.group)
            return self.algorithm.model_for(delivered[number_of], client, learner), sum(learner.passes)

        return self._score(dict(self._each("look", look, sorted(inbox))), tests)

    def welcome(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Clients that never took part try what they are given; one that cannot is left out, and the others go on."""
        used: dict[ClientId, tuple[ClientModels, float]] = {}
        faults: dict[ClientId, str] = {}

        def look(number_of: ClientId) -> tuple[ClientModels, float] | Exception:
            learner = replace(self.learner, number=0, client=number_of, passes=[])
            newcomer = replace(clients[number_of], memory={})
            try:
                return self.algorithm.welcome(state, newcomer, learner), sum(learner.passes)
            except Exception as error:  # whatever a newcomer's data does, the run is over and must not be lost
                return error

        for client, found in self._each("welcome", look, sorted(clients)):
            if isinstance(found, Exception):
                faults[client] = _failed(found)
            else:
                used[client] = found
        tests = {number: (client.test, client.group) for number, client in clients.items()}
        try:
            scores = self._score(used, tests)
        except Exception:  # somebody's test examples are no good: one by one, to see whose
            scores = {}
            for client in used:
                try:
                    scores |= self._score({client: used[client]}, tests)
                except Exception as error:
                    faults[client] = _failed(error)
        return UnseenScores(scores, dict(sorted(faults.items())))

    def _score(
        self,
        used: Mapping[ClientId, tuple[ClientModels, float]],
        tests: Mapping[ClientId, tuple[Examples, GroupId | None]],
    ) -> dict[ClientId, Score]:
        """How each client fares with what it uses; equal work is done once."""
        board = Scoreboard()
        for client, (uses, _) in used.items():
            for use in uses.views.values():
                board.plan(use, tests[client][0])
        for job, found in self._each("score", lambda job: do(job, self.learner), board.jobs()):
            board.settle(job, found)
        return {
            client: Score(
                {name: board.result(use, *tests[client]) for name, use in uses.views.items()}, uses.group, passes
            )
            for client, (uses, passes) in used.items()
        }

    def rewind(self, number: int) -> None:
        """Clients go on as they were after this round."""
        self.memories.rewind(number)

    def forget(self, before: int) -> None:
        """Nobody will ask for what clients kept before this round."""
        self.memories.forget(before)

    def notices(self) -> list[str]:
        """In one process nothing goes wrong but training."""
        return []

    def _deliver(self, inbox: Mapping[ClientId, Message]) -> tuple[dict[ClientId, Message], dict[ClientId, int]]:
        """What clients receive, through real bytes; a message for many is encoded once."""
        spec = self.learner.model.spec
        opened: dict[int, tuple[Message, int]] = {}
        for message in inbox.values():
            if id(message) not in opened:
                raw = message.to_bytes(spec)
                opened[id(message)] = (type(message).from_bytes(raw, spec), len(raw))
        return (
            {client: opened[id(message)][0] for client, message in inbox.items()},
            {client: opened[id(message)][1] for client, message in inbox.items()},
        )

    def _client(self, client: ClientId, before: int) -> Client:
        return replace(self.data.client(client), memory=self.memories.load(client, before))

    def _each(self, kind: str, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """The work done for every item, in their order; by all threads, unless this kind of work is brief."""
        todo = list(items)
        spent: list[float] = []

        def timed(item: Item) -> Result:
            start = time.thread_time()
            result = work(item)
            spent.append(time.thread_time() - start)
            return result

        brief = self.pace.get(kind, math.inf) < BRIEF
        yield from zip(todo, _here(timed, todo) if brief else self.pool.map(timed, todo), strict=True)
        if spent:
            self.pace[kind] = sum(spent) / len(spent)


def _failed(error: Exception) -> str:
    return f"failed: {type(error).__name__}: {error}"


def _here(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The work done in this thread, and as in those of the pool, by one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [work(item) for item in items]
    finally:
        torch.set_num_threads(before)


def _single_threaded() -> None:
    torch.set_num_threads(1)
