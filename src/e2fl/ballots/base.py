"""The interface of ballots: a ranking as bytes, encoded relative to a reference ranking that both ends know."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from e2fl.ranking import Ranking


@dataclass(frozen=True)
class Reference:
    """What server and client both know before a ballot is sent."""

    ranking: Ranking  # such as the one that was broadcast
    fan_in: Mapping[str, int] = field(default_factory=dict)  # inputs per unit, by layer; layers left out do not use it
    keep: float = 0.5  # the fraction of edges a mask keeps
    base: Ranking | None = None  # the server's ranking, of which `ranking` is a rounded copy; None: the same

    def only(self, layers: Iterable[str]) -> "Reference":
        """Return the reference of these layers."""
        ranking = {layer: self.ranking[layer] for layer in layers}
        base = None if self.base is None else {layer: self.base[layer] for layer in ranking}
        return replace(self, ranking=ranking, base=base)


class Ballot(ABC):
    """A format for sending a ranking. Subclasses are frozen dataclasses whose fields are settings."""

    @abstractmethod
    def encode(self, ranking: Ranking, reference: Reference) -> bytes:
        """Return the ranking as bytes. It must have the layers of the reference."""

    @abstractmethod
    def decode(self, raw: bytes | memoryview, reference: Reference) -> Ranking:
        """Return the full ranking that these bytes encode.

        Raises `WireError` unless they are exactly what `encode` writes for some ranking.
        """

    def rounded(self, ranking: Ranking, reference: Reference) -> Ranking:
        """Return the ranking after encoding and decoding."""
        return self.decode(self.encode(ranking, reference), reference)

    @abstractmethod
    def entropy_bits(self, ranking: Ranking, reference: Reference) -> float:
        """Return the bits an ideal coder with the same statistical model would need."""
