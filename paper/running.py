"""Runs of shipped experiments: planned from overrides, run, and collected into the ledger.

Needs torch, unlike the pages: the overrides of a run are found when it is planned or collected.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from e2fl.config.experiment import Experiment, base_of
from e2fl.config.experiment import with_whole_numbers as whole
from e2fl.config.files import shipped
from e2fl.config.methods import changed_where_defined
from e2fl.config.overrides import NEUTRAL, Change, flattened, from_names, typed
from e2fl.config.sections import completed
from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from e2fl.kernels import ENGINE_VERSION
from e2fl.participation import PARTICIPATION
from e2fl.runs import store
from e2fl.runs.batch import Task, run_all
from e2fl.runs.store import Folder, run_folders
from e2fl.runs.watcher import Watcher, Watchers
from e2fl.version import __version__, commit
from paper.ledger import Json, LedgerRun, merged, read_ledger, write_ledger
from paper.studies import Planned, needed

ORIGIN = "origin.json"
DEPTH = 5  # levels of folders below a given one in which runs are searched
LONGEST = 100  # characters of a folder's name
MEASURED = ("clients", "group", "groups", "groups_are", "views", "protected", "validation")
KEPT = ("round", *MEASURED, "bytes")  # of an evaluated round
INFERENCE = ("matched", "purity", "adjusted_rand", "bytes", "found")
COURSE = ("round", "matched")  # of the rounds of training since the last evaluation
UNSAID = ("data.dir", *NEUTRAL)  # of this machine, not of the result
# Settings that may differ between runs of one method.
FREE = ("seed", "rounds", "evaluate_every", "evaluate_clients")


def planned_runs(
    study: str,
    changes: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
) -> list[tuple[Planned, Experiment]]:
    """Return the runs of a study with changes such as "rounds=20", and their experiments.

    A setting of an algorithm is changed in the methods that have it; it is an error if none has it.
    """
    asked = typed(changes)
    if any(change.section == "seed" for change in asked):
        raise ConfigError("a study has several seeds: name them with --seeds, not with --set seed")
    items = needed(study, seeds, methods)
    first = {item.label: item for item in reversed(items)}
    made = changed_where_defined(
        asked, first, lambda label, changes: _experiment_of(first[label], changes)
    )
    runs: dict[object, tuple[Planned, Experiment]] = {}
    for item in items:
        experiment = replace(made[item.label], seed=item.seed)
        run = replace(
            item,
            overrides=overrides_of(experiment, item.experiment, item.method),
            rounds=experiment.rounds,
            evaluate_every=experiment.evaluate_every,
            changed={change.name: change.value for change in asked},
        )
        runs[run.identity] = run, experiment
    return list(runs.values())


def _experiment_of(item: Planned, changes: Sequence[Change]) -> Experiment:
    own = item.overrides | {"rounds": item.rounds, "evaluate_every": item.evaluate_every}
    wanted = [*from_names(own), *changes]
    return base_of(item.experiment, wanted).variant(item.method, wanted)


def overrides_of(
    experiment: Experiment, name: str, method: str, free: Iterable[str] = FREE
) -> Json:
    """Return the settings in which an experiment differs from a shipped one's variant.

    A section of another name, or a new one, starts empty: what is not its default is set again.
    """
    variant = base_of(name, ()).variant(method)
    before, after = _flat(variant), _flat(experiment)
    names = {key: value for key, value in after.items() if key.endswith(".name")}
    renamed = tuple(key.removesuffix("name") for key in names if names[key] != before.get(key))
    new = _flat(variant.changed(from_names(names)))
    return {
        key: value
        for key, value in sorted(after.items())
        if key not in (*UNSAID, *free)
        and (new.get(key) != value or (key in names and key.startswith(renamed)))
    }


def settings_of(experiment: Experiment) -> Json:
    """Return all settings that decide a result, by their full names."""
    policy = type(experiment.build.participation())
    names = {kind: name for name, kind in PARTICIPATION.items()}
    values = _flat(experiment) | {"participation.name": names[policy]}
    left_out = (*UNSAID, *FREE, "measures", "update_limit", "examples_limit")
    return {key: value for key, value in sorted(values.items()) if key not in left_out}


def method_of(experiment: Experiment) -> str | None:
    """Return the variant of the shipped experiment that a run was made from; None if of none.

    Code that a file names is not imported to read the file.
    """
    if experiment.name not in shipped() or experiment.imports():
        return None
    base = base_of(experiment.name, ())
    titled = (name for name in base.variants if base.variant(name).label == experiment.label)
    method = next(titled, experiment.label)
    try:
        changes = from_names(overrides_of(experiment, experiment.name, method, ()))
        again = base_of(experiment.name, changes).variant(method, changes)
        again.build.algorithm()  # rejects settings that this version does not have
    except ConfigError:
        return None
    unsaid = dict.fromkeys(UNSAID)
    return method if _flat(again) | unsaid == _flat(experiment) | unsaid else None


def command_of(experiment: Experiment, method: str) -> str:
    """Return the command that repeats a run, even if another command started it."""
    words = ["e2fl", "run", experiment.name, "--algorithm", method]
    for key, value in overrides_of(experiment, experiment.name, method, ()).items():
        text = json.dumps(value) if isinstance(value, bool | list) else str(value)
        words += ["--set", f"{key}={text}"]
    return shlex.join(words)


def _flat(experiment: Experiment) -> Json:
    """Return all settings, with the defaults of what the sections name."""
    values = flattened(replace(completed(experiment), variants={}).to_dict())
    return {key: whole(value) for key, value in values.items() if value != {}}


def run_missing(
    wanted: Sequence[tuple[Planned, Experiment]],
    out: Path,
    budget: float | None = None,
    watcher: Watcher | None = None,
) -> bool:
    """Run these into folders of their own, up to a budget of minutes; return whether all ended."""
    tasks: dict[Task, Planned] = {}
    reasons: list[tuple[Planned, Exception]] = []
    for planned, experiment in wanted:
        try:
            tasks[_task(experiment, folder_of(planned, out))] = planned
        except RunError as error:
            reasons.append((planned, error))
    folders = [task.folder or out for task in tasks]

    class OriginRecord(Watcher):
        """Stores the origin when a run begins; a resumed one keeps that of its first rounds."""

        def announce(self, number: int, total: int) -> None:
            self.path = folders[number - 1] / ORIGIN

        def begin(self, experiment: Experiment, first: int, last: int) -> None:
            if not self.path.is_file():
                write_text(self.path, json.dumps(origin_here(), indent=1) + "\n")

    seconds = None if budget is None else 60 * budget
    watchers = Watchers(OriginRecord(), watcher or Watcher())
    batch = run_all(list(tasks), budget=seconds, watcher=watchers)
    reasons += [(tasks[task], error) for task, error in batch.failed.items()]
    for planned, reason in reasons:
        print(f"not run: {planned.label}, seed {planned.seed}: {reason}", file=sys.stderr)
    if batch.stopped:
        print("stopped at the budget; the same command resumes from here", file=sys.stderr)
    return len(batch.runs) == len(wanted)


def folder_of(planned: Planned, out: Path) -> Path:
    """Return the folder of a run, EXPERIMENT/SETTING/METHOD/seed-N below `out`.

    It is one of its own if the run there was planned for more rounds.
    """
    setting = ",".join(f"{key}={value}" for key, value in planned.overrides.items())
    names = (planned.experiment, setting or "as-shipped", planned.method, f"seed-{planned.seed}")
    folder = out / Path(*map(folder_name, names))
    begun = (folder / "config.toml").is_file()
    if begun and Folder(folder).read_experiment().rounds > planned.rounds:
        return folder.with_name(f"{folder.name}-rounds-{planned.rounds}")
    return folder


def folder_name(text: str) -> str:
    """Return a string as the name of a folder; a long one is cut and gets its digest."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{digest}"


