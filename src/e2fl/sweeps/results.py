"""The results of a sweep: measures of every point on validation data, the chosen point, and its final test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from e2fl.construct import did_you_mean
from e2fl.csv_text import csv_text
from e2fl.errors import ConfigError, RunError
from e2fl.runs.records import Json
from e2fl.sweeps.grid import Axis, Point
from e2fl.terminal import aligned

LEVELS = {"group": "groups", "user": "clients"}
MEASURES = {"mean": "mean", "worst10": "worst 10 %", "best10": "best 10 %", "variance": "variance"}
LOWER_IS_BETTER = ("variance",)

Found = Mapping[Point, Sequence[Json]]  # the summaries of each point, one for each seed
NOTHING: Json = {"validation": {"diverged": 1}}  # in place of a summary: no client ever sent a usable reply


@dataclass(frozen=True)
class Pick:
    """The measure that a point is chosen by."""

    level: str
    measure: str

    @classmethod
    def of(cls, name: str, option: str = "--pick", others: Sequence[str] = ()) -> Self:
        """Return the measure of this name; option and others: for errors, the option and its other choices."""
        known = [*(f"{level}/{measure}" for level in LEVELS for measure in MEASURES), *others]
        if name not in known:
            raise ConfigError(f"{option} takes {', '.join(known)}; not '{name}'{did_you_mean(name, known)}")
        return cls(*name.split("/"))

    @classmethod
    def default(cls, found: Found) -> Self:
        """Return the worst tenth of declared groups, or of clients: groups that were found differ between points."""
        views = _measured(found)
        declared = views and all(view.get("group") and view.get("groups_are") != "found" for view in views)
        return cls("group" if declared else "user", "worst10")

    @property
    def name(self) -> str:
        return f"{self.level}/{self.measure}"

    @property
    def lower_is_better(self) -> bool:
        return self.measure in LOWER_IS_BETTER

    def __str__(self) -> str:
        return f"{MEASURES[self.measure]} of {LEVELS[self.level]}"


@dataclass(frozen=True)
class Result:
    """A finished sweep."""

    name: str
    label: str
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    share: float  # of each client's training rows that was set aside for validation
    pick: Pick
    found: Found
    chosen: Point | None  # None: every point diverged
    final: Sequence[Json]  # summaries of the chosen point, trained on all training rows; one for each seed

    @property
    def levels(self) -> list[str]:
        """The levels that every run measured: clients, and groups if there are any."""
        views = _measured(self.found)
        return [level for level in LEVELS if all(view.get(level) for view in views)]

    def values(self, point: Point, pick: Pick) -> list[float]:
        """Return a validation measure of a point for every seed; NaN where training diverged."""
        return [value_of(view_of(summary), pick) for summary in self.found[point]]

    def diverged(self, point: Point) -> bool:
        return _diverged(self.found[point])

    def table(self) -> str:
        """Return the grid for a terminal: validation measures, means over seeds; a star marks the chosen point."""
        head = [
            "",
            *("" for _ in self.axes),
            *(LEVELS[level] if not i else "" for level in self.levels for i in (0, 1)),
        ]
        names = ["point", *(axis.name for axis in self.axes), *(MEASURES[m] for _ in self.levels for m in SHORT)]
        rows = [
            [f"{point.number}{' *' if point == self.chosen else ''}", *point.values]
            + [told(self.values(point, Pick(level, measure))) for level in self.levels for measure in SHORT]
            for point in self.found
        ]
        return aligned([names, *rows], head)

    def choice(self) -> str:
        """Return which point was chosen and why, in one sentence."""
        if self.chosen is None:
            return "every point diverged with some seed, so none was chosen; try lower learning rates"
        settings = ", ".join(f"{a.name} = {v}" for a, v in zip(self.axes, self.chosen.values, strict=True))
        best = "lowest" if self.pick.lower_is_better else "highest"
        return (
            f"chosen: point {self.chosen.number} ({settings}), with the {best} validation {self.pick}: "
            f"{told(self.values(self.chosen, self.pick))}"
        )

    def final_rows(self) -> list[tuple[str, ...]]:
        """Return test measures of the chosen point: a row for groups and one for clients."""
        return [
            (LEVELS[level], *(told([value_of(summary, Pick(level, m)) for summary in self.final]) for m in MEASURES))
            for level in LEVELS
            if self.final and all(summary.get(level) for summary in self.final)
        ]

    def final_table(self) -> str:
        return aligned([("test data", *MEASURES.values()), *self.final_rows()])

    def to_csv(self) -> str:
        """Return one row for each point: its settings, and the mean and standard deviation of validation measures."""
        rows = []
        for point in self.found:
            row: Json = {"point": point.number}
            row |= {axis.name: value for axis, value in zip(self.axes, point.values, strict=True)}
            row["seeds"] = len(self.seeds)
            for pick in (Pick(level, measure) for level in self.levels for measure in MEASURES):
                row |= mean_and_std(f"validation/{pick.name}", self.values(point, pick))
            rows.append(row | {"diverged": int(self.diverged(point)), "chosen": int(point == self.chosen)})
        return csv_text(rows)


SHORT = ("mean", "worst10")


def view_of(summary: Json) -> Json:
    """Return the validation measures of a run, or of an evaluated round."""
    view: Json | None = summary.get("validation")
    if view is None:
        raise RunError("a run has no validation rows; raise data.validation_share")
    return view


def choose(found: Found, pick: Pick) -> Point | None:
    """Return the best point by the mean over seeds, the first on ties; a point that diverged is never chosen."""
    scored = {
        point: float(np.mean([value_of(view_of(summary), pick) for summary in summaries]))
        for point, summaries in found.items()
        if not _diverged(summaries)
    }
    usable = {point: value for point, value in scored.items() if math.isfinite(value)}
    if not usable:
        return None
    best = min(usable.values()) if pick.lower_is_better else max(usable.values())
    return next(point for point, value in usable.items() if value == best)


def require_measure(found: Found, pick: Pick) -> None:
    if not all(view.get(pick.level) for view in _measured(found)):
        raise RunError(f"the runs on this data have no {LEVELS[pick.level]}; use --pick user/worst10")


def told(values: Sequence[float]) -> str:
    """Return the mean over seeds and, if there are several, the standard deviation."""
    if not all(map(math.isfinite, values)):
        return "diverged"
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def _measured(found: Found) -> list[Json]:
    """Return the validation measures of all runs that learned something."""
    return [view_of(summary) for summaries in found.values() for summary in summaries if summary is not NOTHING]


def _diverged(summaries: Sequence[Json]) -> bool:
    return any(view_of(summary).get("diverged") for summary in summaries)


def value_of(view: Mapping[str, Any], pick: Pick) -> float:
    value = (view.get(pick.level) or {}).get(pick.measure)
    return math.nan if value is None else float(value)


def mean_and_std(name: str, values: Sequence[float]) -> dict[str, str]:
    """Return the cells of a measure in a CSV file: over seeds, empty if there is no value."""
    mean, std = (np.mean(values) if values else math.nan), (np.std(values, ddof=1) if len(values) > 1 else math.nan)
    cells = {name: mean, f"{name}/std": std}
    return {key: f"{value:.6f}" if math.isfinite(value) else "" for key, value in cells.items()}
