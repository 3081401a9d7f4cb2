"""The totals of a run so far."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from e2fl.data import ClientId, GroupId
from e2fl.rounds import Traffic
from e2fl.runs.records import Json

_STORED = {"grouping_bytes": "finding", "grouping_passes": "passes"}  # what checkpoints call these
_FIELDS = {stored: name for name, stored in _STORED.items()}


@dataclass(frozen=True)
class Totals:
    """The totals of a runner after a round, besides the state; an interrupted round leaves them unchanged."""

    traffic: Traffic = field(default_factory=Traffic)
    found: Mapping[ClientId, GroupId] = field(default_factory=dict)  # the groups of the last evaluation
    faults: Counter[str] = field(default_factory=Counter)  # by kind, since the last line of history
    grouping: tuple[Json, ...] = ()  # how groups were found, in each round since the last line of history
    asked: Counter[ClientId] = field(default_factory=Counter)  # since the run began

    def to_json(self) -> Json:
        return {
            "traffic": {_STORED.get(name, name): value for name, value in asdict(self.traffic).items()},
            "found": list(self.found.items()),
            "faults": dict(self.faults),
            "finding": list(self.grouping),
            "asked": sorted(self.asked.items()),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Totals":
        return cls(
            Traffic(**{_FIELDS.get(name, name): value for name, value in values["traffic"].items()}),
            {int(client): int(group) for client, group in values["found"]},
            Counter(values["faults"]),
            tuple(values["finding"]),
            Counter(dict(values["asked"])),
        )
