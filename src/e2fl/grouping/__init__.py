"""How a client's group is determined.

To add a grouping: write a subclass of `Grouping` and one line in `GROUPINGS`.
"""

from e2fl.grouping.base import Grouping, Membership
from e2fl.grouping.inferred import Binary, InferredGroups, LowestLoss, OneShot
from e2fl.grouping.known import KnownGroups, OneGroup
from e2fl.grouping.rank_clustering import RankClustering

GROUPINGS: dict[str, type[Grouping]] = {
    "known": KnownGroups,
    "one": OneGroup,
    "rank_clustering": RankClustering,
    "lowest_loss": LowestLoss,
    "one_shot": OneShot,
    "binary": Binary,
}

__all__ = [
    "GROUPINGS",
    "Binary",
    "Grouping",
    "InferredGroups",
    "KnownGroups",
    "LowestLoss",
    "Membership",
    "OneGroup",
    "OneShot",
    "RankClustering",
]
