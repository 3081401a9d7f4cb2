"""The ledger: every run that the pages are made from, a line of JSON each, and one frame of it.

There is one file per experiment. A line holds how the run differs from the shipped variant
(`overrides`), all its settings, its evaluated rounds, what the pages use of its summary, and its
origin: the command that repeats it, the commit, the kind of machine, the version and the engine.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl.errors import RunError
from e2fl.files import write_text
from e2fl.runs.records import numbers_of

Json = dict[str, Any]

HERE = Path(__file__).parent
LEDGER = HERE / "ledger"
IDENTITY = ["experiment", "method", "overrides", "seed"]
FOUND = "found"  # the groups of a round are clusters, not groups that the clients declare


@dataclass(frozen=True)
class Identity:
    """What distinguishes a run from others: more rounds are the same run, continued."""

    experiment: str
    method: str
    seed: int
    overrides: Json  # settings that differ from the shipped variant, without seed and rounds

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """All of it in one value that can be compared."""
        return self.experiment, self.method, canonical(self.overrides), self.seed


@dataclass(frozen=True)
class LedgerRun(Identity):
    """One run, finished or not."""

    settings: Json  # all settings, by their full names
    planned: int  # the rounds that the run was started with
    finished: bool
    rounds: tuple[Json, ...]  # the evaluated ones
    summary: Json
    origin: Json

    @property
    def reached(self) -> int:
        """The last evaluated round; 0 if there is none yet."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    def with_rounds_of(self, other: "LedgerRun") -> "LedgerRun":
        """Return this run with the rounds that only the other of the same identity has evaluated.

        Rounds that both have evaluated must be equal. If there is none, both must have one engine.
        """
        own = {line["round"]: line for line in self.rounds}
        others = {line["round"]: line for line in other.rounds}
        shared = own.keys() & others.keys()
        equal = all(own[number]["clients"] == others[number]["clients"] for number in shared)
        if not equal or not (shared or self.origin.get("engine") == other.origin.get("engine")):
            return self
        lines = others | own
        return replace(self, rounds=tuple(lines[number] for number in sorted(lines)))


def canonical(overrides: Mapping[str, Any] | None) -> str:
    """Return overrides as one comparable string."""
    return json.dumps(dict(overrides or {}), sort_keys=True)


def read_ledger(folder: Path = LEDGER) -> list[LedgerRun]:
    """Return all runs of a ledger, in a fixed order."""
    if not folder.is_dir():
        raise RunError(f"there is no ledger {folder}: the folder does not exist")
    runs = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                values = json.loads(text)
                runs.append(LedgerRun(**values | {"rounds": tuple(values["rounds"])}))
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"line {number} of {path} is damaged: {error}") from error
    return sorted(runs, key=lambda run: run.identity)


def write_ledger(runs: Iterable[LedgerRun], folder: Path) -> None:
    """Write the runs, one file for each experiment."""
    texts: dict[str, list[str]] = {}
    for run in sorted(runs, key=lambda run: run.identity):
        text = json.dumps(asdict(run), ensure_ascii=False, separators=(",", ":"))
        texts.setdefault(run.experiment, []).append(f"{text}\n")
    for experiment, lines in texts.items():
        write_text(folder / f"{experiment}.jsonl", "".join(lines))


def merged(runs: Iterable[LedgerRun]) -> list[LedgerRun]:
    """Return one run for each identity: the farthest, with the rounds of the others.

    Of runs that are as far, the one of the newer engine is kept.
    """
    farthest: dict[object, LedgerRun] = {}
    for run in runs:
        pair = [farthest.get(run.identity, run), run]
        pair.sort(key=_rank, reverse=True)
        farthest[run.identity] = pair[0].with_rounds_of(pair[1])
    return list(farthest.values())


def _rank(run: LedgerRun) -> tuple[int, bool, int, int]:
    return run.reached, run.finished, run.origin.get("engine", 1), len(run.rounds)


def frame(runs: Sequence[LedgerRun]) -> pd.DataFrame:
    """Return a row for each run and evaluated round, with a column for each figure by its path.

    `group/...` is over declared groups, `clusters/...` over those that were found: methods that
    find none could not be compared with those that do. Bytes are in MiB.
    """
    rows = []
    for run in runs:
        shared = {
            "experiment": run.experiment,
            "method": run.method,
            "overrides": canonical(run.overrides),
            "seed": run.seed,
            "run": run,
            "ended": run.finished and run.reached < run.planned,  # by itself, as Local does
        }
        rows += [shared | _figures(run, line) for line in run.rounds]
    made = pd.DataFrame(rows, columns=None if rows else [*IDENTITY, "round", "run", "ended"])
    return made.sort_values([*IDENTITY, "round"])


def _figures(run: LedgerRun, line: Json) -> dict[str, float]:
    """Return the figures of a round, bytes in MiB, and two that are derived from bytes.

    bytes/total is what was sent until this round; bytes/ballot is the KiB of a ballot of rank
    clustering.
    """
    figures = numbers_of(run.summary) | numbers_of(line)
    views = {f"views/{name}/": view for name, view in line.get("views", {}).items()}
    for start, part in ({"": line} | views).items():
        if part.get("groups_are") == FOUND:
            pattern, found = re.compile(f"^{start}group/"), f"{start}clusters/"
            figures = {pattern.sub(found, path): value for path, value in figures.items()}
    inference = line.get("inference", {})
    if inference.get("bytes") and "bytes/down_per_client_round" in figures:
        clients = sum(inference["found"].values())
        received = clients * figures["bytes/down_per_client_round"]
        figures["bytes/ballot"] = (inference["bytes"] - received) / clients * 2**10
    if "bytes/up_total" in figures:
        figures["bytes/total"] = figures["bytes/up_total"] + figures["bytes/down_total"]
    return {
        path: value / 2**20 if path.startswith("bytes/") else value
        for path, value in figures.items()
    }
