"""How e2fl's bytes travel in Flower's records: one array of bytes, and a few facts about it.

The bytes are the same as in the simulator. What comes back is hostile until it is checked here.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP
from e2fl.learning.learner import Meter

ROLL = "query.population"
FACTS, PAYLOAD, BYTES = "e2fl", "payload", "bytes"
MOST_PASSES = 1e9
MOST_EXAMPLES = 2**53


class ImpostorError(WireError):
    """An answer in another client's name."""


@dataclass(frozen=True)
class Errand:
    """What a client must know beside the message: the round, and which of its memories are still true."""

    number: int  # the round
    run: str  # names the run: a client's memories are kept under this name
    life: str  # of the server; one that was restarted has another
    resumed: int  # the round this life went on from: what was kept after it never happened
    oldest: int  # no earlier round will be gone back to
    layers: str = ""  # of the reply, separated by commas; empty: the whole model


@dataclass(frozen=True)
class Claim:
    """What a node says of itself when the population is called."""

    client: ClientId
    group: GroupId | None


@dataclass(frozen=True)
class Answer:
    """What a client sent home."""

    raw: bytes
    meter: Meter  # the work it says it did
    examples: int = 1  # its training examples, as it says


def payload(raw: bytes) -> ArrayRecord:
    """Bytes as a record; one record may be sent to many, and is then uploaded once."""
    return ArrayRecord({BYTES: Array(np.frombuffer(raw, dtype=np.uint8))})


def outward(record: ArrayRecord, errand: Errand) -> RecordDict:
    return RecordDict({PAYLOAD: record, FACTS: ConfigRecord(asdict(errand))})


def received(content: RecordDict) -> tuple[Errand, bytes]:
    """What the server sent, on a client."""
    facts: dict[str, Any] = dict(content.config_records[FACTS])
    return Errand(**facts), _bytes(content)


def homeward(raw: bytes, client: ClientId, number: int, meter: Meter | None = None, examples: int = 1) -> RecordDict:
    meter = meter or Meter()
    facts = ConfigRecord(
        {
            "client": int(client),
            "number": int(number),
            "passes": float(meter.grouping_passes),
            "trained": int(meter.examples),
            "examples": int(examples),
        }
    )
    return RecordDict({PAYLOAD: payload(raw), FACTS: facts})


def answered(content: RecordDict, client: ClientId, number: int) -> Answer:
    """An answer to what this client was sent in this round, or `WireError`."""
    said = _whole(content, "client")
    if said != client:
        raise ImpostorError(f"client {client} answers as client {said}")
    if _whole(content, "number") != number:
        raise WireError(f"an answer is for round {_whole(content, 'number')}, not for round {number}")
    passes = content.config_records[FACTS].get("passes")
    if not isinstance(passes, float):
        raise WireError("an answer does not say its passes")
    refuse_passes(passes)
    trained, examples = _whole(content, "trained"), _whole(content, "examples")
    if not (0 <= trained <= MOST_EXAMPLES and 1 <= examples <= MOST_EXAMPLES):
        raise WireError(f"an answer claims to have trained on {trained} of {examples} examples")
    return Answer(_bytes(content), Meter(trained, passes), examples)


def refuse_passes(passes: float) -> None:
    """Raise `WireError` unless the number of passes a client claims is plausible, so that sums stay finite."""
    if not 0 <= passes <= MOST_PASSES:
        raise WireError(f"an answer claims {passes} passes over its data")


def presenting(claim: Claim) -> RecordDict:
    group = NO_GROUP if claim.group is None else claim.group
    return RecordDict({FACTS: ConfigRecord({"client": int(claim.client), "group": int(group)})})


def presented(content: RecordDict, known: Population) -> Claim:
    """Who a node says it is, or `WireError`. known: the clients and groups there may be."""
    client, group = _whole(content, "client"), _whole(content, "group")
    if client not in known.declared:
        raise WireError(f"a node says it is client {client}; there is none of that number")
    if group != NO_GROUP and not 0 <= group < known.groups:
        raise WireError(f"client {client} declares group {group}; there are {known.groups} groups")
    claim = Claim(client, None if group == NO_GROUP else group)
    if known.declared[client] not in (None, claim.group):
        raise WireError(f"client {client} declares group {claim.group}; it is in group {known.declared[client]}")
    return claim


def _whole(content: RecordDict, name: str) -> int:
    facts = content.config_records.get(FACTS)
    value = None if facts is None else facts.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"an answer does not say its {name}")
    return value


def _bytes(content: RecordDict) -> bytes:
    record = content.array_records.get(PAYLOAD)
    array = None if record is None else record.get(BYTES)
    if array is None:
        raise WireError("a message without bytes")
    try:
        values = array.numpy()
    except Exception as error:  # whatever a stranger put there
        raise WireError(f"a message whose bytes cannot be read: {error}") from None
    if values.dtype != np.uint8 or values.ndim != 1:
        raise WireError(f"a message whose bytes are {values.dtype} of shape {values.shape}")
    return values.tobytes()
