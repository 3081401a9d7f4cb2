"""Messages between E2FL's server and clients.

Rankings travel exactly, as in the paper, or coded (`e2fl.rankings.ballots`). Both forms of a
message have one base class, which tells them apart by the kind in the header.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Self

from e2fl.errors import WireError
from e2fl.learning.learner import Meter
from e2fl.models import ModelSpec
from e2fl.rankings.ballots import Ballot, Reference, decode_mask, encode_mask
from e2fl.rankings.order import Mask, Ranking
from e2fl.wire import Message, mask_size


class AnyInvitation(Message):
    """The ranking to start from, and, if the client infers its group, the mask of every group."""


@dataclass(frozen=True)
class Invitation(AnyInvitation):
    """An invitation as in the paper: the exact ranking, and one bit per edge of a mask."""

    ranking: Ranking
    masks: tuple[Mask, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return len(self.masks) * mask_size(model)


@dataclass(frozen=True)
class CodedInvitation(AnyInvitation):
    """An invitation with a coded ranking, and masks as differences to the mask of that ranking."""

    lengths: tuple[int, ...]  # bytes of each code; the ranking comes first
    codes: bytes

    @classmethod
    def of(cls, invitation: Invitation, downlink: Ballot, origin: Reference) -> Self:
        """Encode an invitation. origin: the initial ranking, which every client can compute from
        the seed.
        """
        known = Reference(invitation.ranking, keep=origin.keep)
        masks = [encode_mask(mask, known) for mask in invitation.masks]
        codes = [downlink.encode(invitation.ranking, origin), *masks]
        return cls(tuple(map(len, codes)), b"".join(codes))

    def decode(self, downlink: Ballot, origin: Reference, most_masks: int) -> Invitation:
        """Return the decoded invitation, or raise `WireError`; few bytes may encode many masks."""
        if len(self.lengths) > 1 + most_masks:
            raise WireError(
                f"an invitation has {len(self.lengths) - 1} masks; "
                f"at most {most_masks} are expected"
            )
        ranking, *masks = parts_of(self.codes, self.lengths)
        start = downlink.decode(ranking, origin)
        known = Reference(start, keep=origin.keep)
        return Invitation(start, tuple(decode_mask(mask, known) for mask in masks))

    def grouping_bytes(self, model: ModelSpec) -> int:
        return sum(self.lengths[1:])


class AnyBallots(Message):
    """One ranking for each group the client votes in.

    The group is `NO_GROUP` if the server knows it.
    """

    groups: tuple[int, ...]


@dataclass(frozen=True)
class Ballots(AnyBallots):
    """Ballots as in the paper: exact rankings."""

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]


@dataclass(frozen=True)
class CodedBallots(AnyBallots):
    """Ballots coded against the ranking that the client was sent."""

    groups: tuple[int, ...]
    lengths: tuple[int, ...]  # bytes of each code
    codes: bytes

    def decode(self, ballot: Ballot, reference: Reference) -> Ballots:
        """Return the decoded ballots, or raise `WireError`."""
        codes = parts_of(self.codes, self.lengths)
        return Ballots(self.groups, tuple(ballot.decode(code, reference) for code in codes))


@dataclass(frozen=True)
class UncodedBallots(AnyBallots):
    """Ballots that are encoded when they are sent, because only then the layers of the reply are
    known.
    """

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]
    ballot: Ballot
    reference: Reference
    meter: Meter = field(default_factory=Meter)  # records the entropy of the ballots

    def to_bytes(self, model: ModelSpec) -> bytes:
        reference = self.reference.only(layer.name for layer in model.layers)
        codes = [self.ballot.encode(ranking, reference) for ranking in self.rankings]
        self.meter.ballot_bits += sum(
            self.ballot.entropy_bits(ranking, reference) for ranking in self.rankings
        )
        return CodedBallots(self.groups, tuple(map(len, codes)), b"".join(codes)).to_bytes(model)


class AnyMasks(Message):
    """What a client is served: the subnetworks of groups, or the rankings behind them."""


@dataclass(frozen=True)
class Masks(AnyMasks):
    """Subnetworks to predict with: those of the groups the client may belong to, and the global
    one.

    A group that never voted has a mask too, so that clients that look for their group can compare
    it with the others.
    """

    groups: tuple[int, ...]
    voted: tuple[int, ...]  # which of these groups have voted
    masks: tuple[Mask, ...]
    global_mask: Mask


@dataclass(frozen=True)
class ServedRankings(AnyMasks):
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
        codes = parts_of(self.codes, self.lengths)
        rankings = (served.decode(code, origin) for code in codes)
        return dict(zip(self.groups, rankings, strict=True))


def parts_of(codes: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut codes into parts of these lengths, or raise `WireError`."""
    if not lengths or any(length < 0 for length in lengths) or sum(lengths) != len(codes):
        raise WireError(
            f"codes of {len(codes)} bytes cannot be cut into parts of {list(lengths)[:4]} bytes"
        )
    return [codes[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]


AnyInvitation.forms = (Invitation, CodedInvitation)
AnyBallots.forms = (Ballots, CodedBallots)
AnyMasks.forms = (Masks, ServedRankings)
