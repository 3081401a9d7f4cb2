"""The registry of measures: measures.toml as Python objects.

A measure is named by its path in a run's records and in `results.frame`, such as group/worst10.
"""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal, NamedTuple

from e2fl.errors import ConfigError

Better = Literal["more", "less", "zero", ""]
NAMED = ("groups", "participation")  # paths whose second part is the name of a group


class Definition(NamedTuple):
    """What a word on the page means."""

    title: str
    text: str


@dataclass(frozen=True)
class Measure:
    """A number that runs record: how it is written, and which way is better.

    key: its path. unit: "%", "pp" (percentage points), "pp²", "bytes", "bits", or empty.
    definition: the entry of `DEFINITIONS` that explains it. head: the title over its column and
    those beside it; "{unit}" in it stands for the unit in which bytes are written.
    """

    key: str
    title: str
    unit: str = ""
    digits: int = 2
    better: Better = ""
    definition: str = ""
    head: str = ""

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is better, 0 if neither is."""
        return {"more": 1, "less": -1}.get(self.better, 0)

    @property
    def signed(self) -> bool:
        """Whether the number is a difference, which is written with its sign."""
        return self.better == "zero"


_FILE = tomllib.loads((files("e2fl.metrics") / "measures.toml").read_text(encoding="utf-8"))
_HEADS: dict[str, str] = _FILE["heads"]


def head_of(path: str) -> str:
    """Return the title over the column of this path; empty if there is none."""
    return _HEADS.get(path.rpartition("/")[0], "")


MEASURES: dict[str, Measure] = {
    key: Measure(key, head=head_of(key), **entry) for key, entry in _FILE["measures"].items()
}
DEFINITIONS: dict[str, Definition] = {
    key: Definition(**entry) for key, entry in _FILE["definitions"].items()
}
COLUMNS: dict[str, tuple[str, ...]] = {
    table: tuple(keys) for table, keys in _FILE["columns"].items()
}
ALIASES: dict[str, str] = _FILE["aliases"]


def measure_of(path: str, others: Iterable[Measure] = ()) -> Measure:
    """Return the measure of a path such as groups/G1/accuracy, or raise `ConfigError`.

    others: a user's own measures, which are known as well.
    """
    key = ALIASES.get(path, path)
    known = MEASURES | {measure.key: measure for measure in others}
    if key in known:
        return known[key]
    first, _, rest = key.partition("/")
    name, _, last = rest.rpartition("/")  # a group may have a slash in its name
    template = MEASURES.get(f"{first}/NAME/{last}")
    if first in NAMED and name and template is not None:
        return replace(template, key=key, head=name)
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    raise ConfigError(f"there is no measure '{path}'; {hint}")