def _task(experiment: Experiment, folder: Path) -> Task:
    """Return the run of a folder; one that was begun is evaluated as before."""
    if not (folder / "config.toml").is_file():
        return Task(experiment, folder)
    here = origin_here()["engine"]
    begun = read_origin(folder).get("engine", here)
    if begun != here:
        what = f"{folder} was begun with engine {begun}, this is {here}"
        raise RunError(f"{what}: other bits; pass another folder with --out")
    every = Folder(folder).read_experiment().evaluate_every
    return Task(replace(experiment, evaluate_every=every), folder)


def origin_here(commit_hash: str | None = None) -> Json:
    """Return the origin of runs of this program on this kind of machine."""
    kind = torch.backends.cpu.get_cpu_capability()
    return {
        "commit": commit_hash or commit() or None,  # "-dirty" if files differ from it
        "machine": {"instructions": kind, "cores": os.cpu_count() or 1},
        "version": __version__,
        "engine": ENGINE_VERSION,
    }


def collect(folder: Path, ledger: Path, origin: Json) -> tuple[list[LedgerRun], list[Path]]:
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


def read_runs(folder: Path) -> list[LedgerRun]:
    """Return the runs in a folder that have evaluated a round of a shipped experiment."""
    runs = [read_run(path, origin_here()) for path in run_folders(folder, DEPTH)]
    return [run for run in runs if run is not None and run.rounds]


