"""How e2fl's messages travel in Flower's records.

A message is an array of bytes, the same as in the simulator, and a few values about it. A node may
have several clients: one message carries what all of them need, and one reply what all of them send.
Replies come from clients, so everything in them is checked: here, and for scores in `scores`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP
from e2fl.learning.autograd import Losses
from e2fl.learning.learner import Meter

POPULATION = "query.population"  # the message type that asks a node which clients it has
METADATA, BYTES = "e2fl", "bytes"  # the record in every message, and the array in a payload
PAYLOAD, WORK, ERROR = "payload", "work", "error"  # records of one client, named KIND-CLIENT
MAX_REASON = 500  # characters

NodeId = int
Parts = dict[str, ConfigRecord | ArrayRecord]  # the records of one client, by kind
Count = Annotated[int, Field(ge=0, le=2**53)]
Passes = Annotated[float, Field(ge=0, le=1e9)]  # bounded, so that sums stay finite
Clients = Annotated[list[int], Field(min_length=1, max_length=100_000)]


class ImpostorError(WireError):
    """A reply in the name of another client."""

    fault = "impostor"


class FailedError(WireError):
    """A client reports that it failed."""

    fault = "failed"


class Values(BaseModel):
    """The values of a record, of exactly the types declared."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def record(self) -> ConfigRecord:
        """Return the values as Flower's record."""
        return ConfigRecord(self.model_dump(exclude_none=True))


class RequestMetadata(Values):
    """What a client needs to know besides the message."""

    round_number: int
    run_id: str  # a client stores its models under this name
    server_id: str  # a restarted server has another one
    resumed_from: int  # this server resumed from this round: a client discards what it stored later
    oldest: int  # no round before this one will be resumed from
    layers: str = ""  # of the reply, separated by commas; empty: the whole model
    clients: list[int] = []  # of this node, as far as they are asked
    payloads: list[int] = []  # for each client, which payload is for it


class ReplyMetadata(Values):
    """Who replies, and to which round."""

    round_number: int
    clients: Clients


class Work(Values):
    """The work that a client reports besides its reply."""

    grouping_passes: Passes = 0.0
    trained_examples: Count = 0
    ballot_bits: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    examples: Annotated[Count, Field(ge=1)] = 1  # the training examples of the client
    training_loss: float | None = None  # a client may not train

    @classmethod
    def of(cls, meter: Meter, examples: int) -> "Work":
        """Return the work that a meter counted, of a client with this many training examples."""
        loss = meter.losses.mean
        return cls(
            grouping_passes=float(meter.grouping_passes),
            trained_examples=int(meter.examples),
            ballot_bits=float(meter.ballot_bits),
            examples=int(examples),
            training_loss=None if loss is None else float(loss),
        )

    def meter(self) -> Meter:
        """Return the work as the simulator counts it."""
        loss = Losses() if self.training_loss is None else Losses(self.training_loss, 1)
        return Meter(self.trained_examples, self.grouping_passes, self.ballot_bits, loss)


class Identity(Values):
    """The clients that a node says it has, and their groups."""

    clients: Clients
    groups: list[int]


Kind = TypeVar("Kind", bound=Values)


def named(kind: str, client_id: ClientId) -> str:
    """Return the name of a client's record of this kind."""
    return f"{kind}-{client_id}"


def read(kind: type[Kind], content: RecordDict, name: str) -> Kind:
    """Return the values of a record, or raise `WireError`."""
    record = content.config_records.get(name)
    if record is None:
        raise WireError(f"the reply has no record {name}")
    try:
        return kind.model_validate(dict(record))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise WireError(f"{name}.{where}: {first['msg']}") from None


def payload(raw: bytes) -> ArrayRecord:
    """Return bytes as a record. A record that is sent to many nodes is uploaded once."""
    return ArrayRecord({BYTES: Array(np.frombuffer(raw, dtype=np.uint8))})


def read_payload(content: RecordDict, name: str) -> bytes:
    """Return the bytes of a payload, or raise `WireError`."""
    record = content.array_records.get(name)
    array = None if record is None else record.get(BYTES)
    if array is None:
        raise WireError("the message has no payload")
    try:
        values = array.numpy()
    except Exception as error:  # numpy raises many kinds of errors on bytes that are not an array
        raise WireError(f"the payload cannot be read: {error}") from None
    if values.dtype != np.uint8 or values.ndim != 1:
        raise WireError(
            f"the payload is {values.dtype} of shape {values.shape}, not bytes in a row"
        )
    return values.tobytes()


