"""A user's own measures: functions of the labels and the outputs of a client's test rows.

    @own_measure(title="AUC", better="more")
    def auc(y_true, outputs):
        return roc_auc_score(y_true, outputs[:, 1] - outputs[:, 0])

Named in a configuration, measures = ["mine.py:auc"], or passed in Python, it is measured for every
client like accuracy, and stands in tables, on the page, in --columns and in objectives of a search.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import ConfigError
from e2fl.metrics.accuracy import spread
from e2fl.metrics.measures import Better, Measure

Function = Callable[[NDArray[np.int64], NDArray[np.float64]], float]
DESCRIBED = "e2fl_measure"  # the attribute of a function that holds its description


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
    known = Description(**description)
    tenths = ("high10", "low10") if known.better == "less" else ("low10", "high10")
    titles = {"mean": "mean", tenths[0]: "worst 10 %", tenths[1]: "best 10 %"}
    return [
        Measure(
            key=f"measures/{name}/{level}/{kind}",
            title=titles.get(kind, kind),
            unit=known.unit,
            digits=known.digits,
            better="less" if kind == "variance" else known.better,
            definition="own",
            head=f"{known.title} over {'groups' if level == 'group' else 'clients'}",
        )
        for level in ("group", "clients")
        for kind in (*titles, "variance")
    ]


def descriptions(measures: Sequence[OwnMeasure]) -> dict[str, dict[str, Any]]:
    """Return how own measures are described in summary.json."""
    return {measure.name: asdict(measure.description) for measure in measures}
