"""What the server and the nodes send each other, in Flower's records.

A message is JSON in a ConfigRecord, typed by the classes below, and payloads in an ArrayRecord:
e2fl's own messages as bytes, the same as in the simulator. A node may have several clients: one
message carries what all of them need, and one reply what all of them send.

Replies come from clients, so everything in them is checked: types by the classes, what a client can
have by `read_identity`, `read_reply` and `read_score`, and payloads by `wire`.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.wire import Message

POPULATION = "query.population"  # the message type that asks a node which clients it has
VALUES, PAYLOADS = "e2fl", "payloads"  # the two records of every message
MAX_REASON = 500  # characters
MAX_CLIENTS = 100_000  # of one node
MOST = 2.0**53  # of anything that is counted, so that sums stay finite and exact

NodeId = int
Value = TypeVar("Value")


class ReplyError(WireError):
    """What is wrong with a reply, by kind of fault."""

    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


def fault_of(error: WireError) -> str:
    """Return "kind: reason"."""
    return f"{getattr(error, 'kind', 'malformed')}: {error}"


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

    round_number: int
    # A client stores its models under this name.
    run_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    server_id: str  # a restarted server has another one
    resumed_from: int  # this server resumed from this round: a client discards what it stored later
    oldest: int  # no round before this one will be resumed from
    layers: tuple[str, ...] | None = None  # of the reply; None: the whole model
    payloads: dict[int, int]  # for each client, which payload is for it


class Work(Values):
    """The work that a client reports besides its reply."""

    trained_examples: Annotated[int, Field(ge=0, le=MOST)] = 0
    examples: Annotated[int, Field(ge=1, le=MOST)] = 1  # that the client has for training
    grouping_passes: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    ballot_bits: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    training_loss: float | None = None  # a client may not train


class ClientReply(Values):
    """What one client sends: the work of training, or a score, or why it failed."""

    work: Work | None = None
    score: Score | None = None
    error: Annotated[str, Field(max_length=MAX_REASON)] | None = None


class Reply(Values):
    """What the clients of a node send, and for which round."""

    round_number: int
    clients: Annotated[dict[int, ClientReply], Field(max_length=MAX_CLIENTS)]


def pack(values: Values, payloads: Mapping[int, Array] | None = None) -> RecordDict:
    """Return the content of a message; an array that is sent to many nodes is uploaded once."""
    text = values.model_dump_json(exclude_defaults=True)
    arrays = ArrayRecord()
    for name, array in (payloads or {}).items():  # the constructor would copy them
        arrays[str(name)] = array
    return RecordDict({VALUES: ConfigRecord({"json": text}), PAYLOADS: arrays})


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


def payload(raw: bytes) -> Array:
    """Return bytes as an array."""
    return Array(np.frombuffer(raw, dtype=np.uint8))


def read_payload(content: RecordDict, name: int) -> bytes:
    """Return the bytes of a payload, or raise `WireError`."""
    record = content.array_records.get(PAYLOADS)
    array = None if record is None else record.get(str(name))
    if array is None:
        raise WireError("the message has no payload")
    try:
        values = array.numpy()
    except Exception as error:  # numpy raises many kinds of errors on bytes that are not an array
        raise WireError(f"the payload cannot be read: {printable(error)}") from None
    if values.dtype != np.uint8 or values.ndim != 1:
        raise WireError(f"the payload has {values.dtype} in {values.ndim} dimensions, not bytes")
    return values.tobytes()


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


def read_reply(
    content: RecordDict, asked: Iterable[ClientId], round_number: int
) -> dict[ClientId, ClientReply]:
    """Return what each client sent; `WireError` unless they are those asked, in this round."""
    reply = unpack(Reply, content)
    if reply.clients.keys() != set(asked):
        expected, sent = sorted(asked)[:10], sorted(reply.clients)[:10]
        raise ReplyError("impostor", f"the node of clients {expected} replies as {sent}")
    if reply.round_number != round_number:
        raise WireError(f"the reply is for round {reply.round_number}, not for {round_number}")
    return reply.clients


def require_part(part: Value | None, reply: ClientReply) -> Value:
    """Return a part of a client's reply, or raise `WireError` if it failed or sent none."""
    if reply.error is not None:
        raise ReplyError("failed", printable(reply.error))
    if part is None:
        raise WireError("a client did not send what it was asked for")
    return part


def read_score(
    reply: ClientReply,
    declared: GroupId | None,
    population: Population,
    offered: tuple[GroupId, ...] = (),
) -> Score:
    """Return a client's score, or raise `WireError` if a client of this declared group cannot
    have it.

    offered: the groups the client could be served as (`offered_groups`).
    """
    score = require_part(reply.score, reply)
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
        if declared is not None and groups != [declared]:
            raise WireError(f"a score is for groups {groups[:10]}; the client declared {declared}")
        inside = [group for group in groups if 0 <= group < population.groups]
        if not groups or groups not in ([NO_GROUP], sorted(inside)):
            raise WireError(f"a score is for groups {groups[:10]} of {population.groups} groups")
        if not all(map(_possible, tallies.values())):
            raise WireError("the counts of a score contradict each other")
    return score


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
    """Return the groups a client may be served as.

    These are the groups that the message names, or one for each of its models.
    """
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
    odd = _unlike_most({client: _shape(score) for client, score in scores.items()})
    for choices in {len(groups) for groups in offered.values()}:
        odd |= _unlike_most(
            {
                client: score.group is not None
                for client, score in scores.items()
                if client not in odd and len(offered[client]) == choices
            }
        )
    kept = {client: score for client, score in scores.items() if client not in odd}
    return kept, dict.fromkeys(sorted(odd), "malformed: other views or groups than most clients")


def _unlike_most(kinds: Mapping[ClientId, Hashable]) -> set[ClientId]:
    """Return the clients whose kind is not the most common one; the first of equally common."""
    usual = [kind for kind, _ in Counter(kinds.values()).most_common(1)]
    return {client for client, kind in kinds.items() if kind not in usual}


def _shape(score: Score) -> Hashable:
    views = [*score.views.values(), *(score.validation or {}).values()]
    own = frozenset(tuple(tally.own) for view in views for tally in view.values())
    return tuple(score.views), tuple(score.validation or ()), own


def printable(text: object) -> str:
    """Return text from a client so that it can be shown in one line."""
    return "".join(char if char.isprintable() else " " for char in str(text)[:MAX_REASON])
