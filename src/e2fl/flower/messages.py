"""What the server and the nodes send each other, in Flower's records.

A message is JSON in a ConfigRecord, typed by the classes below, and payloads in ConfigRecords of
their own: e2fl's messages as bytes, the same as in the simulator. (Flower stores and sends each
record, array and chunk of an array by itself: a message is 4 objects, with an array 6.) One message
carries what all clients of a node need, to evaluate the last round and to train in the next, and
one reply what they send.

Replies come from clients, so everything in them is checked: types by the classes, what a client can
have by `read_identity`, `read_reply` and `read_score`, and payloads by `wire`. A fault is the text
"kind: reason".
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Annotated, TypeVar

from flwr.app import ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.wire import Message

POPULATION = "query.population"  # the message type that asks a node which clients it has
VALUES, PAYLOAD, RAW = "e2fl", "payload-", "raw"  # names of records, and of bytes in them
MAX_REASON = 500  # characters
MAX_CLIENTS = 100_000  # of one node
MOST = 2.0**53  # of anything that is counted, so that sums stay finite and exact

NodeId = int
Reason = Annotated[str, Field(max_length=MAX_REASON)]  # why a client failed


class Values(BaseModel):
    """Values of exactly the types declared."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, ser_json_inf_nan="constants"
    )


Kind = TypeVar("Kind", bound=Values)


class Query(Values):
    """The question which clients a node has; its experiment must be the server's."""

    fingerprint: str


class Identity(Values):
    """The clients that a node says it has, and their groups."""

    clients: Annotated[dict[int, int | None], Field(min_length=1, max_length=MAX_CLIENTS)]


class Request(Values):
    """What clients need to know besides their messages."""

    round_number: int  # to train in; what is evaluated is the outcome of the round before
    # A client stores its models under this name.
    run_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    server_id: str  # a restarted server has another one
    resumed_from: int  # this server resumed from this round: a client discards what it stored later
    oldest: int  # no round before this one will be resumed from
    layers: tuple[str, ...] | None = None  # of the replies to training; None: the whole model
    train: dict[int, int] = {}  # for each client that trains, which payload is for it
    evaluate: dict[int, int] = {}  # for each client that evaluates


class Work(Values):
    """The work that a client reports besides its reply."""

    trained_examples: Annotated[int, Field(ge=0, le=MOST)] = 0
    examples: Annotated[int, Field(ge=1, le=MOST)] = 1  # that the client has for training
    grouping_passes: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    ballot_bits: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    training_loss: float | None = None  # a client may not train


class Reply(Values):
    """What the clients of a node send, in the round of the request."""

    round_number: int
    trained: Annotated[dict[int, Work | Reason], Field(max_length=MAX_CLIENTS)] = {}
    scores: Annotated[dict[int, Score | Reason], Field(max_length=MAX_CLIENTS)] = {}


def pack(values: Values, payloads: Mapping[int, ConfigRecord] | None = None) -> RecordDict:
    """Return the content of a message; a payload that is sent to many nodes is uploaded once."""
    text = values.model_dump_json(exclude_defaults=True)
    content = RecordDict({VALUES: ConfigRecord({"json": text})})
    for name, record in (payloads or {}).items():
        content[f"{PAYLOAD}{name}"] = record
    return content


def unpack(kind: type[Kind], content: RecordDict) -> Kind:
    """Return the values of a message, or raise `WireError`."""
    record = content.config_records.get(VALUES)
    text = None if record is None else record.get("json")
    if not isinstance(text, str):
        raise WireError(f"the message has no JSON in a record {VALUES}")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WireError(printable(f"{where}: {first['msg']}")) from None


def payload(raw: bytes) -> ConfigRecord:
    """Return bytes as a record."""
    return ConfigRecord({RAW: raw})


def read_payload(content: RecordDict, name: int) -> bytes:
    """Return the bytes of a payload, or raise `WireError`."""
    record = content.config_records.get(f"{PAYLOAD}{name}")
    raw = None if record is None else record.get(RAW)
    if not isinstance(raw, bytes):
        raise WireError("the message has no payload")
    return raw


