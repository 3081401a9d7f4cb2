"""From folders of runs into the ledger: what a table needs, and its origin, without models or paths."""

import csv
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
import torch

from e2fl.config.completion import completed, trimmed
from e2fl.config.experiment import UNSAVED, Experiment, from_dict, load, shipped
from e2fl.config.overrides import flattened
from e2fl.csv_text import csv_text
from e2fl.errors import E2flError, RunError
from e2fl.files import write_text
from e2fl.reproduce.ledger import DEPTH, FOUND, Entry, Json, folder_name, read_entry, settings_key
from e2fl.runs.folder import Folder, run_folders
from e2fl.version import __version__, commit

RECORD = "record.json"
FILES = {"config.toml", "history.jsonl", "groups.csv", RECORD, "summary.json"}  # of an entry of the ledger
SOURCES = {"config.toml", "history.jsonl", "clients.csv", "summary.json"}  # of a run, which an entry is made from
SHIPPED = "as-shipped"
UNSAID = ("name", "device", "data.dir", *UNSAVED)  # of this machine, not of the result
FREE = ("seed", "rounds", "evaluate_every")  # settings that may differ within one configuration
# An absolute path of any system, anywhere in a string.
PATH = re.compile(r"(?<![\w.:/<])(?:~?/[\w.~-]+(?:/[\w.~-]+)+|[A-Za-z]:[\\/][^\s\"']+|\\\\[^\s\"']+)")


@dataclass(frozen=True)
class Origin:
    """The origin of a run: what the run folder does not record."""

    commit: str | None  # "-dirty" if files differed from it; None: not known
    machine: Json

    @classmethod
    def here(cls) -> "Origin":
        """Return the origin of runs of this program on this machine."""
        return cls(commit() or None, machine())


def machine() -> Json:
    """Return the kind of machine; nothing that identifies it."""
    return {"instructions": torch.backends.cpu.get_cpu_capability(), "cores": os.cpu_count() or 1}


def collect(runs: Path, ledger: Path, origin: Origin) -> list[Path]:
    """Put all runs below a folder into the ledger; return the folders that were written, without unchanged ones.

    A ledger that is collected into itself is brought up to date: commands and folders follow the shipped experiments.
    Nothing is written if one of the runs cannot be read, and nothing but an entry that has moved is ever deleted.
    """
    found = list(run_folders(runs, DEPTH))
    if not found:
        raise RunError(f"{runs} holds no run: there is no config.toml in it or in the folders below it")
    for folder in found:
        Folder(folder).verify(SOURCES)
    entries = [(folder, _with_origin(read_entry(folder), origin)) for folder in found]  # all, before any is written
    written = []
    for folder, entry in entries:
        if not entry.history:
            continue
        target = ledger / place(entry)
        if _write(_merged(entry, target), target):
            written.append(target)
        moved = runs.resolve() == ledger.resolve() and folder.resolve() != target.resolve()
        if moved and {path.name for path in folder.iterdir()} <= FILES:  # otherwise a run, with more than an entry has
            shutil.rmtree(folder)
    return written


def place(entry: Entry) -> Path:
    """Return the entry's folder in the ledger: EXPERIMENT/SETTING/METHOD/seed-N."""
    names = (entry.experiment, setting(entry.config), entry.method, f"seed-{entry.seed}")
    return Path(*(folder_name(name) for name in names))


def setting(config: Mapping[str, Any]) -> str:
    """Return what differs from the shipped experiment, such as data.samples_per_client=60."""
    recipe = recipe_of(config)
    if recipe is None:
        return f"own-{hashlib.sha256(settings_key(config).encode()).hexdigest()[:8]}"
    changes = {key: value for key, value in recipe.changes.items() if key not in (*FREE, "algorithm.label")}
    parts = {key: "+".join(map(str, value)) if isinstance(value, list) else value for key, value in changes.items()}
    return ",".join(f"{key}={value}" for key, value in parts.items()) or SHIPPED


def command(config: Mapping[str, Any]) -> str:
    """Return the command that repeats this run, even if another command started it."""
    recipe = recipe_of(config)
    if recipe is None:
        return "e2fl run config.toml"
    words = ["e2fl", "run", str(config["name"]), "--algorithm", recipe.variant]
    for key, value in recipe.changes.items():
        words += ["--set", f"{key}={_value(value)}"]
    return shlex.join(words)


@dataclass(frozen=True)
class Recipe:
    """A run as a variant of a shipped experiment, with changes."""

    variant: str
    changes: dict[str, Any]


def recipe_of(config: Mapping[str, Any]) -> Recipe | None:
    """Return how a run is made from the shipped experiment of its name; None if it cannot be made from one."""
    return _recipe(json.dumps(config, sort_keys=True))


@cache
def _recipe(text: str) -> Recipe | None:
    """Return the recipe of a configuration, given as JSON. Kept, because every table asks for those of all runs."""
    config = json.loads(text)
    name, algorithm = config.get("name"), config["algorithm"]
    sections = [value for value in config.values() if isinstance(value, Mapping)]
    if name not in shipped() or any(":" in str(section.get("name", "")) for section in sections):
        return None  # code that a file names is not imported to read the file
    for variant in dict.fromkeys((str(algorithm.get("label", algorithm["name"])), str(algorithm["name"]))):
        try:
            changes = _changes(load(str(name), algorithm=variant), from_dict(dict(config) | {"variants": {}}))
            words = [f"{key}={_value(value)}" for key, value in changes.items()]
            shipped_run = load(str(name), words, algorithm=variant)
            shipped_run.build_algorithm()  # rejects settings that this version does not have
            made = shipped_run.to_dict()
        except E2flError:
            continue
        if settings_key(made) == settings_key(config):
            return Recipe(variant, changes)
    return None


