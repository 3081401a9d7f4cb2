"""FlowerFederation: a federation over a Flower grid. The loop in `rounds` cannot tell it from the simulator."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, MessageType
from flwr.serverapp import Grid

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import RunError, WireError
from e2fl.evaluation import Score
from e2fl.flower.evaluation_message import ScoreSheet, agreeing, offered, read
from e2fl.flower.records import Answer, Errand, ImpostorError, answered, outward, payload
from e2fl.flower.roster import Roster
from e2fl.flower.run_config import Options
from e2fl.flower.transport import Arrivals, Post
from e2fl.models import ModelSpec
from e2fl.rounds import Replies, Request, Traffic, UnseenScores, count_work
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.wire import Message


class FlowerFederation:
    """Clients on Flower's nodes."""

    def __init__(
        self,
        grid: Grid,
        algorithm: AnyAlgorithm,
        spec: ModelSpec,
        options: Options,
        *,
        known: Population,
        fingerprint: str = "",
        record: Path | None = None,
        at_home: Callable[[], SimulatedFederation] | None = None,
    ):
        """Call the population, or recall it.

        known: the clients and groups there may be; record: the file that stores the population of this run; at_home:
        makes a federation of the clients that only the server has.
        """
        self.algorithm, self.spec, self.options, self.at_home = algorithm, spec, options, at_home
        self.post = Post(grid, options.poll_seconds)
        self.roster = Roster(self.post, options, known=known, fingerprint=fingerprint)
        self.traffic = Traffic()
        self.resumed = self.oldest = -1  # before the first round, also where that is a preparation
        self.life = uuid.uuid4().hex
        self.spoken: list[str] = []
        remembered = _recall(record)
        if remembered is None:
            self.name, self.population = uuid.uuid4().hex, self.roster.gather(options.clients or len(known))
            _remember(record, self.name, self.population)
        else:
            # A run is gone on with by those who began it; whoever is not back yet is missing from its rounds.
            self.name, self.population = remembered
            self.roster.gather(len(self.population))

    def train(self, request: Request) -> Replies:
        """Let every client in the inbox that can be reached train; a client that does not reply well is a fault."""
        ask = request.ask
        sent, came, faults = self._exchange(
            MessageType.TRAIN, request.round_number, request.inbox, self.options.round_seconds, ask.layers
        )
        self.traffic.down += sum(sent.values())
        self.traffic.exchanges += len(sent)
        for answer in came.values():
            count_work(self.traffic, answer.meter, answer.examples)
        up = sum(len(answer.raw) for answer in came.values())
        self.traffic.up += up
        if ask.kind == "prepare":
            self.traffic.finding += up + sum(sent.values())
        else:
            self.traffic.finding += sum(request.inbox[client].grouping_bytes(self.spec) for client in sent)
        answers, malformed = decoded(came, types_of(self.algorithm).up, self.spec.only(ask.layers))
        counted, few = enough(answers, self.population, self.options)
        return Replies(counted, dict(sorted((few | faults | malformed).items())))

    def evaluate(self, number: int, inbox: Mapping[ClientId, Message]) -> Mapping[ClientId, Score]:
        """Every client in `inbox` that can be reached tries what it is given."""
        sent, came, faults = self._exchange(MessageType.EVALUATE, number, inbox, self.options.evaluate_seconds)
        self.traffic.served += sum(sent.values())
        kept, odd = scores_in(came, inbox, self.spec, self.population)
        faults |= odd
        self.spoken += [f"{fault} (client {client}, evaluation)" for client, fault in sorted(faults.items())]
        return kept

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Clients that never took part have no nodes: the server, which has their data, tries for them."""
        if self.at_home is None:
            raise RunError("there is nobody to try the models for clients without nodes")
        return self.at_home().evaluate_unseen(state, clients)

    def rewind(self, number: int) -> None:
        """Clients go on as they were after this round; each is told so with its next message."""
        self.resumed = number  # not `oldest`: the checkpoint before this one stays usable until the next is saved

    def forget(self, before: int) -> None:
        """What clients kept before this round is not needed any more; each is told so with its next message."""
        self.oldest = before

    def notices(self) -> list[str]:
        """What went wrong beside training since this was last asked."""
        found = self.roster.notices + self.spoken
        self.roster.notices, self.spoken = [], []
        return found

    def _exchange(
        self,
        kind: str,
        number: int,
        inbox: Mapping[ClientId, Message],
        seconds: float,
        layers: tuple[str, ...] | None = None,
    ) -> tuple[dict[ClientId, int], dict[ClientId, Answer], dict[ClientId, str]]:
        """Who was sent how many bytes, what came back in rising order of client, and what went wrong."""
        self.roster.update()
        errand = Errand(number, self.name, self.life, self.resumed, self.oldest, ",".join(layers or ()))
        reached = {client: node for client, node in sorted(self.roster.nodes.items()) if client in inbox}
        encoded = encode_once({client: inbox[client] for client in reached}, self.spec)
        letters = {node: outward(encoded[client][0], errand) for client, node in reached.items()}
        arrivals = self.post.exchange(kind, letters, seconds=seconds, about=str(number))
        came, faults = opened(arrivals, reached, number)
        self._overhear(arrivals)
        absent = sorted(inbox.keys() - reached.keys())
        faults |= dict.fromkeys(absent, "missing: no node is there for this client")
        return {client: size for client, (_, size) in encoded.items()}, came, faults

    def _overhear(self, arrivals: Arrivals) -> None:
        clients = {node: client for client, node in self.roster.nodes.items()}
        for node, notice in arrivals.others:
            whose = clients.get(node) if node is not None else None
            self.spoken.append(notice if whose is None else f"{notice} (client {whose})")


def encode_once(inbox: Mapping[ClientId, Message], spec: ModelSpec) -> dict[ClientId, tuple[ArrayRecord, int]]:
    """Each client's message as a record, and its length in bytes; a message for many is encoded once."""
    made: dict[int, tuple[ArrayRecord, int]] = {}
    for message in inbox.values():
        if id(message) not in made:
            raw = message.to_bytes(spec)
            made[id(message)] = (payload(raw), len(raw))
    return {client: made[id(message)] for client, message in inbox.items()}


