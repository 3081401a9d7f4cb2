"""What E2FL's server and clients send each other."""

from dataclasses import dataclass

from e2fl.models import ModelSpec
from e2fl.ranking import Mask, Ranking
from e2fl.wire import Message, mask_size


@dataclass(frozen=True)
class Invitation(Message):
    """The ranking to start from, and the mask of every group where the client finds its group by itself."""

    ranking: Ranking
    masks: tuple[Mask, ...]

    def grouping_bytes(self, model: ModelSpec) -> int:
        return len(self.masks) * mask_size(model)


@dataclass(frozen=True)
class Ballots(Message):
    """One ranking for each group the client votes in; `NO_GROUP` where the server knows the group."""

    groups: tuple[int, ...]
    rankings: tuple[Ranking, ...]


@dataclass(frozen=True)
class Masks(Message):
    """Subnetworks to predict with: those of the groups the client may belong to, and the global one.

    A group that never voted has a mask too, so that clients that look for their group can compare it with the others.
    """

    groups: tuple[int, ...]
    voted: tuple[int, ...]  # those of these groups that have voted
    masks: tuple[Mask, ...]
    global_mask: Mask