def _changes(shipped: Experiment, own: Experiment) -> dict[str, Any]:
    """Return the settings to change to get from one experiment to the other."""
    before, after = (_flat(completed(experiment)) for experiment in (shipped, own))
    told = _flat(trimmed(own))
    # A section of another name, or a new one, starts empty: what is not its default has to be set again.
    renamed = tuple(
        key.removesuffix("name") for key in after if key.endswith(".name") and after[key] != before.get(key)
    )
    return {
        key: value
        for key, value in sorted(after.items())
        if key not in UNSAID and ((key in told) if key.startswith(renamed) else before.get(key) != value)
    }


def _flat(experiment: Experiment) -> dict[str, Any]:
    values = flattened(experiment.to_dict())
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _value(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | list) else str(value)


def _merged(entry: Entry, target: Path) -> Entry:
    """Return the farther of this run and the one in the ledger, with the evaluated rounds of both."""
    if not (target / "config.toml").is_file():
        return entry
    known = read_entry(target)
    if known.settings != entry.settings:  # of an older version, which named folders otherwise
        return entry if entry.progress >= known.progress else known
    if (*entry.progress, len(entry.history)) >= (*known.progress, len(known.history)):
        return entry.with_lines_of(known)
    return known.with_lines_of(entry)


def _write(entry: Entry, target: Path) -> bool:
    """Write the files; return whether anything changed."""
    config = {name: value for name, value in entry.config.items() if name not in (*UNSAVED, "variants")}
    config["data"] = {name: value for name, value in config["data"].items() if name != "dir"}
    files = {
        "config.toml": tomli_w.dumps(without_paths(config)),
        "history.jsonl": "".join(json.dumps(without_paths(line)) + "\n" for line in entry.history),
        "groups.csv": csv_text(group_rows(entry)) or "group\n",
        RECORD: json.dumps(without_paths(_record(entry)), indent=1) + "\n",
    }
    if entry.summary is not None:
        files["summary.json"] = json.dumps(without_paths(entry.summary), indent=1) + "\n"
    changed = False
    for name, text in files.items():
        path = target / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            changed = True
    if entry.summary is None and (target / "summary.json").is_file():  # of fewer rounds: the run goes on
        (target / "summary.json").unlink()
        changed = True
    return changed


def _with_origin(entry: Entry, origin: Origin) -> Entry:
    """Return the entry with its commit and machine; a run that does not record them was made here."""
    commit = entry.record.get("commit") or (entry.summary or {}).get("environment", {}).get("commit") or origin.commit
    machine = entry.record.get("machine", origin.machine)
    return replace(entry, record=entry.record | {"commit": commit, "machine": machine})


def _record(entry: Entry) -> Json:
    version = (entry.summary or {}).get("version", entry.record.get("version", __version__))
    return {
        "command": command(entry.config),
        "commit": entry.record["commit"],
        "version": version,
        "machine": entry.record["machine"],
        "rounds": entry.rounds,
        "of": int(entry.config["rounds"]),
        "finished": entry.finished,
    }


def group_rows(entry: Entry) -> list[Json]:
    """Return the figures of each group at the last evaluation: of declared groups, otherwise of the clusters found."""
    if entry.groups:
        return list(entry.groups)
    last = entry.history[-1]
    own = FOUND if last.get("groups_are") == FOUND else "own"
    views = {own: last, **last.get("views", {})}
    rows = [
        {
            "round": last["round"],
            "view": view,
            "group": group,
            "clients": found["clients"],
            "accuracy": found["accuracy"],
            "loss": found["loss"],
        }
        for view, part in views.items()
        for group, found in (part.get("groups") or {}).items()
    ]
    return rows or _found_rows(entry)


def _found_rows(entry: Entry) -> list[Json]:
    """Return the clusters, from clients.csv; empty if the run has not finished or has no clusters."""
    path = None if entry.folder is None else entry.folder / "clients.csv"
    if path is None or not path.is_file():
        return []
    members: dict[int, list[tuple[float, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row.get("served_as"):
                members.setdefault(int(row["served_as"]), []).append((float(row["accuracy"]), float(row["loss"])))
    return [
        {
            "round": entry.rounds,
            "view": FOUND,
            "group": str(group),
            "clients": len(scores),
            "accuracy": sum(accuracy for accuracy, _ in scores) / len(scores),
            "loss": sum(loss for _, loss in scores) / len(scores),
        }
        for group, scores in sorted(members.items())
    ]


def without_paths(value: Any) -> Any:
    """Return the value with only the last part of every absolute path."""
    if isinstance(value, str):
        return PATH.sub(lambda match: re.split(r"[\\/]", match.group())[-1], value)
    if isinstance(value, Mapping):
        return {str(key): without_paths(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(part) for part in value]
    return value
