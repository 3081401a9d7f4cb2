"""From folders of runs into the ledger: what the pages need, and the origin, without paths."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError
from e2fl.runs.store import Folder, run_folders
from e2fl.version import ENGINE, __version__, commit
from paper.ledger import Identity, Json, Run, merged, read_ledger, write_ledger
from paper.recipes import command_of, method_of, overrides_of, settings_of
from paper.studies import Planned

ORIGIN = "origin.json"
DEPTH = 5  # levels of folders below a given one in which runs are searched
KEPT = ("round", "clients", "group", "groups", "groups_are", "views", "protected", "validation")
INFERENCE = ("matched", "purity", "adjusted_rand", "bytes", "found")
LONGEST = 100  # characters of a folder's name


@dataclass(frozen=True)
class Origin:
    """The origin of a run: what its folder does not record."""

    commit: str | None  # "-dirty" if files differed from it; None: not known
    machine: Json

    @classmethod
    def here(cls, commit_hash: str | None = None) -> "Origin":
        """Return the origin of runs of this program on this kind of machine."""
        kind = torch.backends.cpu.get_cpu_capability()
        machine = {"instructions": kind, "cores": os.cpu_count() or 1}
        return cls(commit_hash or commit() or None, machine)

    def to_json(self) -> Json:
        """Return what is stored with a run when it starts."""
        values = {"commit": self.commit, "machine": self.machine}
        return values | {"version": __version__, "engine": ENGINE}


def collect(folder: Path, ledger: Path, origin: Origin) -> tuple[list[Run], list[Path]]:
    """Put all runs below a folder into the ledger.

    Return those that are new or changed, and the folders of runs that are no variant of a shipped
    experiment, which the ledger does not keep. Nothing is written if one run cannot be read.
    """
    folders = list(run_folders(folder, DEPTH))
    if not folders:
        raise RunError(f"{folder} holds no run: no config.toml is in it or in the folders below")
    read = {path: read_run(path, origin) for path in folders}
    known = read_ledger(ledger) if ledger.is_dir() else []
    before: dict[Identity, Run] = {run.identity: run for run in known}
    runs = merged([*known, *(run for run in read.values() if run is not None and run.rounds)])
    write_ledger(runs, ledger)
    changed = [run for run in runs if before.get(run.identity) != run]
    return changed, [path for path, run in read.items() if run is None]


def read_runs(folder: Path) -> list[Run]:
    """Return the runs in a folder that have evaluated a round of a shipped experiment."""
    origin = Origin(None, {})
    runs = [read_run(path, origin) for path in run_folders(folder, DEPTH)]
    return [run for run in runs if run is not None and run.rounds]


def read_run(path: Path, origin: Origin) -> Run | None:
    """Return the run in a folder; None if it is no variant of a shipped experiment."""
    files = Folder(path)
    experiment = files.read_experiment()
    method = method_of(experiment)
    if method is None:
        return None
    lines = [line for line in files.read_history() if "clients" in line]
    summary = files.read_summary() if files.finished() else {}
    if summary and (not lines or lines[-1]["clients"] != summary.get("clients")):
        raise RunError(f"{path}: history.jsonl does not end as summary.json does")
    try:
        return _run(experiment, method, lines, summary, read_origin(path) or origin.to_json())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not the folder of a run ({error!r}); remove it") from error


def read_origin(path: Path) -> Json:
    """Return what was stored when the run in this folder began; empty if nothing was."""
    try:
        stored: Json = json.loads((path / ORIGIN).read_text(encoding="utf-8"))
        return stored
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(f"{path / ORIGIN} is damaged ({error}); remove it") from error


def _run(
    experiment: Experiment, method: str, lines: Sequence[Json], summary: Json, origin: Json
) -> Run:
    environment = summary.get("environment", {})
    origin = {
        "command": command_of(experiment, method),
        "commit": environment.get("commit") or origin["commit"],
        "machine": origin["machine"],
        "version": summary.get("version", origin["version"]),
        "engine": origin["engine"],
    }
    reached = lines[-1]["round"] if lines else 0
    return Run(
        experiment=experiment.name,
        method=method,
        seed=experiment.seed,
        overrides=overrides_of(experiment, experiment.name, method),
        settings=settings_of(experiment),
        planned=experiment.rounds,
        finished=bool(summary) and summary["rounds"] == reached,
        rounds=tuple(evaluated(line) for line in lines),
        summary={"bytes": _bytes(lines, summary), "bits": summary.get("bits", {})},
        origin=origin,
    )


def evaluated(line: Json) -> Json:
    """Return what the pages use of an evaluated round."""
    kept = {key: line[key] for key in KEPT if line.get(key) not in (None, {})}
    seen = line.get("metadata", {}).get("groups_seen")
    if seen is not None and "views" in kept:
        # The model of a group that nobody voted in is the global model again.
        unelected = [
            view
            for view in kept["views"]
            if view.startswith("as_group") and int(view.removeprefix("as_group")) not in seen
        ]
        kept["views"] = {k: view for k, view in kept["views"].items() if k not in unelected}
    kept["bytes"] = line["bytes"]
    inference = line.get("inference")
    if inference:
        kept["inference"] = {key: inference[key] for key in INFERENCE if inference[key] is not None}
        course = [
            {"round": part["round"], "matched": part["matched"]}
            for part in inference.get("rounds", ())
            if part["matched"] is not None
        ]
        if course:
            kept["inference"]["rounds"] = course
    return kept


def _bytes(lines: Sequence[Json], summary: Json) -> Json:
    """Return the bytes that a selected client sends and receives in a round."""
    if summary:
        keys = [f"{way}_per_client_round" for way in ("up", "down")]
        return {key: float(summary["bytes"][key]) for key in keys}
    if not lines or not lines[-1]["asked"]:
        return {}
    asked = lines[-1]["round"] * lines[-1]["asked"]
    totals = lines[-1]["bytes"]
    return {f"{way}_per_client_round": totals[f"{way}_total"] / asked for way in ("up", "down")}


def place(planned: Planned) -> Path:
    """Return the folder of a run below --out: EXPERIMENT/SETTING/METHOD/seed-N."""
    setting = ",".join(f"{key}={_text(value)}" for key, value in planned.overrides.items())
    names = (planned.experiment, setting or "as-shipped", planned.method, f"seed-{planned.seed}")
    return Path(*(folder_name(name) for name in names))


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def folder_name(text: str) -> str:
    """Return a string as the name of a folder; a long one is cut and gets its digest."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.") or "unnamed"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{digest}"
