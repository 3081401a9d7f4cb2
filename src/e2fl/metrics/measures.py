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
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError
from e2fl.metrics.accuracy import spread

Better = Literal["more", "less", "zero", ""]
Function = Callable[[NDArray[np.int64], NDArray[np.float64]], float]
NAMED = ("groups", "participation")  # paths whose second part is the name of a group
DESCRIBED = "e2fl_measure"  # the attribute of a function that holds its description


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
ALIASES: dict[str, str] = _FILE["aliases"]
MEASURES: dict[str, Measure] = {
    key: Measure(key, head=_FILE["heads"].get(key.rpartition("/")[0], ""), **entry)
    for key, entry in _FILE["measures"].items()
}
DEFINITIONS = {key: Definition(**entry) for key, entry in _FILE["definitions"].items()}
COLUMNS: dict[str, tuple[str, ...]] = {
    table: tuple(keys) for table, keys in _FILE["columns"].items()
}


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


@dataclass(frozen=True)
class Description:
    """How an own measure is written, and which way is better."""

    title: str
    unit: str = ""
    better: Better = "more"
    digits: int = 3


@dataclass(frozen=True)
class OwnMeasure:
    """A function of labels [rows] and outputs [rows, classes] of a network, and its description."""

    name: str
    function: Function
    description: Description

    def __call__(self, y_true: NDArray[np.int64], outputs: NDArray[np.float64]) -> float:
        """Return the value for these rows; NaN where the measure is not defined."""
        try:
            return float(self.function(y_true, outputs))
        except Exception as error:  # the user's own function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"measure '{self.name}' failed: {reason}") from error


def own_measure(
    *, title: str, unit: str = "", better: Better = "more", digits: int = 3
) -> Callable[[Function], Function]:
    """Return a decorator that describes a function as a measure."""

    def described(function: Function) -> Function:
        setattr(function, DESCRIBED, Description(title, unit, better, digits))
        return function

    return described


def as_measure(name: str, function: Function) -> OwnMeasure:
    """Return the measure of a function; without `own_measure`, more is better."""
    if not name.isidentifier():
        raise ConfigError(f"a measure needs a name such as auc, not '{name}'")
    return OwnMeasure(name, function, getattr(function, DESCRIBED, Description(name)))


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    """Return mean, tenths and variance of the finite values; None if there are none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    names = {"worst10": "low10", "best10": "high10"}
    return {names.get(k, k): v for k, v in spread(known).items()} if len(known) else None


def measures_of(name: str, description: Mapping[str, Any]) -> list[Measure]:
    """Return the entries of a registry for an own measure, as a run describes it."""
    own = Description(**description)
    tenths = ("high10", "low10") if own.better == "less" else ("low10", "high10")
    titles = {"mean": "mean", tenths[0]: "worst 10 %", tenths[1]: "best 10 %"}
    measures = []
    for level, over in (("group", "groups"), ("clients", "clients")):
        for kind in (*titles, "variance"):
            key, title = f"measures/{name}/{level}/{kind}", titles.get(kind, kind)
            better: Better = "less" if kind == "variance" else own.better
            head = f"{own.title} over {over}"
            measures.append(Measure(key, title, own.unit, own.digits, better, "own", head))
    return measures


def descriptions(measures: Sequence[OwnMeasure]) -> dict[str, dict[str, Any]]:
    """Return how own measures are described in summary.json."""
    return {measure.name: asdict(measure.description) for measure in measures}
