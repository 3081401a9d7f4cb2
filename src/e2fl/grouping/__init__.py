"""How a client's group is found.

To add a way: write a subclass of `Grouping` and one line in `GROUPINGS`.
"""

from e2fl.grouping.base import Grouping
from e2fl.grouping.known import Known, One

GROUPINGS: dict[str, type[Grouping]] = {
    "known": Known,
    "one": One,
}

__all__ = ["GROUPINGS", "Grouping", "Known", "One"]
