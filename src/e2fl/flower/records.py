"""How e2fl's messages travel in Flower's records: one array of bytes, and a few values about it.

The bytes are the same as in the simulator. Replies come from clients, so everything in them is checked here.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP
from e2fl.learning.autograd import Losses
from e2fl.learning.learner import Meter

POPULATION = "query.population"  # the message type that asks a node which client it is
METADATA, PAYLOAD, BYTES = "e2fl", "payload", "bytes"  # names of records, and of the array in the payload
MAX_PASSES = 1e9
MAX_EXAMPLES = 2**53
MAX_BITS = 1e15


class ImpostorError(WireError):
    """A reply in the name of another client."""


@dataclass(frozen=True)
class RequestMetadata:
    """What a client needs to know besides the message: the round, and which of its stored models are valid."""

    round_number: int
    run_id: str  # a client stores its models under this name
    server_id: str  # a restarted server has another one
    resumed_from: int  # the round this server resumed from: a client discards what it stored after it
    oldest: int  # no round before this one will be resumed from
    layers: str = ""  # of the reply, separated by commas; empty: the whole model


@dataclass(frozen=True)
class Identity:
    """Which client a node says it is, and the group it declares."""

    client_id: ClientId
    group: GroupId | None


@dataclass(frozen=True)
class Reply:
    """A client's reply, checked but not decoded."""

    raw: bytes
    meter: Meter  # the work the client reports
    examples: int = 1  # the number of training examples the client reports


def payload(raw: bytes) -> ArrayRecord:
    """Return bytes as a record. A record that is sent to many nodes is uploaded once."""
    return ArrayRecord({BYTES: Array(np.frombuffer(raw, dtype=np.uint8))})


def request_content(record: ArrayRecord, metadata: RequestMetadata) -> RecordDict:
    """Return the content of a message to a client."""
    return RecordDict({PAYLOAD: record, METADATA: ConfigRecord(asdict(metadata))})


def read_request(content: RecordDict) -> tuple[RequestMetadata, bytes]:
    """Return what the server sent; for use on a client."""
    values: dict[str, Any] = dict(content.config_records[METADATA])
    return RequestMetadata(**values), _bytes(content)


def reply_content(
    raw: bytes, client_id: ClientId, round_number: int, meter: Meter | None = None, examples: int = 1
) -> RecordDict:
    """Return the content of a client's reply."""
    meter = meter or Meter()
    values = ConfigRecord(
        {
            "client_id": int(client_id),
            "round_number": int(round_number),
            "grouping_passes": float(meter.grouping_passes),
            "trained_examples": int(meter.examples),
            "ballot_bits": float(meter.ballot_bits),
            "examples": int(examples),
            **({} if meter.losses.mean is None else {"training_loss": float(meter.losses.mean)}),
        }
    )
    return RecordDict({PAYLOAD: payload(raw), METADATA: values})


def read_reply(content: RecordDict, client_id: ClientId, round_number: int) -> Reply:
    """Return the reply of this client to the request of this round, or raise `WireError`."""
    sender = _integer(content, "client_id")
    if sender != client_id:
        raise ImpostorError(f"client {client_id} replies as client {sender}")
    replied_to = _integer(content, "round_number")
    if replied_to != round_number:
        raise WireError(f"the reply is for round {replied_to}, not for round {round_number}")
    passes = content.config_records[METADATA].get("grouping_passes")
    if not isinstance(passes, float):
        raise WireError("the reply has no grouping_passes, or not as a float")
    require_passes(passes)
    trained, examples = _integer(content, "trained_examples"), _integer(content, "examples")
    if not (0 <= trained <= MAX_EXAMPLES and 1 <= examples <= MAX_EXAMPLES):
        raise WireError(f"the reply claims {trained} trained examples and {examples} examples")
    bits = content.config_records[METADATA].get("ballot_bits")
    if not isinstance(bits, float) or not 0 <= bits <= MAX_BITS:
        raise WireError(f"the reply claims {bits!r} bits of entropy; a float between 0 and {MAX_BITS:g} is expected")
    loss = content.config_records[METADATA].get("training_loss")  # a client that does not train has none
    if loss is not None and not isinstance(loss, float):
        raise WireError(f"the reply claims a training loss of {loss!r}; a float is expected")
    return Reply(_bytes(content), Meter(trained, passes, bits, Losses() if loss is None else Losses(loss, 1)), examples)


def require_passes(passes: float) -> None:
    """Raise `WireError` unless the number of passes a client reports is plausible, so that sums stay finite."""
    if not 0 <= passes <= MAX_PASSES:
        raise WireError(f"the reply claims {passes} passes over the client's data")


def identity_content(identity: Identity) -> RecordDict:
    """Return the content of a node's reply to `POPULATION`."""
    group = NO_GROUP if identity.group is None else identity.group
    return RecordDict({METADATA: ConfigRecord({"client_id": int(identity.client_id), "group": int(group)})})


def read_identity(content: RecordDict, known: Population) -> Identity:
    """Return which client a node says it is, or raise `WireError`. known: the clients and groups there may be."""
    client_id, group = _integer(content, "client_id"), _integer(content, "group")
    if client_id not in known.declared:
        raise WireError(f"a node says it is client {client_id}, which the data set does not have")
    if group != NO_GROUP and not 0 <= group < known.groups:
        raise WireError(f"client {client_id} declares group {group}; there are {known.groups} groups")
    identity = Identity(client_id, None if group == NO_GROUP else group)
    expected = known.declared[client_id]
    if expected not in (None, identity.group):
        raise WireError(f"client {client_id} declares group {identity.group}; it is in group {expected}")
    return identity


def _integer(content: RecordDict, name: str) -> int:
    values = content.config_records.get(METADATA)
    value = None if values is None else values.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"the reply has no {name}, or not as an integer")
    return value


def _bytes(content: RecordDict) -> bytes:
    record = content.array_records.get(PAYLOAD)
    array = None if record is None else record.get(BYTES)
    if array is None:
        raise WireError("the message has no payload")
    try:
        values = array.numpy()
    except Exception as error:  # numpy raises many kinds of errors on bytes that are not an array
        raise WireError(f"the payload cannot be read: {error}") from None
    if values.dtype != np.uint8 or values.ndim != 1:
        raise WireError(f"the payload is {values.dtype} of shape {values.shape}; it must be one row of bytes")
    return values.tobytes()
