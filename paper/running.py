"""The command: collect runs, run what a table or figure lacks, and write the pages."""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.config.overrides import seed_numbers
from e2fl.errors import ConfigError, RunError
from e2fl.files import write_text
from paper.ledger import LEDGER, Json, Run, frame, merged, read_ledger
from paper.studies import Planned, missing, study
from paper.tables import table

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.runs.watcher import Watcher

LONGEST = 100  # characters of a folder's name


def reproduce(options: argparse.Namespace) -> int:
    """Collect, reproduce and write, as asked for and in this order; 3: runs are still missing."""
    if not (options.what or options.collect or options.write_docs):
        raise ConfigError(
            "nothing to do: name a table such as table1, or pass --collect RUNS_DIR or --write-docs"
        )
    if options.budget is not None and not options.budget >= 0:  # NaN is neither
        raise ConfigError(f"--budget takes minutes, 0 or more, not {options.budget}")
    options.ledger = options.ledger or LEDGER
    if not options.collect and not options.ledger.is_dir():
        raise ConfigError(f"there is no ledger {options.ledger}: the folder does not exist")
    if options.collect:
        from paper.collecting import collect, origin_here

        changed, left_out = collect(options.collect, options.ledger, origin_here(options.commit))
        print(f"{len(changed)} runs new or changed in {options.ledger}")
        for folder in left_out:
            print(f"left out: {folder} is no variant of a shipped experiment")
    done = _reproduce(options) if options.what else True
    if options.write_docs:
        from paper.pages import write

        runs = read_ledger(options.ledger)
        if not runs:
            raise RunError(f"the ledger {options.ledger} has no run to write pages from")
        for path in write(runs, options.docs):
            print(path)
    return 0 if done else 3


def _reproduce(options: argparse.Namespace) -> bool:
    """Run what is missing and show the outcome; return False if runs are still missing."""
    from e2fl.runs.progress import Progress
    from paper.recipes import planned_runs

    spec = study(options.what)
    methods = None if options.methods is None else [m for m in options.methods.split(",") if m]
    seeds = None if options.seeds is None else seed_numbers(options.seeds)
    for name, values in (("methods", methods), ("seeds", seeds)):
        if values == []:
            raise ConfigError(f"--{name} names none; leave it out to run all of them")
    wanted = planned_runs(options.what, options.changes, seeds, methods)
    planned = [run for run, _ in wanted]
    todo = missing(planned, _known(options))
    print(f"{spec['title']}: {len(planned)} runs, {len(planned) - len(todo)} of them finished")
    done = True
    if todo:
        print(f"to run:\n{listing(todo)}")
        if options.dry_run:
            return False
        options.after_stop = "the same command resumes from here"
        ids = {item.identity for item in todo}
        lacking = [(run, experiment) for run, experiment in wanted if run.identity in ids]
        done = run_missing(lacking, options.out, options.budget, Progress())
    keys = {run.identity[:3] for run in planned}
    own = [run for run in _known(options) if run.identity[:3] in keys]
    print(shown(planned, spec["tables"], own) or f"no table has a row; runs are in {options.out}")
    return done


def _known(options: argparse.Namespace) -> list[Run]:
    """Return the runs of the ledger and those in --out."""
    from paper.collecting import read_runs

    own = read_runs(options.out) if options.out.is_dir() else []
    return merged([*read_ledger(options.ledger), *own])


def listing(todo: Sequence[Planned]) -> str:
    """Return what will be run, a line for each method."""
    lines = []
    for label in dict.fromkeys(item.label for item in todo):
        items = [item for item in todo if item.label == label]
        seeds = ", ".join(str(item.seed) for item in items)
        ends = " or ".join(map(str, sorted({item.rounds for item in items})))
        begun = [f"seed {item.seed} has {item.reached}" for item in items if item.reached]
        text = f"  {label}: seeds {seeds}, to round {ends}"
        lines.append(text + (f" ({', '.join(begun)})" if begun else ""))
    return "\n".join(lines)


def run_missing(
    wanted: Sequence[tuple[Planned, "Experiment"]],
    out: Path,
    budget: float | None = None,
    watcher: "Watcher | None" = None,
) -> bool:
    """Run these into folders of their own, up to a budget of minutes; return whether all ended."""
    from e2fl.runs.batch import Task, run_all
    from e2fl.runs.watcher import Watcher, Watchers
    from paper.collecting import ORIGIN, origin_here

    origin = origin_here()
    tasks: dict[Task, Planned] = {}
    folders: list[Path] = []
    reasons: list[tuple[Planned, Exception]] = []
    for planned, experiment in wanted:
        try:
            folder = folder_of(planned, out)
            tasks[Task(_continued(experiment, folder, origin), folder)] = planned
            folders.append(folder)
        except RunError as error:
            reasons.append((planned, error))

    class OriginRecord(Watcher):
        """Stores the origin when a run begins; a resumed one keeps that of its first rounds."""

        def announce(self, number: int, total: int) -> None:
            self.path = folders[number - 1] / ORIGIN

        def begin(self, experiment: "Experiment", first: int, last: int) -> None:
            if not self.path.is_file():
                write_text(self.path, json.dumps(origin, indent=1) + "\n")

    watchers = Watchers(OriginRecord(), watcher or Watcher())
    seconds = None if budget is None else 60 * budget
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
    from e2fl.runs.store import Folder

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


def _continued(experiment: "Experiment", folder: Path, origin: Json) -> "Experiment":
    """Return the experiment with the evaluations of the run in the folder, if one was begun."""
    from e2fl.runs.store import Folder
    from paper.collecting import read_origin

    if not (folder / "config.toml").is_file():
        return experiment
    begun, here = (read_origin(folder) or origin)["engine"], origin["engine"]
    if begun != here:
        what = f"{folder} was begun with engine {begun}, this is {here}"
        raise RunError(f"{what}: other bits; pass another folder with --out")
    return replace(experiment, evaluate_every=Folder(folder).read_experiment().evaluate_every)


def shown(planned: Sequence[Planned], names: Sequence[str], runs: Sequence[Run]) -> str:
    """Return the tables of these names for runs as planned; empty if none has a row.

    Settings that the user changed in all of them stand above, and in no row.
    """
    changes = {
        key: value
        for key, value in planned[0].changed.items()
        if all(run.overrides.get(key) == value for run in planned)
    }
    head = ", ".join(f"{key}={value}" for key, value in changes.items()) or "as shipped"
    tables = [(name, table(name, frame(runs), changes)) for name in names] if runs else []
    parts = [f"{name}, {head}\n{made.text}" for name, made in tables if made.rows]
    return "\n\n".join(parts)
