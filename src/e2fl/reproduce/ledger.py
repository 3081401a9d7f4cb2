"""The ledger: the figures of every run that our tables are made from, as small text files.

A folder EXPERIMENT/SETTING/METHOD/seed-N holds config.toml, history.jsonl (one line for each evaluated round),
groups.csv (the figures of each group at the last evaluation), record.json (the origin of the run) and, once the run has
finished, summary.json. The folder of a run can be read in the same way.
"""

import csv
import hashlib
import io
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from e2fl.config.completion import trimmed, with_whole_numbers
from e2fl.config.experiment import UNSAVED, from_dict
from e2fl.errors import E2flError, RunError
from e2fl.runs.folder import run_folders

Json = dict[str, Any]

DEPTH = 5  # levels of folders below a given one in which runs are searched
# Settings that do not distinguish two runs of one method: more rounds are the same run, continued.
NEUTRAL = ("name", "rounds", "evaluate_every", "seed", "device", "variants", *UNSAVED)
LARGEST = 64 * 2**20  # bytes of a file
LONGEST = 100  # characters of a folder's name
FOUND = "found"  # groups.csv: the groups are clusters, not groups that the clients declare


@dataclass(frozen=True)
class Entry:
    """One run, finished or not."""

    config: Json
    history: tuple[Json, ...]
    summary: Json | None = None
    record: Json = field(default_factory=dict)
    groups: tuple[Json, ...] = ()
    folder: Path | None = None

    @property
    def experiment(self) -> str:
        return str(self.config.get("name", "experiment"))

    @property
    def method(self) -> str:
        algorithm = self.config["algorithm"]
        return str(algorithm.get("label", algorithm["name"]))

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    @property
    def rounds(self) -> int:
        """The last evaluated round; 0 if there is none yet."""
        return int(self.history[-1]["round"]) if self.history else 0

    @property
    def finished(self) -> bool:
        return self.summary is not None

    @cached_property
    def settings(self) -> str:
        """Everything that decides the result, apart from seed and rounds, as one comparable string."""
        return settings_key(self.config)

    def at(self, number: int) -> Json | None:
        """Return the line of history of this round."""
        return next((line for line in self.history if line["round"] == number), None)

    def mib(self, way: str) -> float:
        """Return the MiB that a selected client sends ("up") or receives ("down") in a round of training.

        It is NaN if the run does not say how many clients were selected.
        """
        found = (self.summary or {}).get("bytes", {}).get(f"{way}_per_client_round")
        if found is None:
            last = self.history[-1]
            asked = last["round"] * last["asked"]
            found = last["bytes"][f"{way}_total"] / asked if asked else math.nan
        return float(found) / 2**20

    @property
    def progress(self) -> tuple[int, bool]:
        """How far the run has got: of two entries of one run, the greater is kept."""
        return self.rounds, self.finished

    def with_lines_of(self, other: "Entry") -> "Entry":
        """Return this entry with the rounds that only another entry of the same run has evaluated.

        Equal settings and an equal seed give equal rounds on one kind of machine. On another kind, or an unknown one,
        the last bits may differ, so such a run adds its rounds only if both have evaluated a round. Rounds that both
        have evaluated must be equal.
        """
        shared = [(line, same) for line in self.history if (same := other.at(line["round"])) is not None]
        equal = all(line["user"] == same["user"] for line, same in shared)
        if not equal or not (shared or self._made_like(other)):
            return self
        lines = {line["round"]: line for line in (*other.history, *self.history)}
        return replace(self, history=tuple(lines[number] for number in sorted(lines)))

    def _made_like(self, other: "Entry") -> bool:
        """Return whether both runs are known to come from the same kind of machine."""
        kinds = [entry.record.get("machine", {}).get("instructions") for entry in (self, other)]
        return kinds[0] is not None and kinds[0] == kinds[1]


def settings_key(config: Mapping[str, Any]) -> str:
    """Return `Entry.settings`.

    A default counts the same written out or left out, and 1.0 the same as 1; the data directory does not count.
    """
    try:
        values = trimmed(from_dict(config)).to_dict()
    except E2flError:  # of another version, or not an experiment: compare it as it stands
        values = dict(config)
    kept = {name: value for name, value in values.items() if name not in NEUTRAL and value != {}}
    kept["data"] = {name: value for name, value in kept["data"].items() if name != "dir"}
    return json.dumps(with_whole_numbers(kept), sort_keys=True)