def request_content(
    payloads: Mapping[ClientId, ArrayRecord], metadata: RequestMetadata
) -> RecordDict:
    """Return the content of a message to a node; a payload that its clients share is sent once."""
    distinct = {id(record): record for record in payloads.values()}
    position_of = {key: position for position, key in enumerate(distinct)}
    positions = [position_of[id(record)] for record in payloads.values()]
    clients = [int(client) for client in payloads]
    addressed = metadata.model_copy(update={"clients": clients, "payloads": positions})
    records = {named(PAYLOAD, position_of[key]): record for key, record in distinct.items()}
    return RecordDict({METADATA: addressed.record(), **records})


def read_request(content: RecordDict) -> tuple[RequestMetadata, dict[ClientId, bytes]]:
    """Return what the server sent to each client; for use on a node."""
    metadata = read(RequestMetadata, content, METADATA)
    raw = {at: read_payload(content, named(PAYLOAD, at)) for at in set(metadata.payloads)}
    addressed = zip(metadata.clients, metadata.payloads, strict=True)
    return metadata, {client: raw[position] for client, position in addressed}


def reply_parts(raw: bytes, work: Work) -> Parts:
    """Return a client's reply to a training request as records."""
    return {PAYLOAD: payload(raw), WORK: work.record()}


def error_parts(error: Exception) -> Parts:
    """Return the failure of a client as a record."""
    return {ERROR: ConfigRecord({"reason": f"{type(error).__name__}: {error}"[:MAX_REASON]})}


def reply_content(parts: Mapping[ClientId, Parts], round_number: int) -> RecordDict:
    """Return the content of a node's reply: the records of each of its clients."""
    clients = [int(client) for client in parts]
    content = RecordDict(
        {METADATA: ReplyMetadata(round_number=int(round_number), clients=clients).record()}
    )
    for client, records in parts.items():
        for kind, record in records.items():
            content[named(kind, client)] = record
    return content


def require_reply(content: RecordDict, asked: Sequence[ClientId], round_number: int) -> None:
    """Raise `WireError` unless the reply is from these clients and for this round."""
    metadata = read(ReplyMetadata, content, METADATA)
    if sorted(metadata.clients) != sorted(asked):
        expected, sent = sorted(asked)[:10], sorted(metadata.clients)[:10]
        raise ImpostorError(f"the node of clients {expected} replies as {sent}")
    if metadata.round_number != round_number:
        raise WireError(f"the reply is for round {metadata.round_number}, not for {round_number}")


def require_success(content: RecordDict, client_id: ClientId) -> None:
    """Raise `FailedError` if the reply says that this client failed."""
    failure = content.config_records.get(named(ERROR, client_id))
    if failure is not None:
        raise FailedError(printable(failure.get("reason")))


def read_reply(content: RecordDict, client_id: ClientId) -> tuple[bytes, Work]:
    """Return the reply of this client to a training request, or raise `WireError`."""
    require_success(content, client_id)
    work = read(Work, content, named(WORK, client_id))
    return read_payload(content, named(PAYLOAD, client_id)), work


def identity_content(declared: Mapping[ClientId, GroupId | None]) -> RecordDict:
    """Return the content of a node's reply to `POPULATION`."""
    groups = [NO_GROUP if group is None else int(group) for group in declared.values()]
    identity = Identity(clients=[int(client) for client in declared], groups=groups)
    return RecordDict({METADATA: identity.record()})


def read_identity(content: RecordDict, known: Population) -> dict[ClientId, GroupId | None]:
    """Return the clients that a node says it has, and the groups that they declare.

    known: the clients and groups there may be. Raises `WireError` for any other.
    """
    identity = read(Identity, content, METADATA)
    clients = identity.clients
    if len(set(clients)) != len(clients) or len(identity.groups) != len(clients):
        raise WireError("a node names a client twice, or not one group for each client")
    declared: dict[ClientId, GroupId | None] = {}
    for client, number in zip(clients, identity.groups, strict=True):
        if client not in known.declared:
            raise WireError(f"a node says it is client {client}, which the data set does not have")
        group, expected = None if number == NO_GROUP else number, known.declared[client]
        if group is not None and not 0 <= group < known.groups:
            raise WireError(f"client {client} declares group {group} of {known.groups} groups")
        if expected not in (None, group):
            raise WireError(f"client {client} declares group {group}; it is in group {expected}")
        declared[client] = group
    return declared


def printable(text: Any) -> str:
    """Return text from a client so that it can be shown in one line."""
    return "".join(char if char.isprintable() else " " for char in str(text)[:MAX_REASON])
