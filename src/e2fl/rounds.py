"""The federated loop, once, for every algorithm and every runtime. Read this first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from e2fl.algorithms import AnyAlgorithm
from e2fl.data.federated import ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score
from e2fl.models import Model
from e2fl.randomness import stream
from e2fl.wire import Message


@dataclass
class Traffic:
    """Bytes really encoded, since the run began; training and serving apart. And what finding groups took."""

    up: int = 0
    down: int = 0
    served: int = 0
    finding: int = 0  # of those up and down, the bytes that were sent only to find out who is in which group
    exchanges: int = 0  # how often a client was sent something to train from
    passes: float = 0.0  # over their training data that clients spent to find out, beside training
    trainings: int = 0  # how often a client trained
    trained_examples: int = 0  # training examples processed, each as often as it was
    client_epochs: float = 0.0  # passes over a client's own training data, summed over all trainings


@dataclass(frozen=True)
class Replies:
    """What came back of a round: who answered, and who did not and why."""

    answers: Mapping[ClientId, Message]  # decoded, in rising order of client
    faults: Mapping[ClientId, str] = field(default_factory=dict)  # a kind, then a colon, then the reason


@dataclass(frozen=True)
class UnseenScores:
    """How clients fare that never took part, and for whom that could not be told, and why."""

    scores: Mapping[ClientId, Score]
    faults: Mapping[ClientId, str] = field(default_factory=dict)  # a kind, then a colon, then the reason


class Federation(Protocol):
    """Clients, wherever they are."""

    @property
    def population(self) -> Population: ...

    @property
    def traffic(self) -> Traffic: ...

    def train(self, number: int, inbox: Mapping[ClientId, Message]) -> Replies:
        """Let these clients train on what they are sent."""
        ...

    def evaluate(self, number: int, inbox: Mapping[ClientId, Message]) -> Mapping[ClientId, Score]:
        """Let these clients try what they are given."""
        ...


@dataclass(frozen=True)
class Round:
    """What a round leaves behind; enough to go on from."""

    number: int
    state: Any
    ever_answered: bool = False
    asked: tuple[ClientId, ...] = ()
    answered: tuple[ClientId, ...] = ()
    faults: Mapping[ClientId, str] = field(default_factory=dict)
    scores: Mapping[ClientId, Score] | None = None  # of the rounds that are evaluated


def run(
    algorithm: AnyAlgorithm,
    federation: Federation,
    model: Model,
    *,
    rounds: int,
    seed: int,
    evaluate_every: int,
    resume: Round | None = None,
) -> Iterator[Round]:
    """Rounds, one by one; the last is always evaluated."""
    population = federation.population
    last = algorithm.rounds(rounds, population)
    if resume is None:
        resume = Round(algorithm.first_round - 1, algorithm.start(model, population, seed))
    state, ever_answered = resume.state, resume.ever_answered
    for number in range(resume.number + 1, last + 1):
        asked = algorithm.finale(state, population) if number == last else None
        if asked is None:
            asked = algorithm.select(state, population, number, stream(seed, "select", number))
        replies = federation.train(number, algorithm.broadcast(state, asked))
        answers, faults = admit(algorithm, state, replies)
        state = algorithm.aggregate(state, answers)
        ever_answered = ever_answered or bool(answers)
        scores = None
        if number == last or (number > 0 and algorithm.improves and number % evaluate_every == 0):
            # Nobody may be left to say how it fares; the run goes on all the same.
            scores = federation.evaluate(number, algorithm.serve(state, population.ids)) or None
        yield Round(number, state, ever_answered, tuple(asked), tuple(answers), faults, scores)
    if not ever_answered:
        reason = next(iter(faults.values()), "no client was asked") if resume.number < last else "no client was asked"
        raise RunError(f"no client ever sent a usable answer, so nothing was learnt; the last reason was: {reason}")


def admit(
    algorithm: AnyAlgorithm, state: Any, replies: Replies
) -> tuple[Mapping[ClientId, Message], dict[ClientId, str]]:
    """The answers this algorithm takes, and the reasons why others are left out."""
    faults = dict(replies.faults)
    admitted: dict[ClientId, None] = {}
    for client, answer in replies.answers.items():
        try:
            algorithm.check(state, client, answer)
            admitted[client] = None
        except WireError as error:
            faults[client] = f"refused: {error}"
    return Admitted(replies.answers, admitted), faults


@dataclass(frozen=True)
class Admitted(Mapping[ClientId, Message]):
    """Some of the answers; none is held here, for all of them may be more than memory holds."""

    answers: Mapping[ClientId, Message]
    ids: Mapping[ClientId, None]

    def __getitem__(self, client: ClientId) -> Message:
        if client not in self.ids:
            raise KeyError(client)
        return self.answers[client]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)