def opened(
    arrivals: Arrivals, reached: Mapping[ClientId, int], number: int
) -> tuple[dict[ClientId, Answer], dict[ClientId, str]]:
    """Every answer, by the client whose node was asked, and what is wrong with the others."""
    came: dict[ClientId, Answer] = {}
    faults: dict[ClientId, str] = {}
    for client, node in sorted(reached.items()):
        if node in arrivals.faults:
            faults[client] = arrivals.faults[node]
        elif node in arrivals.answers:
            try:
                came[client] = answered(arrivals.answers[node], client, number)
            except ImpostorError as error:
                faults[client] = f"impostor: {error}"
            except WireError as error:
                faults[client] = f"malformed: {error}"
    return came, faults


def decoded(
    came: Mapping[ClientId, Answer], kind: type[Message], spec: ModelSpec
) -> tuple[dict[ClientId, Message], dict[ClientId, str]]:
    """Every answer as a message, and what is wrong with the others."""
    answers: dict[ClientId, Message] = {}
    faults: dict[ClientId, str] = {}
    for client, answer in came.items():
        try:
            answers[client] = kind.from_bytes(answer.raw, spec)
        except WireError as error:
            faults[client] = f"malformed: {error}"
    return answers, faults


def scores_in(
    came: Mapping[ClientId, Answer], inbox: Mapping[ClientId, Message], spec: ModelSpec, population: Population
) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
    """The scores of clients that were given what is in `inbox`, and what is wrong with the others."""
    offers = {client: offered(inbox[client]) for client in came}
    scores: dict[ClientId, Score] = {}
    faults: dict[ClientId, str] = {}
    for client, answer in came.items():
        try:
            scores[client] = read(ScoreSheet.from_bytes(answer.raw, spec), client, population, offers[client])
        except WireError as error:
            faults[client] = f"malformed: {error}"
    kept, odd = agreeing(scores, offers)
    return kept, faults | odd


def enough(
    answers: Mapping[ClientId, Message], population: Population, options: Options
) -> tuple[dict[ClientId, Message], dict[ClientId, str]]:
    """The answers that count, where rounds and groups need a least number of them, and why others do not."""
    if len(answers) < options.least_answers:
        return {}, dict.fromkeys(answers, f"few: {len(answers)} answers, and least-answers is {options.least_answers}")
    group = population.declared
    present = Counter(group[client] for client in answers)
    least = options.least_answers_per_group
    few = {
        client: f"few: group {group[client]} has {present[group[client]]} answers, and {least} are needed"
        for client in answers
        if group[client] is not None and present[group[client]] < least
    }
    return {client: answer for client, answer in answers.items() if client not in few}, few


def _remember(record: Path | None, name: str, population: Population) -> None:
    if record is None:
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    partial = record.with_suffix(".partial")
    clients = {str(client): population.declared[client] for client in population.ids}
    partial.write_text(json.dumps({"run": name, "groups": population.groups, "clients": clients}) + "\n")
    partial.replace(record)


def _recall(record: Path | None) -> tuple[str, Population] | None:
    if record is None or not record.is_file():
        return None
    try:
        kept = json.loads(record.read_text())
        return str(kept["run"]), Population(
            {int(client): group for client, group in kept["clients"].items()}, kept["groups"]
        )
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise RunError(f"{record} is damaged ({error}); start the run afresh in another folder") from error
