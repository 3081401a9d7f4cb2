"""The records of a run, plain JSON: a line of history.jsonl, or summary.json."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

FAILED = (
    "training diverged: its loss rose far above that of guessing, and models are no better than "
    "always predicting the commonest class; lower learner.learning_rate (or score_rate)"
)

RISEN = (
    "the loss of training rose far above that of guessing in some round; lower "
    "learner.learning_rate (or score_rate)"
)


def known(**values: Any) -> Json:
    """Return the values that are not empty: a record leaves the others out."""
    return {name: value for name, value in values.items() if value or isinstance(value, float)}


def divergence_warnings(measured: Mapping[str, Any]) -> list[str]:
    """Return warnings about diverged models in a line of history or a summary."""
    views = {"": measured, **(measured.get("views") or {})}
    counts = {name: int(view.get("diverged", 0)) for name, view in views.items()}
    return ([FAILED] if measured.get("failed") else []) + [
        f"the models of {'1 client' if count == 1 else f'{count:,} clients'}"
        f"{f' (view {name})' if name else ''} have losses that are absurd or not finite, so their "
        "accuracy means nothing: training diverged; lower learner.learning_rate (or score_rate), "
        "or check the data of these clients"
        for name, count in counts.items()
        if count
    ]


def found_name(group: int) -> str:
    """Return the display name of a group that was found."""
    return f"found {group}"


def numbers_of(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return every number of a record by its path, such as group/worst10 or groups/G1/accuracy."""
    numbers: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            numbers |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{prefix}{key}"] = value
    return numbers