def read_identity(content: RecordDict, known: Population) -> dict[ClientId, GroupId | None]:
    """Return the clients that a node says it has, and the groups that they declare.

    known: the clients and groups there may be. Raises `WireError` for any other.
    """
    declared = unpack(Identity, content).clients
    for client, group in declared.items():
        if client not in known.declared:
            raise WireError(f"a node says it is client {client}, which the data set does not have")
        if group is not None and not 0 <= group < known.groups:
            raise WireError(f"client {client} declares group {group} of {known.groups} groups")
        expected = known.declared[client]
        if expected not in (None, group):
            raise WireError(f"client {client} declares group {group}; it is in group {expected}")
    return declared


def read_reply(content: RecordDict, request: Request) -> Reply | str:
    """Return a reply for the round and the clients of a request, or its fault."""
    try:
        reply = unpack(Reply, content)
    except WireError as error:
        return f"malformed: {error}"
    if reply.round_number != request.round_number:
        return f"malformed: a reply for round {reply.round_number}, not {request.round_number}"
    if {*reply.trained} != {*request.train} or {*reply.scores} != {*request.evaluate}:
        asked = sorted({*request.train, *request.evaluate})
        return f"impostor: the node of clients {asked[:10]} replies for others"
    return reply


def check_score(
    score: Score, declared: GroupId | None, population: Population, offered: tuple[GroupId, ...]
) -> None:
    """Raise `WireError` if a client of this declared group cannot have this score.

    offered: the groups the client could be served as (`offered_groups`).
    """
    # If no groups are offered, an algorithm may still have its own, but not more than clients.
    allowed = offered or range(max(population.groups, len(population)))
    if score.group is not None and score.group not in allowed:
        raise WireError(f"a score claims to be served as group {score.group}")
    if not 0 <= score.passes <= 1e9:
        raise WireError(f"a score claims {score.passes:g} passes to find the group")
    views = [*score.views.items(), *(score.validation or {}).items()]
    if not 1 <= len(views) <= 32 or not all(0 < len(n) <= 64 and n.isprintable() for n, _ in views):
        raise WireError("a score needs views with short, printable names")
    for _, tallies in views:
        groups = list(tallies)
        possible = [NO_GROUP], sorted(g for g in groups if 0 <= g < population.groups)
        if not groups or groups not in (possible if declared is None else [[declared]]):
            raise WireError(f"a score is for groups {groups[:10]}, which the client cannot have")
        if not all(map(_possible, tallies.values())):
            raise WireError("the counts of a score contradict each other")


def _possible(tally: Tally) -> bool:
    """Return whether counts are consistent; the loss of a model that diverged is not finite."""
    wrong = tally.n - tally.correct
    positive = (tally.true_positive, tally.false_positive, tally.false_negative)
    return (
        1 <= tally.n <= MOST
        and min(wrong, *positive) >= 0
        and tally.true_positive <= tally.correct
        and tally.false_positive + tally.false_negative <= wrong
        and not tally.loss < 0
        and not any(abs(value) > MOST for value in tally.own.values())
    )


def offered_groups(message: Message) -> tuple[GroupId, ...]:
    """Return what a client may be served as: groups that the message names, or one per model."""
    groups = getattr(message, "groups", None)
    if isinstance(groups, tuple):
        return groups
    models = [len(value) for value in vars(message).values() if isinstance(value, tuple)]
    return tuple(range(max(models, default=0)))


def comparable(
    scores: Mapping[ClientId, Score], offered: Mapping[ClientId, tuple[GroupId, ...]]
) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
    """Return the scores that can be compared, and what is wrong with the others.

    All must have the views and measures that most have. Among clients with the same number of
    groups to choose from, either all are served as a group or none is; the majority decides.
    """
    shapes = Counter(map(_shape, scores.values())).most_common(1)
    alike = {c: score for c, score in scores.items() if _shape(score) == shapes[0][0]}
    served = Counter((len(offered[c]), score.group is not None) for c, score in alike.items())
    usual = {choices: grouped for (choices, grouped), _ in reversed(served.most_common())}
    kept = {c: s for c, s in alike.items() if (s.group is not None) == usual[len(offered[c])]}
    odd = sorted(scores.keys() - kept.keys())
    return kept, dict.fromkeys(odd, "malformed: other views or groups than most clients")


def _shape(score: Score) -> Hashable:
    views = [*score.views.values(), *(score.validation or {}).values()]
    own = frozenset(tuple(tally.own) for view in views for tally in view.values())
    return tuple(score.views), tuple(score.validation or ()), own


def printable(text: object) -> str:
    """Return text from a client so that it can be shown in one line."""
    return "".join(char if char.isprintable() else " " for char in str(text)[:MAX_REASON])
