"""A table as the audit uses it: counted cells of predictions, or one value per client."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
UNKNOWN = "unknown"
CROSS = " · "
CALIBRATION_BINS = 10


@dataclass(frozen=True)
class Options:
    """How to read a table: which column is what, and what its values mean."""

    client: str | None = None
    groups: tuple[str, ...] = ()
    y: str | None = None
    y_hat: str | None = None
    score: str | None = None
    positive: str | None = None
    threshold: float | None = None
    unit: str | None = None  # "percent" or "fraction", for accuracies
    lower_is_better: bool = False
    drop_missing: bool = False
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.profile not in (None, "ll144"):
            raise ConfigError(f"there is no profile '{self.profile}'; known: ll144")
        if self.unit not in (None, "percent", "fraction"):
            raise ConfigError(f"unit must be percent or fraction, not '{self.unit}'")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ConfigError(f"threshold must be a number that scores can reach, not {self.threshold}")


@dataclass(frozen=True)
class Grouping:
    """Groups of rows by one attribute, or by several crossed."""

    name: str
    groups: list[str]
    of_combo: Codes  # [combos], the group of each combination of attributes
    unknown: int | None  # the group of rows whose attribute is missing
    crossed: bool = False


@dataclass(frozen=True)
class Predictions:
    """Rows with the same client, groups, label and prediction, counted."""

    client: Codes | None  # [cells], into Table.clients
    combo: Codes  # [cells], into the combinations of attributes
    truth: Codes | None  # [cells], into labels
    predicted: Codes  # [cells], into labels
    count: Numbers  # [cells]
    labels: list[str]
    positive: int | None
    threshold: float | None = None
    above_median: bool = False
    calibration: Numbers | None = None  # [3, combos, bins]: rows, sum of scores, positives


@dataclass(frozen=True)
class Measure:
    """One value per client, or per client and group."""

    name: str
    client: Codes  # [rows]
    combo: Codes  # [rows]
    value: Numbers  # [rows]; fractions for accuracy
    weight: Numbers | None  # [rows], the examples behind each value
    is_rate: bool  # an accuracy, shown in percent
    higher_is_better: bool


@dataclass(frozen=True)
class Table:
    """A table that was read."""

    name: str
    sha256: str
    rows: int
    clients: list[str] | None
    groupings: list[Grouping]
    data: Predictions | Measure
    notes: list[str] = field(default_factory=list)


def groupings(names: list[str], groups: list[list[str]], combos: Codes, crossed: bool) -> list[Grouping]:
    """Return a grouping for each attribute and, if wanted, for all of them crossed.

    combos: [combos, attributes], the code of each attribute; the code after the last group means unknown.
    """
    found = [_one(name, groups[place], combos[:, place]) for place, name in enumerate(names)]
    if len(names) > 1 and crossed:
        unknown: list[bool] = np.any(combos >= np.array([len(each) for each in groups]), axis=1).tolist()
        keys = [
            UNKNOWN if missing else CROSS.join(groups[place][code] for place, code in enumerate(row))
            for row, missing in zip(combos.tolist(), unknown, strict=True)
        ]
        order = list(dict.fromkeys(key for key, missing in zip(keys, unknown, strict=True) if not missing))
        codes = {key: place for place, key in enumerate(order)}
        place_of = [len(order) if missing else codes[key] for key, missing in zip(keys, unknown, strict=True)]
        name = " and ".join(names) if len(names) == 2 else ", ".join(names[:-1]) + " and " + names[-1]
        found.append(_one(name, order, np.array(place_of, dtype=np.int64), crossed=True))
    return found


def _one(name: str, groups: list[str], codes: Codes, crossed: bool = False) -> Grouping:
    if not (codes >= len(groups)).any():
        return Grouping(name, list(groups), codes, None, crossed)
    return Grouping(name, [*groups, UNKNOWN], codes, len(groups), crossed)


def compact(*columns: tuple[Codes, int]) -> tuple[Codes, list[Codes]]:
    """Number the combinations of codes that occur. columns: codes and how many there may be of each.

    Returns the number of each row's combination, and for each column the code of every combination.
    """
    key = np.zeros(len(columns[0][0]), dtype=np.int64)
    size = 1
    for codes, count in columns:
        key *= count
        key += codes
        size *= count
    if size <= max(2**20, len(key)):
        present = np.flatnonzero(np.bincount(key, minlength=size))
        places = np.zeros(size, dtype=np.int64)
        places[present] = np.arange(len(present))
        inverse = places[key]
    else:
        present, inverse = np.unique(key, return_inverse=True)
    parts: list[Codes] = []
    rest = present.astype(np.int64)
    for _, count in reversed(columns):
        parts.append(rest % count)
        rest = rest // count
    return inverse, parts[::-1]