def read_run(path: Path, origin: Json) -> LedgerRun | None:
    """Return the run in a folder; None if it is no variant of a shipped experiment."""
    experiment = Folder(path).read_experiment()
    method = method_of(experiment)
    if method is None:
        return None
    lines, summary = Folder(path).read_history(), {}
    if Folder(path).finished():
        stored = store.read_run(path)
        lines, summary = stored.history, stored.summary
    try:
        recorded = summary.get("environment", {})
        engine = int(recorded.get("engine", origin["engine"]))
        begun = origin | {"engine": engine} | read_origin(path)
        return LedgerRun(
            experiment=experiment.name,
            method=method,
            seed=experiment.seed,
            overrides=overrides_of(experiment, experiment.name, method),
            settings=settings_of(experiment),
            planned=experiment.rounds,
            finished=bool(summary) and summary["rounds"] == lines[-1]["round"],
            rounds=tuple(evaluated(line) for line in lines),
            summary={"bytes": _bytes(lines, summary), "bits": summary.get("bits", {})},
            origin={
                "command": command_of(experiment, method),
                "commit": recorded.get("commit") or begun["commit"],
                "machine": begun["machine"],
                "version": summary.get("version", begun["version"]),
                "engine": begun["engine"],
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not the folder of a run ({error!r}); remove it") from error


def read_origin(path: Path) -> Json:
    """Return what was known and stored when the run in this folder began."""
    stored: Json = {}
    if (path / ORIGIN).is_file():
        stored = json.loads((path / ORIGIN).read_text(encoding="utf-8"))
    return {key: value for key, value in stored.items() if value is not None}


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
    if "inference" in line:
        found = {key: line["inference"].get(key) for key in INFERENCE}
        kept["inference"] = {key: value for key, value in found.items() if value is not None}
        parts = [{key: part[key] for key in COURSE} for part in line["inference"].get("rounds", ())]
        course = [part for part in parts if part["matched"] is not None]
        kept["inference"] |= {"rounds": course} if course else {}
    return kept


def _bytes(lines: Sequence[Json], summary: Json) -> Json:
    """Return the bytes that a selected client sends and receives in a round."""
    keys = {way: f"{way}_per_client_round" for way in ("up", "down")}
    if summary:
        return {key: float(summary["bytes"][key]) for key in keys.values()}
    asked = lines[-1]["round"] * lines[-1]["asked"] if lines else 0
    return {key: lines[-1]["bytes"][f"{way}_total"] / asked for way, key in keys.items() if asked}
