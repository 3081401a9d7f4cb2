"""One frame of runs: a row per run, view and evaluated round, a column per path of a number."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from e2fl.runs.records import numbers_of

if TYPE_CHECKING:
    from e2fl.runs.store import Run

Json = dict[str, Any]
FIRST = ("method", "label", "algorithm", "seed", "view", "round", "last")
# The parts of a summary that a line of history does not have.
OF_THE_WHOLE_RUN = (
    "bytes",
    "bits",
    "budget",
    "inference",
    "loss",
    "participation",
    "seconds",
    "unseen",
)


def frame(runs: Iterable["Run"]) -> pd.DataFrame:
    """Return one row per run, view and evaluated round; `e2fl.results.frame` says what is in it."""
    made = pd.DataFrame([row for run in runs for row in _rows_of(run)])
    return made.reindex(columns=[*FIRST, *(name for name in made.columns if name not in FIRST)])


def _rows_of(run: "Run") -> Iterator[Json]:
    for line in run.history:
        last = bool(run.summary) and line is run.history[-1]
        for view in ("", *line.get("views", {})):
            part = _seen_through(line, view)
            if last:
                whole = _seen_through(run.summary, view)
                part |= {key: whole[key] for key in OF_THE_WHOLE_RUN if whole.get(key)}
            label = run.experiment.label
            yield {
                "method": f"{label} ({view_title(view)})" if view else label,
                "label": label,
                "algorithm": run.experiment.algorithm["name"],
                "seed": run.experiment.seed,
                "view": view,
                "round": line["round"],
                "last": last,
                **with_derived(numbers_of(part)),
            }


def _seen_through(record: Json, view: str) -> Json:
    """Return a line of history, or a summary, with the measures of one view in place of the own."""
    part = {key: value for key, value in record.items() if key not in ("views", "validation")}
    validation = record.get("validation")
    if validation is not None:
        part["validation"] = _seen_through(validation, view)
    return part | record.get("views", {}).get(view, {}) if view else part


def with_derived(numbers: dict[str, float]) -> dict[str, float]:
    """Return the numbers and those that follow from them: deviations, sums and overheads."""
    for level in ("clients", "group"):
        variance = numbers.get(f"{level}/variance", -1.0)
        if variance >= 0:
            numbers[f"{level}/std"] = math.sqrt(variance)
    if "bytes/up_total" in numbers or "bytes/down_total" in numbers:
        ways = (numbers.get(f"bytes/{way}_total", 0.0) for way in ("up", "down"))
        numbers["bytes/total"] = sum(ways)
    entropy = numbers.get("bits/entropy_up_per_edge", 0.0)
    if entropy > 0 and "bits/up_per_edge" in numbers:
        numbers["bits/over_entropy"] = 100 * (numbers["bits/up_per_edge"] / entropy - 1)
    return numbers


def view_title(view: str) -> str:
    """Return the display name of a view of a run's models."""
    return "GM" if view == "global" else view
