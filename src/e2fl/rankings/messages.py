"""Messages between E2FL's server and clients.

Rankings travel exactly, as in the paper, or coded (`e2fl.rankings.ballots`). The forms of a message
have one base class, which tells them apart by the kind in the header.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Self

from e2fl.errors import WireError
from e2fl.learning.learner import Meter
from e2fl.models import ModelSpec
from e2fl.rankings.ballots import Ballot, Moves, Reference, decode_mask, encode_mask
from e2fl.rankings.order import Mask, Ranking, WeightTable, edges_of, read_table, write_table
from e2fl.wire import Message, mask_size


class Downlink(Message):
    """What the server sends."""

    @cached_property
    def cache(self) -> dict[str, Any]:
        """The decoded content, shared by all clients in this process."""
        return {}


class Invitation(Downlink):
    """The ranking to start from, and, if the client infers its group, the mask of every group."""


@dataclass(frozen=True)
class ExactInvitation(Invitation, wire_name="Invitation"):
    """An invitation as in the paper: the exact ranking, and one bit per edge of a mask."""

    ranking: Ranking
    masks: tuple[Mask, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return len(self.masks) * mask_size(model)


@dataclass(frozen=True)
class CodedInvitation(Invitation):
    """An invitation with a coded ranking, and masks as differences to the mask of that ranking."""

    lengths: tuple[int, ...]  # bytes of each code; the ranking comes first
    codes: bytes

    @classmethod
    def of(cls, invitation: ExactInvitation, downlink: Ballot, origin: Reference) -> Self:
        """Encode an invitation. origin: the initial ranking, which clients know from the seed."""
        mask_reference = Reference(invitation.ranking, keep=origin.keep)
        masks = [encode_mask(mask, mask_reference) for mask in invitation.masks]
        codes = [downlink.encode(invitation.ranking, origin), *masks]
        return cls(tuple(map(len, codes)), b"".join(codes))

    def decode(self, downlink: Ballot, origin: Reference) -> ExactInvitation:
        """Return the decoded invitation, or raise `WireError`."""
        ranking, *masks = split_codes(self.codes, self.lengths)
        start = downlink.decode(ranking, origin)
        mask_reference = Reference(start, keep=origin.keep)
        return ExactInvitation(start, tuple(decode_mask(mask, mask_reference) for mask in masks))

    def grouping_bytes(self, model: ModelSpec) -> int:
        return sum(self.lengths[1:])


class Ballots(Message):
    """One ranking for each group the client votes in.

    The group is `NO_GROUP` if the server knows it.
    """

    groups: tuple[int, ...]

    def counted_rankings(self) -> tuple[Ranking, ...]:
        """Return the rankings that the server will count, as far as the client can tell."""
        return ()


@dataclass(frozen=True)
class ExactBallots(Ballots, wire_name="Ballots"):
    """Ballots as in the paper: exact rankings."""

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]

    def counted_rankings(self) -> tuple[Ranking, ...]:
        return self.rankings

    def decode(self, ballot: Ballot, reference: Reference, sent: WeightTable) -> "ExactBallots":
        return self


@dataclass(frozen=True)
class CodedBallots(Ballots):
    """Ballots coded against the ranking that the client was sent."""

    groups: tuple[int, ...]
    lengths: tuple[int, ...]  # bytes of each code
    codes: bytes

    def decode(self, ballot: Ballot, reference: Reference, sent: WeightTable) -> ExactBallots:
        """Return the decoded ballots, or raise `WireError`. sent: the table the client was sent."""
        codes = split_codes(self.codes, self.lengths)
        return ExactBallots(self.groups, tuple(ballot.decode(code, reference) for code in codes))


@dataclass(frozen=True)
class RankedBallots(ExactBallots):
    """Decoded ballots that are read as weights, each with its table."""

    tables: tuple[WeightTable, ...]

    def to_bytes(self, model: ModelSpec) -> bytes:
        raise WireError("decoded ballots are not sent again")


@dataclass(frozen=True)
class TabledBallots(CodedBallots):
    """Coded ballots that are read as weights, and their tables."""

    tables: bytes

    def decode(self, ballot: Ballot, reference: Reference, sent: WeightTable) -> RankedBallots:
        rankings = super().decode(ballot, reference, sent).rankings
        count = len(self.lengths)
        parts = split_codes(self.tables, [len(self.tables) // count] * count)
        edges = edges_of(reference.ranking)
        tables = tuple(read_table(part, edges, sent) for part in parts)
        return RankedBallots(self.groups, rankings, tables)


@dataclass(frozen=True)
class UncodedBallots(Ballots):
    """Ballots that are encoded when they are sent, when the layers of the reply are known."""

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]
    ballot: Ballot
    reference: Reference
    meter: Meter = field(default_factory=Meter)  # records the entropy of the ballots
    tables: tuple[WeightTable, ...] = ()  # where rankings are read as weights

    def counted_rankings(self) -> tuple[Ranking, ...]:
        if isinstance(self.ballot, Moves):  # the server adds them to a ranking of its own
            return ()
        return tuple(self.ballot.rounded(ranking, self.reference) for ranking in self.rankings)

    def to_bytes(self, model: ModelSpec) -> bytes:
        reference = self.reference.only(layer.name for layer in model.layers)
        codes = [self.ballot.encode(ranking, reference) for ranking in self.rankings]
        self.meter.ballot_bits += sum(
            self.ballot.entropy_bits(ranking, reference) for ranking in self.rankings
        )
        coded = (self.groups, tuple(map(len, codes)), b"".join(codes))
        if not self.tables:
            return CodedBallots(*coded).to_bytes(model)
        tables = ({layer: table[layer] for layer in reference.ranking} for table in self.tables)
        return TabledBallots(*coded, b"".join(map(write_table, tables))).to_bytes(model)


class Masks(Downlink):
    """What a client is served: the subnetworks of groups, or the rankings behind them."""


@dataclass(frozen=True)
class ExactMasks(Masks, wire_name="Masks"):
    """Subnetworks to predict with: of the groups the client may belong to, and the global one.

    A group that never voted has a mask too, so that clients that look for their group can compare
    it with the others.
    """

    groups: tuple[int, ...]
    voted: tuple[int, ...]  # which of these groups have voted
    masks: tuple[Mask, ...]
    global_mask: Mask


@dataclass(frozen=True)
class ServedRankings(Masks):
    """Coarse rankings of the groups, for clients whose own ranking takes part in a vote with them.

    A group that never voted has the global ranking.
    """

    groups: tuple[int, ...]
    lengths: tuple[int, ...]  # bytes of each code
    codes: bytes
    global_mask: Mask

    def decode(self, served: Ballot, origin: Reference) -> dict[int, Ranking]:
        """Return the ranking of each group, or raise `WireError`."""
        if len(self.lengths) != len(self.groups):
            raise WireError(f"{len(self.lengths)} rankings are served for {self.groups}")
        codes = split_codes(self.codes, self.lengths)
        rankings = (served.decode(code, origin) for code in codes)
        return dict(zip(self.groups, rankings, strict=True))


@dataclass(frozen=True)
class RankedWeights(Invitation, Masks):
    """What the server sends where rankings are read as weights: the global ranking, those of the
    groups that the client may belong to, and the table.
    """

    groups: tuple[int, ...]
    # Bytes of each code, that of the global ranking first; 0: equal to the global ranking.
    lengths: tuple[int, ...]
    codes: bytes
    table: bytes

    @classmethod
    def of(
        cls,
        ranking: Ranking,
        groups: Mapping[int, Ranking],
        table: WeightTable,
        ballot: Ballot,
        origin: Reference,
    ) -> Self:
        """Encode rankings. origin: the initial ranking."""
        codes = [ballot.encode(ranking, origin)]
        codes += [ballot.encode(group_ranking, origin) for group_ranking in groups.values()]
        codes[1:] = [b"" if code == codes[0] else code for code in codes[1:]]
        return cls(tuple(groups), tuple(map(len, codes)), b"".join(codes), write_table(table))

    def decode(
        self, ballot: Ballot, origin: Reference
    ) -> tuple[Ranking, dict[int, Ranking], WeightTable]:
        """Return the global ranking, those of the groups, and the table, or raise `WireError`."""
        if len(self.lengths) != 1 + len(self.groups):
            raise WireError(f"{len(self.lengths)} rankings are sent for {len(self.groups)} groups")
        first, *others = split_codes(self.codes, self.lengths)
        ranking = ballot.decode(first, origin)
        decoded = (ballot.decode(code, origin) if code else ranking for code in others)
        table = read_table(self.table, edges_of(origin.ranking))
        return ranking, dict(zip(self.groups, decoded, strict=True)), table

    def grouping_bytes(self, model: ModelSpec) -> int:
        return sum(self.lengths[1:])


def split_codes(codes: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut codes into parts of these lengths, or raise `WireError`."""
    if not lengths or any(length < 0 for length in lengths) or sum(lengths) != len(codes):
        raise WireError(
            f"codes of {len(codes)} bytes cannot be cut into parts of {list(lengths)[:4]} bytes"
        )
    return [codes[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]


Invitation.forms = (ExactInvitation, CodedInvitation, RankedWeights)
Ballots.forms = (ExactBallots, CodedBallots, TabledBallots)
Masks.forms = (ExactMasks, ServedRankings, RankedWeights)
