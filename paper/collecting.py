"""From folders of runs into the ledger: what the pages need, and the origin, without paths."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError
from e2fl.kernels import ENGINE_VERSION
from e2fl.runs.store import Folder, run_folders
from e2fl.version import __version__, commit
from paper.ledger import Json, Run, merged, read_ledger, write_ledger
from paper.recipes import command_of, method_of, overrides_of, settings_of

ORIGIN = "origin.json"
DEPTH = 5  # levels of folders below a given one in which runs are searched
KEPT = ("round", "clients", "group", "groups", "groups_are", "views", "protected", "validation")
INFERENCE = ("matched", "purity", "adjusted_rand", "bytes", "found")


def origin_here(commit_hash: str | None = None) -> Json:
    """Return the origin of runs of this program on this kind of machine."""
    kind = torch.backends.cpu.get_cpu_capability()
    return {
        "commit": commit_hash or commit() or None,  # "-dirty" if files differ from it
        "machine": {"instructions": kind, "cores": os.cpu_count() or 1},
        "version": __version__,
        "engine": ENGINE_VERSION,
    }


def collect(folder: Path, ledger: Path, origin: Json) -> tuple[list[Run], list[Path]]:
    """Put all runs below a folder into the ledger.

    Return those that are new or changed, and the folders of runs that are no variant of a shipped
    experiment, which the ledger does not keep. Nothing is written if one run cannot be read.
    """
    read = {path: read_run(path, origin) for path in run_folders(folder, DEPTH)}
    if not read:
        raise RunError(f"{folder} holds no run: no config.toml is in it or in the folders below")
    known = read_ledger(ledger) if ledger.is_dir() else []
    runs = merged([*known, *(run for run in read.values() if run is not None and run.rounds)])
    write_ledger(runs, ledger)
    changed = [run for run in runs if run not in known]
    return changed, [path for path, run in read.items() if run is None]


def read_runs(folder: Path) -> list[Run]:
    """Return the runs in a folder that have evaluated a round of a shipped experiment."""
    runs = [read_run(path, origin_here()) for path in run_folders(folder, DEPTH)]
    return [run for run in runs if run is not None and run.rounds]


def read_run(path: Path, origin: Json) -> Run | None:
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
        made = origin | _engine(summary) | read_origin(path)
        return _run(experiment, method, lines, summary, made)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not the folder of a run ({error!r}); remove it") from error


def read_origin(path: Path) -> Json:
    """Return what was known and stored when the run in this folder began."""
    stored: Json = {}
    if (path / ORIGIN).is_file():
        stored = json.loads((path / ORIGIN).read_text(encoding="utf-8"))
    return {key: value for key, value in stored.items() if value is not None}


def _engine(summary: Json) -> Json:
    """Return the engine of a finished run; those that do not record it have the first."""
    return {"engine": int(summary["environment"].get("engine", 1))} if summary else {}


def _run(
    experiment: Experiment, method: str, lines: Sequence[Json], summary: Json, origin: Json
) -> Run:
    recorded = summary.get("environment", {}).get("commit") or origin["commit"]
    version = summary.get("version", origin["version"])
    command = {"command": command_of(experiment, method)}
    return Run(
        experiment=experiment.name,
        method=method,
        seed=experiment.seed,
        overrides=overrides_of(experiment, experiment.name, method),
        settings=settings_of(experiment),
        planned=experiment.rounds,
        finished=bool(summary) and summary["rounds"] == lines[-1]["round"],
        rounds=tuple(evaluated(line) for line in lines),
        summary={"bytes": _bytes(lines, summary), "bits": summary.get("bits", {})},
        origin=command | origin | {"commit": recorded, "version": version},
    )


def evaluated(line: Json) -> Json:
    """Return what the pages use of an evaluated round."""
    kept = {key: line[key] for key in KEPT if line.get(key) not in (None, {})}
    seen = line.get("metadata", {}).get("groups_seen")
    if seen is not None and "views" in kept:
        # The model of a group that nobody voted in is the global model again.
        elected = {f"as_group{group}" for group in seen}
        kept["views"] = {
            name: view
            for name, view in kept["views"].items()
            if name in elected or not name.startswith("as_group")
        }
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
