"""The federated loop, once, for every algorithm and every runtime. Read this first.

`Server` is the server's side of a run: it asks clients, aggregates their replies and serves models.
`run` drives it over a `Federation`, simulated or on Flower.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from e2fl.algorithms import AnyAlgorithm, Election, types_of
from e2fl.algorithms.screening import Size, capped, clipped, clips_of, size_of
from e2fl.algorithms.validate import OutputChecks
from e2fl.data.federated import ClientId, Lazy, Population
from e2fl.errors import NothingLearnedError, WireError, expect
from e2fl.evaluation import Score
from e2fl.learning import one_thread
from e2fl.learning.learner import Meter
from e2fl.models import Model
from e2fl.participation import Ask, Participation, Uniform
from e2fl.randomness import stream
from e2fl.wire import Message, Nothing


@dataclass
class Traffic:
    """Bytes actually encoded since the run began, and the work that clients did."""

    up: int = 0
    down: int = 0
    served: int = 0  # sent for evaluation, not part of `down`
    grouping_bytes: int = 0  # of `up` and `down`, the bytes sent only to find groups
    exchanges: int = 0  # how often a client was sent a message to train from
    grouping_passes: float = 0.0  # over training data, spent by clients to find their group
    trainings: int = 0  # how often a client trained and replied
    trained_examples: int = 0  # examples processed in training steps, counted each time
    client_epochs: float = 0.0  # the same, as passes over the training data of a client
    ballot_bits: float = 0.0  # entropy of all ballots, the least that their coder could reach


def count_work(traffic: Traffic, meter: Meter, examples: int) -> None:
    """Add the work of one client, which has this many training examples."""
    traffic.trainings += 1
    traffic.trained_examples += meter.examples
    traffic.client_epochs += meter.examples / max(1, examples)
    traffic.grouping_passes += meter.grouping_passes
    traffic.ballot_bits += meter.ballot_bits


@dataclass(frozen=True)
class RoundRequest:
    """What clients are asked in one round, and the message for each."""

    round_number: int
    ask: Ask
    inbox: Mapping[ClientId, Message]


@dataclass(frozen=True)
class Replies:
    """The replies of a round, and why others are missing."""

    answers: Mapping[ClientId, Message]  # decoded, in rising order of client
    faults: Mapping[ClientId, str] = field(default_factory=dict)  # "kind: reason"
    # Of training, as clients report them.
    losses: Mapping[ClientId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UnseenScores:
    """Scores of unseen clients, and why some could not be evaluated."""

    scores: Mapping[ClientId, Score]
    faults: Mapping[ClientId, str] = field(default_factory=dict)  # "kind: reason"


class Federation(Protocol):
    """Clients, in this process or on other machines."""

    @property
    def population(self) -> Population: ...

    @property
    def traffic(self) -> Traffic: ...

    def train(self, request: RoundRequest) -> Replies:
        """Send each client its message and let it train."""
        ...

    def evaluate(
        self, round_number: int, inbox: Mapping[ClientId, Message], then: RoundRequest | None = None
    ) -> Mapping[ClientId, Score]:
        """Send each client its message and let it evaluate its models.

        then: the request of the next round, which may travel with it.
        """
        ...


@dataclass(frozen=True)
class Round:
    """The outcome of one round; enough to resume from."""

    number: int
    state: Any
    ever_answered: bool = False
    asked: tuple[ClientId, ...] = ()
    answered: tuple[ClientId, ...] = ()
    faults: Mapping[ClientId, str] = field(default_factory=dict)
    scores: Mapping[ClientId, Score] | None = None  # of rounds that are evaluated
    training_loss: float | None = None  # mean over accepted replies that report one


MAX_DECODED = 64  # decoded replies or models of clients kept in memory; others are read when needed


class Server:
    """The server of one run: what to ask next, what to do with replies, when to evaluate."""

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        model: Model,
        population: Population,
        *,
        rounds: int,
        seed: int,
        evaluate_every: int,
        evaluate_clients: int = 0,
        participation: Participation | None = None,
        update_limit: float = 0.0,
        examples_limit: int = 0,
        resume: Round | None = None,
    ):
        """Start a run, or resume one after the round `resume`.

        evaluate_clients: how many clients evaluate before the last round, always the same; 0: all.
        update_limit: clip updates with a norm above this many times the median of the round; 0:
        never.
        examples_limit: the most `examples` a reply may claim; 0: those of the largest client, if
        known.
        """
        self.algorithm, self.population, self.seed = algorithm, population, seed
        self.evaluate_every, self.update_limit = evaluate_every, update_limit
        self.evaluated = _sample(population.ids, evaluate_clients, seed)
        self.examples_limit = examples_limit or population.most_examples
        self.participation = participation or Uniform()
        self.types = types_of(algorithm)
        self.checks = OutputChecks(algorithm, model.spec)
        self.checks.signatures()
        self.last = expect(algorithm.rounds(rounds, population), int, algorithm, "rounds")
        self.done = resume or self._begin(model)
        if resume is None and self.ask_of(0).kind == "prepare":
            self.done = replace(self.done, number=-1)  # a preparation is round 0
        self.request: RoundRequest  # of the round that was asked for last
        # Called with each election: its round, and whether it is evaluated. It may read ballots
        # only during the call.
        self.on_election: Callable[[int, bool, Election], None] | None = None

    def _begin(self, model: Model) -> Round:
        """Return the round before the first one."""
        state = self.algorithm.start(model, self.population, self.seed)
        expect(state, self.types.state, self.algorithm, "start")
        # Fail now, not after the last round, if the description cannot be stored.
        self.checks.description(self.algorithm.describe(state))
        return Round(0, state)

    @property
    def state(self) -> Any:
        return self.done.state

    @property
    def finished(self) -> bool:
        return self.done.number >= self.last

    def ask_of(self, round_number: int) -> Ask:
        """Return the checked request of the algorithm for a round."""
        ask = self.algorithm.ask(
            self.state,
            self.population,
            round_number,
            self.last,
            lambda count: self._draw(count, round_number),
        )
        ask = self.checks.ask(ask, self.population)
        if self.types.up is Nothing:  # clients that train alone need no server
            return ask
        present = self.participation.present(self.population, round_number, self.seed)
        if present is self.population.ids:  # everyone: do not look up 100,000 clients
            return ask
        here = set(present)
        return replace(ask, clients=[client for client in ask.clients if client in here])

    def _draw(self, count: int, round_number: int) -> list[ClientId]:
        inferred = self.algorithm.describe(self.state).assignments
        groups = self.population.declared_groups if inferred is None else inferred
        return self.participation.draw(
            count, self.population, groups, round_number=round_number, seed=self.seed
        )

    def ask(self) -> RoundRequest:
        """Return the request of the next round."""
        number = self.done.number + 1
        ask = self.ask_of(number)
        sent = self.algorithm.broadcast(self.state, ask.clients)
        inbox = self.checks.messages(sent, ask.clients, self.types.down, "broadcast")
        self.request = RoundRequest(number, ask, inbox)
        return self.request

    def take(self, replies: Replies) -> None:
        """Aggregate the replies to the last request."""
        accepted, faults = self.accept(replies)
        with one_thread():
            after = self.algorithm.aggregate(self.state, accepted) if accepted else self.state
        state = expect(after, self.types.state, self.algorithm, "aggregate")
        number, trains = self.request.round_number, self.request.ask.kind == "train"
        if self.on_election is not None and trains:
            election = self.algorithm.election(self.state, accepted, state)
            if election is not None:
                self.on_election(number, self.evaluates, election)
        losses = [replies.losses[client] for client in accepted if client in replies.losses]
        self.done = Round(
            number,
            state,
            self.done.ever_answered or bool(accepted),
            tuple(self.request.ask.clients),
            tuple(accepted),
            faults,
            training_loss=sum(losses) / len(losses) if losses else None,
        )

    def accept(self, replies: Replies) -> tuple[Mapping[ClientId, Message], dict[ClientId, str]]:
        """Return the accepted replies, and why others are missing, rejected or clipped."""
        faults = dict(replies.faults)
        decoded: dict[ClientId, Message] = {}
        accepted: list[ClientId] = []
        sizes: dict[ClientId, Size] = {}
        for client in replies.answers:
            try:
                reply, note = self._checked(client, replies)
            except WireError as error:
                faults[client] = f"refused: {error}"
                continue
            accepted.append(client)
            if len(decoded) < MAX_DECODED:
                decoded[client] = reply
            if note:
                faults[client] = f"clipped: {note}"
            if self.update_limit and (sent := self.request.inbox.get(client)) is not None:
                size = size_of(reply, self.algorithm.origin(sent, reply), sent)
                sizes |= {} if size is None else {client: size}
        weighs_losses = self.algorithm.weighs_losses
        clips = clips_of(sizes, self.update_limit, weighs_losses=weighs_losses)
        faults |= {client: f"clipped: {clip.reason}" for client, clip in clips.items()}

        def read(client: ClientId) -> Message:
            reply = decoded.get(client) or self._checked(client, replies)[0]
            if client not in clips:
                return reply
            origin = self.algorithm.origin(self.request.inbox[client], reply)
            return clipped(reply, origin or {}, clips[client])

        return Lazy(tuple(accepted), read), faults

    def _checked(self, client: ClientId, replies: Replies) -> tuple[Message, str]:
        """Return a reply as the algorithm reads it, and what was changed in it."""
        answer, note = capped(replies.answers[client], self.examples_limit)
        reply = self.algorithm.check(self.state, client, answer)
        return expect(reply, self.types.up, self.algorithm, "check"), note

    @property
    def due(self) -> bool:
        """Whether the round that was asked for is evaluated even if it is not the last one."""
        ask, number = self.request.ask, self.request.round_number
        return ask.kind == "train" and ask.evaluate and number % self.evaluate_every == 0

    @property
    def evaluates(self) -> bool:
        """Whether the round that was asked for is evaluated."""
        return self.due or self.request.round_number == self.last

    def serve(self) -> Mapping[ClientId, Message] | None:
        """Return the messages that clients evaluate after this round; None: it is not evaluated."""
        if not self.evaluates:
            return None
        clients = self.population.ids if self.done.number == self.last else self.evaluated
        served = self.algorithm.serve(self.state, clients)
        return self.checks.messages(served, clients, self.types.served, "serve")

    def require_replies(self) -> None:
        """Raise `NothingLearnedError` if no client sent a usable reply in the whole run."""
        if not self.done.ever_answered:
            reason = next(iter(self.done.faults.values()), "no client was asked")
            raise NothingLearnedError(
                "no client sent a usable reply, so nothing was learned; "
                f"the last reason was: {reason}"
            )


def _sample(clients: Sequence[ClientId], count: int, seed: int) -> Sequence[ClientId]:
    """Return this many of the clients in their order, the same for a seed; 0: all of them."""
    if not 0 < count < len(clients):
        return clients
    positions = stream(seed, "evaluation").choice(len(clients), size=count, replace=False)
    return [clients[position] for position in sorted(positions)]


def run(server: Server, federation: Federation) -> Iterator[Round]:
    """Run the remaining rounds, one by one; the last is always evaluated."""
    request = None if server.finished else server.ask()
    while request is not None:
        server.take(federation.train(request))
        offered = server.serve()
        done = server.done
        request = None if server.finished else server.ask()
        scores = None if offered is None else federation.evaluate(done.number, offered, request)
        # Evaluation may fail for every client; the run continues without scores.
        yield replace(done, scores=scores or None)
    server.require_replies()
