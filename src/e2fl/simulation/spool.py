"""Replies of many clients, without holding all of them in memory."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from e2fl.data.federated import ClientId
from e2fl.models import ModelSpec
from e2fl.wire import Message

Answer = TypeVar("Answer", bound=Message)

IN_MEMORY = 256 * 2**20  # bytes, as encoded


class Place(NamedTuple):
    """Where a reply lies in the file."""

    start: int
    size: int


class Spool(Mapping[ClientId, Answer], Generic[Answer]):
    """Decoded replies, in order of arrival.

    Beyond a limit they stay encoded in a temporary file until accessed.
    """

    def __init__(self, kind: type[Answer], spec: ModelSpec, limit: int = IN_MEMORY):
        self.kind, self.spec, self.limit = kind, spec, limit
        self.answers: dict[ClientId, Answer | Place] = {}
        self.held = 0
        self.end = 0

    def add(self, client: ClientId, raw: bytes) -> None:
        """Add a reply, or raise `WireError`."""
        answer = self.kind.from_bytes(raw, self.spec)
        if self.held + len(raw) <= self.limit:
            self.answers[client] = answer
            self.held += len(raw)
            return
        if not self.end:
            self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # ends with this object
        self.file.write(raw)
        self.answers[client] = Place(self.end, len(raw))
        self.end += len(raw)

    def __getitem__(self, client: ClientId) -> Answer:
        answer = self.answers[client]
        if not isinstance(answer, Place):
            return answer
        raw = os.pread(self.file.fileno(), answer.size, answer.start)
        return self.kind.from_bytes(raw, self.spec)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.answers)

    def __contains__(self, client: object) -> bool:
        return client in self.answers  # without decoding

    def __len__(self) -> int:
        return len(self.answers)
