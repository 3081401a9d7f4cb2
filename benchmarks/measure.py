"""Timings with their spread: the median, lowest and highest of several repeats."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One quantity, measured several times; with a goal, the required value and one to aim for."""

    what: str
    unit: str
    values: Sequence[float]
    note: str = ""
    goal: tuple[float, float] | None = None  # an aim below the required value: smaller is better

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """Whether the goal was reached; empty without one."""
        if self.goal is None:
            return ""
        at_least, aim = self.goal
        sign = 1 if aim > at_least else -1
        if sign * self.median >= sign * aim:
            return "aim reached"
        return "reached" if sign * self.median >= sign * at_least else "NOT reached"

    def to_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "low": min(self.values),
            "high": max(self.values),
            "repeats": len(self.values),
            "note": self.note,
            "goal": self.goal,
            "verdict": self.verdict,
        }

    def line(self, width: int) -> str:
        """One line of the table."""
        numbers = (self.median, min(self.values), max(self.values))
        shown = "  ".join(f"{value:>10.4g}" for value in numbers)
        goal = "  goal {:g}, aim {:g}: ".format(*self.goal) + self.verdict if self.goal else ""
        return f"{self.what:{width}}  {shown}  {self.unit}{goal}  {self.note}".rstrip()


def seconds(
    work: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the time of each repeat, with the garbage collector off."""
    times = []
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            start = clock()
            work()
            times.append(clock() - start)
    finally:
        if enabled:
            gc.enable()
    return times


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return ratios of measurements side by side: a slow moment of the machine affects both."""
    return [a / b for a, b in zip(above, below, strict=True)]


def scaled(values: Sequence[float], factor: float) -> list[float]:
    """Return the values in another unit."""
    return [value * factor for value in values]
