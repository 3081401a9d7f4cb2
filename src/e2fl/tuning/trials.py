"""Trials: their objectives, when one is pruned, which are on the Pareto front, and their file."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from e2fl.runs.folder import json_text
from e2fl.runs.records import Json
from e2fl.sweeps.results import Pick, told, value_of, view_of

BYTES = "bytes"
WARM = 5  # trials that must have reached a round before others are pruned there
PATIENCE = 0.25  # of the rounds: no trial is pruned before

State = Literal["complete", "pruned", "diverged"]
Curve = dict[int, tuple[float, ...]]  # by evaluated round, the objectives on validation data; NaN: diverged


@dataclass(frozen=True)
class Objective:
    """An objective of a search: a measure of accuracy on validation data, or the bytes that training sends."""

    name: str

    @classmethod
    def of(cls, name: str) -> Self:
        if name != BYTES:
            Pick.of(name, "--objectives", (BYTES,))
        return cls(name)

    @property
    def pick(self) -> Pick | None:
        return None if self.name == BYTES else Pick.of(self.name)

    @property
    def lower_is_better(self) -> bool:
        return self.pick is None or self.pick.lower_is_better

    def measured(self, line: Json) -> float:
        """Return its value in an evaluated round; NaN if training diverged."""
        if self.pick is None:
            return float(line["bytes"]["up_total"] + line["bytes"]["down_total"])
        view = view_of(line)
        return math.nan if view.get("diverged") else value_of(view, self.pick)

    def told(self, values: Sequence[float]) -> str:
        """Return the formatted mean over seeds."""
        if self.pick is not None:
            return told(values)
        spread = f" ± {np.std(values, ddof=1) / 2**20:.2g}" if len(values) > 1 else ""
        return f"{np.mean(values) / 2**20:.4g}{spread}"

    def __str__(self) -> str:
        return "MiB sent" if self.pick is None else str(self.pick)


@dataclass(frozen=True)
class Trial:
    """One combination of settings, and its results."""

    number: int
    settings: Mapping[str, Any]
    state: State
    curves: Sequence[Curve]  # one for each seed; the last one of a pruned trial ends early

    @property
    def values(self) -> list[list[float]]:
        """Each objective for every seed, at the last round."""
        last = [curve[max(curve)] for curve in self.curves]
        return [list(column) for column in zip(*last, strict=True)]

    @property
    def rounds(self) -> int:
        """The rounds it trained, over all seeds."""
        return sum(max(curve) for curve in self.curves)

    def write(self, path: Path) -> None:
        curves = [[[number, *values] for number, values in curve.items()] for curve in self.curves]
        write_text(path, json_text(asdict(self) | {"curves": curves}))

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            curves = [
                {int(number): tuple(math.nan if v is None else float(v) for v in values) for number, *values in curve}
                for curve in stored["curves"]
            ]
            return cls(int(stored["number"]), dict(stored["settings"]), stored["state"], curves)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} is damaged ({error}); remove it to run the trial again") from error


def curve_of(history: Iterable[Json], objectives: Sequence[Objective]) -> Curve:
    return {line["round"]: tuple(objective.measured(line) for objective in objectives) for line in history}


def oriented(values: Sequence[float], objectives: Sequence[Objective]) -> np.ndarray:
    """Return the values such that higher is better; diverged trials are worst in all."""
    signed = np.array([-v if o.lower_is_better else v for v, o in zip(values, objectives, strict=True)])
    return signed if np.isfinite(signed).all() else np.full(len(signed), -np.inf)


def dominates(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether one is at least as good in all objectives, and better in one."""
    return bool((one >= other).all() and (one > other).any())


def should_prune(line: Sequence[float], number: int, earlier: Sequence[Curve], objectives: Sequence[Objective]) -> bool:
    """Return whether the medians of earlier trials at this round dominate a trial.

    For one objective this is the usual median rule. For several, a trial that is better than the median in any of them
    may still reach the Pareto front and continues.
    """
    reached = [oriented(curve[number], objectives) for curve in earlier if number in curve]
    if len(reached) < WARM:
        return False
    medians = np.sort(reached, axis=0)[(len(reached) - 1) // 2]  # the lower one of two: a doubtful trial continues
    return dominates(medians, oriented(line, objectives))


def point_of(trial: Trial, objectives: Sequence[Objective]) -> np.ndarray:
    """Return the mean over seeds of each objective, such that higher is better."""
    return oriented([float(np.mean(values)) for values in trial.values], objectives)


def front(trials: Mapping[Any, Trial], objectives: Sequence[Objective]) -> list[Any]:
    """Return the keys of the complete trials that no other one dominates."""
    points = {key: point_of(trial, objectives) for key, trial in trials.items() if trial.state == "complete"}
    return [key for key, own in points.items() if not any(dominates(other, own) for other in points.values())]


def objectives_of(text: str | None, groups: bool) -> list[Objective]:
    """Return the objectives asked for; default: mean and worst tenth, of groups if there are any, and bytes."""
    level = "group" if groups else "user"
    names = [f"{level}/mean", f"{level}/worst10", BYTES] if text is None else text.split(",")
    found = [Objective.of(name.strip()) for name in names]
    if len(set(found)) != len(found):
        raise ConfigError("--objectives names an objective twice")
    if not groups and any(objective.name.startswith("group/") for objective in found):
        raise ConfigError("this data declares no groups; use --objectives user/mean,user/worst10,bytes")
    return found


def pick_of(name: str | None, objectives: Sequence[Objective]) -> int:
    """Return the place of the objective that decides the choice; default: the first worst tenth, or the first."""
    names = [objective.name for objective in objectives]
    if name is None:
        return next((place for place, known in enumerate(names) if known.endswith("/worst10")), 0)
    if name not in names:
        raise ConfigError(f"--pick must be one of the objectives, {', '.join(names)}; not '{name}'")
    return names.index(name)
