"""Timings with their spread: the median, lowest and highest of several repeats."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One quantity, measured several times."""

    what: str
    unit: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "low": min(self.values),
            "high": max(self.values),
            "repeats": len(self.values),
            "note": self.note,
        }


@dataclass(frozen=True)
class Goal:
    """A ratio with a required value and a value to aim for."""

    figure: Figure
    at_least: float
    aim: float
    smaller_is_better: bool = False

    @property
    def verdict(self) -> str:
        value, sign = self.figure.median, -1 if self.smaller_is_better else 1
        if sign * value >= sign * self.aim:
            return "aim reached"
        return "reached" if sign * value >= sign * self.at_least else "NOT reached"

    def to_json(self) -> dict[str, object]:
        return {
            **self.figure.to_json(),
            "at_least": self.at_least,
            "aim": self.aim,
            "verdict": self.verdict,
        }


def seconds(work: Callable[[], object], repeats: int = 1) -> list[float]:
    """The time of each repeat, with the garbage collector off."""
    found = []
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    finally:
        if enabled:
            gc.enable()
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Ratios of measurements side by side: a slow moment of the machine affects both."""
    return tuple(a / b for a, b in zip(above, below, strict=True))
