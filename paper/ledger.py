"""The ledger: every run that the pages are made from, a line of JSON each.

There is one file per experiment. A line holds how the run differs from the shipped variant
(`overrides`), all its settings, its evaluated rounds, what the pages use of its summary, and its
origin: the command that repeats it, the commit, the kind of machine, the version and the engine.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from e2fl.errors import RunError
from e2fl.files import write_text

Json = dict[str, Any]
Identity = tuple[str, str, str, int]

HERE = Path(__file__).parent
LEDGER = HERE / "ledger"
FOUND = "found"  # the groups of a round are clusters, not groups that the clients declare


@dataclass(frozen=True)
class Run:
    """One run, finished or not."""

    experiment: str
    method: str
    seed: int
    overrides: Json  # settings that differ from the shipped variant, without seed and rounds
    settings: Json  # all settings, by their full names
    planned: int  # the rounds that the run was started with
    finished: bool
    rounds: tuple[Json, ...]  # the evaluated ones
    summary: Json
    origin: Json

    def __post_init__(self) -> None:
        """Raise `ValueError` if the evaluated rounds cannot be those of a run."""
        numbers = [line["round"] for line in self.rounds]
        if numbers != sorted(set(numbers)):
            raise ValueError("its rounds are not in order")
        for line in self.rounds:
            figures = [*line["clients"].values(), *(line.get("group") or {}).values()]
            if not all(isinstance(figure, int | float) for figure in figures):
                raise ValueError(f"round {line['round']} has figures that are not numbers")
        for name in ("overrides", "settings", "summary", "origin"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} is not an object")

    @property
    def identity(self) -> Identity:
        """What distinguishes this run from others: more rounds are the same run, continued."""
        return self.experiment, self.method, canonical(self.overrides), self.seed

    @property
    def reached(self) -> int:
        """The last evaluated round; 0 if there is none yet."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    @property
    def progress(self) -> tuple[int, bool, int]:
        """How far the run has got: of two with one identity, the greater is kept."""
        return self.reached, self.finished, len(self.rounds)

    def at(self, number: int) -> Json | None:
        """Return the record of an evaluated round."""
        return next((line for line in self.rounds if line["round"] == number), None)

    def value(self, path: str, number: int) -> float | None:
        """Return a figure such as group/worst10 or views/global/clients/mean at a round.

        `group` is over declared groups, `clusters` over those that were found: methods that find
        none could not be compared with those that do.
        """
        part: Any = self.at(number) or {}
        names = path.split("/")
        if names[0] == "views":
            part = part.get("views", {}).get(names[1], {})
            names = names[2:]
        if names[0] in ("group", "clusters"):
            if (part.get("groups_are") == FOUND) != (names[0] == "clusters"):
                return None
            names[0] = "group"
        found = _dig(part, names)
        found = _dig(self.summary, names) if found is None else found
        return float(found) if found is not None and math.isfinite(found) else None

    def with_rounds_of(self, other: "Run") -> "Run":
        """Return this run with the rounds that only the other of the same identity has evaluated.

        Rounds that both have evaluated must be equal. If there is none, both must come from the
        same kind of machine and engine: with others the last bits may differ.
        """
        shared = [(line, same) for line in self.rounds if (same := other.at(line["round"]))]
        equal = all(line["clients"] == same["clients"] for line, same in shared)
        if not equal or not (shared or _made_alike(self, other)):
            return self
        lines = {line["round"]: line for line in (*other.rounds, *self.rounds)}
        return replace(self, rounds=tuple(lines[number] for number in sorted(lines)))


def canonical(overrides: Mapping[str, Any]) -> str:
    """Return overrides as one comparable string."""
    return json.dumps(dict(overrides), sort_keys=True)


def read_ledger(folder: Path = LEDGER) -> list[Run]:
    """Return all runs of a ledger, in a fixed order."""
    if not folder.is_dir():
        raise RunError(f"there is no ledger {folder}: the folder does not exist")
    runs: dict[Identity, Run] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            run = _read(text, f"line {number} of {path}")
            if not run.rounds or run.experiment != path.stem or run.identity in runs:
                raise RunError(f"line {number} of {path} is empty, twice there, or misplaced")
            runs[run.identity] = run
    return [runs[identity] for identity in sorted(runs)]


def _read(text: str, where: str) -> Run:
    try:
        values = json.loads(text)
        return Run(**values | {"rounds": tuple(values["rounds"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{where} is damaged: {error}; restore it from the repository") from error


def write_ledger(runs: Iterable[Run], folder: Path) -> None:
    """Write the runs, one file for each experiment."""
    texts: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda run: run.identity):
        text = json.dumps(asdict(run), ensure_ascii=False, separators=(",", ":"))
        texts.setdefault(run.experiment, []).append(f"{text}\n")
    for experiment, lines in texts.items():
        write_text(folder / f"{experiment}.jsonl", "".join(lines))


def merged(runs: Iterable[Run]) -> list[Run]:
    """Return one run for each identity: the farthest, with the rounds of the others."""
    farthest: dict[Identity, Run] = {}
    for run in runs:
        known = farthest.get(run.identity)
        if known is None:
            farthest[run.identity] = run
        elif run.progress > known.progress:
            farthest[run.identity] = run.with_rounds_of(known)
        else:
            farthest[run.identity] = known.with_rounds_of(run)
    return list(farthest.values())


def _dig(values: Any, names: Iterable[str]) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def _made_alike(first: Run, second: Run) -> bool:
    """Return whether both are known to come from the same kind of machine and engine."""
    kinds = [(run.origin.get("machine") or {}).get("instructions") for run in (first, second)]
    engines = [run.origin.get("engine") for run in (first, second)]
    return kinds[0] is not None and kinds[0] == kinds[1] and engines[0] == engines[1]