def read_entry(folder: Path) -> Entry:
    """Return the run in this folder: of the ledger, or as it was run."""
    try:
        config = _config(folder / "config.toml")
        summary = _json(folder / "summary.json")
        record = _json(folder / "record.json") or {}
        _require_objects(summary or {}, ("bytes", "environment"), "summary.json")
        _require_objects(record, ("machine",), "record.json")
        history = _history(folder / "history.jsonl")
        groups = _rows(folder / "groups.csv")
        reached = history[-1]["round"] if history else 0
        if record.get("rounds", reached) != reached:
            raise ValueError(f"history.jsonl ends at round {reached}, and record.json says {record['rounds']}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, csv.Error) as error:
        raise RunError(f"{folder} is not the folder of a run ({error}); remove it, or give another folder") from error
    return Entry(config, tuple(history), summary, record, tuple(groups), folder)


def read_entries(root: Path) -> list[Entry]:
    """Return all runs in this folder and below it that have at least one evaluated round, in a fixed order."""
    found = [read_entry(folder) for folder in run_folders(root, DEPTH)]
    return sorted((entry for entry in found if entry.history), key=lambda e: (e.experiment, e.settings, e.seed))


def best_of(entries: Iterable[Entry]) -> list[Entry]:
    """Return one entry for each method, setting and seed: the one that got farthest, with the rounds of the others."""
    farthest: dict[tuple[str, str, int], Entry] = {}
    for entry in entries:
        key = (entry.experiment, entry.settings, entry.seed)
        known = farthest.get(key)
        if known is None:
            farthest[key] = entry
        elif entry.progress > known.progress:
            farthest[key] = entry.with_lines_of(known)
        else:
            farthest[key] = known.with_lines_of(entry)
    return list(farthest.values())


def folder_name(text: str) -> str:
    """Return the string as the name of a folder; a long one is cut and gets its digest, so that names differ."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.") or "unnamed"
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _text(path: Path) -> str:
    """Return the text of a file of reasonable size."""
    with path.open("rb") as file:
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise ValueError(f"{path.name} has more than {LARGEST >> 20} MiB")
    return found.decode("utf-8")


def _config(path: Path) -> Json:
    config = tomllib.loads(_text(path))
    for section in ("algorithm", "data"):
        if not isinstance(config[section]["name"], str):
            raise ValueError(f"{section} has no name")
    config.setdefault("seed", 0)
    for name in ("seed", "rounds"):
        if type(config[name]) is not int:
            raise ValueError(f"{name} is not an integer")
    return config


def _require_objects(values: Json, names: Iterable[str], file: str) -> None:
    for name in names:
        if not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name} of {file} is not an object")


def _json(path: Path) -> Json | None:
    if not path.is_file():
        return None
    value = json.loads(_text(path))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no object")
    return value


def _history(path: Path) -> list[Json]:
    """Return the evaluated lines. A run in progress may have written half of the last one."""
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in _text(path).splitlines(keepends=True) if line.endswith("\n")]
    for line in lines:
        if not isinstance(line, dict) or type(line.get("round")) is not int:
            raise ValueError(f"{path.name} has a line that is not a round")
    found = [line for line in lines if "user" in line]
    for line in found:
        parts = [name for name in ("group", "groups", "bytes", "views", "inference") if line.get(name) is not None]
        _require_objects(line, ("user", *parts), f"round {line['round']}")
        numbers = [line["user"].get("mean"), *line["user"].values(), *(line.get("group") or {}).values()]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError(f"round {line['round']} of {path.name} has figures that are not numbers")
    return found


def _rows(path: Path) -> list[Json]:
    if not path.is_file():
        return []
    numbers = {"round": int, "clients": int, "accuracy": float, "loss": float}
    rows = csv.DictReader(io.StringIO(_text(path), newline=""))
    return [{name: numbers.get(name, str)(text) for name, text in row.items()} for row in rows]
