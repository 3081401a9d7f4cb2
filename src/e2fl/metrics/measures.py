"""The registry of measures, measures.toml as Python objects, and a user's own measures.

A measure is named by its path in a run's records and in `results.frame`, such as group/worst10.
An own measure is a function of the labels and the outputs of a client's test rows:

    @own_measure(title="AUC", better="more")
    def auc(y_true, outputs):
        return roc_auc_score(y_true, outputs[:, 1] - outputs[:, 0])

Named in a configuration, measures = ["mine.py:auc"], or passed in Python, it is measured for every
client like accuracy, and stands in tables, on the page, in --columns and in objectives of a search.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError
from e2fl.metrics.accuracy import best10, mean, variance, worst10

Better = Literal["more", "less", "zero", ""]
Function = Callable[[NDArray[np.int64], NDArray[np.float64]], float]
NAME = "/NAME"  # in a path, the name of a group
LEVELS = {"group": "groups", "clients": "clients"}  # what spreads are over
DESCRIPTION = "e2fl_measure"  # the attribute of a function that holds its title, unit and so on
# What is recorded of an own measure: its lowest tenth may be the best one.
OWN_SPREADS = {"mean": mean, "low10": worst10, "high10": best10, "variance": variance}


class Definition(NamedTuple):
    """What a word on the page means."""

    title: str
    text: str


@dataclass(frozen=True)
class Measure:
    """A number that runs record, or a column of a table: how it is written, what is better.

    key: its path. head: the title over its column and those beside it; "{unit}" in it stands for
    the unit in which bytes are written. definition: the entry of `DEFINITIONS` that explains it.
    unit: "%", "pp" (percentage points), "pp²", "bytes", "bits", or empty. signed: it is written
    with its sign. scale: from the exact value, as in files, to the value as written.
    """

    key: str
    title: str
    digits: int = 2
    head: str = ""
    definition: str = ""
    unit: str = ""
    better: Better = ""
    signed: bool = False
    scale: float = 1.0

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is better, 0 if neither is."""
        return {"more": 1, "less": -1}.get(self.better, 0)

    def __post_init__(self) -> None:
        if self.better not in get_args(Better):
            words = "more, less, zero or nothing"
            raise ConfigError(f"measure '{self.key}': better is {words}, not '{self.better}'")


def registry(
    text: str,
) -> tuple[dict[str, Measure], dict[str, Definition], dict[str, tuple[str, ...]]]:
    """Return measures, definitions and columns of tables as measures.toml has them."""
    file = tomllib.loads(text)
    spreads = {f"{level}/{name}": row for level in LEVELS for name, row in file["spreads"].items()}
    measures = {
        key: Measure(key, **{"head": file["heads"].get(key.rpartition("/")[0], "")} | entry)
        for key, entry in (spreads | file["measures"]).items()
    }
    definitions = {key: Definition(**entry) for key, entry in file["definitions"].items()}
    return measures, definitions, {table: tuple(paths) for table, paths in file["columns"].items()}


MEASURES, DEFINITIONS, COLUMNS = registry(
    (files("e2fl.metrics") / "measures.toml").read_text(encoding="utf-8")
)
ALIASES = {f"bytes/{way}": f"bytes/{way}_per_client_round" for way in ("up", "down")}


def measure_of(path: str, others: Iterable[Measure] = ()) -> Measure:
    """Return the measure of a path such as groups/G1/accuracy, or raise `ConfigError`.

    others: a user's own measures, which are known as well.
    """
    key = ALIASES.get(path, path)
    measures = MEASURES | {measure.key: measure for measure in others}
    if key in measures:
        return measures[key]
    for template, measure in measures.items():
        first, named, last = template.partition(NAME)
        name = key.removeprefix(f"{first}/").removesuffix(last)  # it may have a slash itself
        if named and name and key == f"{first}/{name}{last}":
            return replace(measure, key=key, head=" ".join(filter(None, (measure.head, name))))
    close = difflib.get_close_matches(path, measures, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(measures)}"
    raise ConfigError(f"there is no measure '{path}'; {hint}")


def own_measure(
    *, title: str, unit: str = "", better: Better = "more", digits: int = 3
) -> Callable[[Function], Function]:
    """Return a decorator that describes a function as a measure."""

    def described(function: Function) -> Function:
        shown = {"title": title, "unit": unit, "better": better, "digits": digits}
        setattr(function, DESCRIPTION, shown)
        return function

    return described


@dataclass(frozen=True)
class OwnMeasure:
    """A function of labels [rows] and outputs [rows, classes] of a network."""

    name: str
    function: Function

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ConfigError(f"a measure needs a name such as auc, not '{self.name}'")
        own_measures({self.name: self.described})  # raises an error for what is not known

    @property
    def described(self) -> Mapping[str, Any]:
        """Its title, unit, better and digits, as summary.json has them."""
        usual = {"title": self.name, "unit": "", "better": "more", "digits": 3}
        described: Mapping[str, Any] = getattr(self.function, DESCRIPTION, usual)
        return described

    def __call__(self, y_true: NDArray[np.int64], outputs: NDArray[np.float64]) -> float:
        """Return the value for these rows; NaN where the measure is not defined."""
        try:
            return float(self.function(y_true, outputs))
        except Exception as error:  # the user's own function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"measure '{self.name}' failed: {reason}") from error


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Return mean, tenths and variance of the finite values; None if there are none."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    return {name: metric(finite) for name, metric in OWN_SPREADS.items()} if len(finite) else None


def own_measures(described: Mapping[str, Mapping[str, Any]]) -> list[Measure]:
    """Return the entries of a registry for own measures: `OwnMeasure.described` by their names."""
    entries = []
    for name, shown in described.items():
        whole = Measure(f"measures/{name}/groups{NAME}", definition="own", **shown)
        worst, best = ("high10", "low10") if whole.better == "less" else ("low10", "high10")
        titles = {"mean": "mean", worst: "worst 10 %", best: "best 10 %", "variance": "variance"}
        for level, over in LEVELS.items():
            for kind, title in titles.items():
                key, head = f"measures/{name}/{level}/{kind}", f"{whole.title} over {over}"
                better: Better = "less" if kind == "variance" else whole.better
                entries.append(replace(whole, key=key, title=title, head=head, better=better))
        entries.append(whole)
    return entries
