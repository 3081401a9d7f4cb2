"""`python -m paper.arena demo --methods my.py:Mine`: methods, tuned alike, on small federations.

Every method gets the same number of trials, judged on validation rows of the first seed; what is
chosen is then trained on all training rows with every seed, and measured on test rows. `--methods`
takes names of algorithms, of variants, and your own; by default all of the arena. The table shows
them beside the results that are shipped. The same command resumes an interrupted arena.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from e2fl.config.experiment import Experiment, base_of
from e2fl.config.methods import algorithm_settings
from e2fl.config.methods import methods as methods_of
from e2fl.config.overrides import seed_numbers, typed
from e2fl.errors import DataError, E2flError
from e2fl.report.from_runs import study_of
from e2fl.report.page import write_report
from e2fl.runs.batch import compare, file_name
from e2fl.runs.progress import Progress
from e2fl.runs.store import PAGE, StoredRun, read_run
from e2fl.search.results import Result, Trial
from e2fl.search.running import search
from e2fl.search.space import space_of
from paper.board import (
    DECLARED,
    FIXED,
    METHODS,
    TUNED,
    VARIANTS,
    Entry,
    ahead,
    board,
    merged,
    read_entries,
    write_entries,
)

KEPT = ("group/", "clients/", "protected/", "gain/", "bytes/up_per", "bytes/down_per")


def methods_on(yardstick: str, names: Sequence[str]) -> dict[str, Experiment]:
    """Return the experiments of these methods on a yardstick; default: all of the arena."""
    spec = DECLARED[yardstick]
    changes = typed(spec["changes"])
    base = base_of(yardstick, changes)
    variants = VARIANTS | base.variants | spec.get("variants", {})
    usual = [name for name in (*METHODS, *spec["methods"]) if name not in spec.get("without", ())]
    return methods_of(replace(base, variants=variants), names or usual, changes)


def tune(
    yardstick: str, name: str, method: Experiment, seed: int, trials: int, out: Path
) -> Result:
    """Choose the settings of a method on validation rows."""
    spec, known = DECLARED[yardstick], algorithm_settings(method)
    own = [
        f"{key}={values}"
        for key, values in TUNED.items()
        if key.split(".")[1] in known and key not in FIXED.get(name, ())
    ]
    scores = method.build.algorithm().trains_scores
    rates = [rate for rate in spec["rates"] if ("score" in rate) == scores]
    level = spec.get("level", "group")
    return search(
        {name: method},
        space_of([*rates, *own]),
        [seed],
        out=out,
        trials=trials,
        objectives=[f"{level}/mean", f"{level}/worst10"],
        resume=True,
        watcher=Progress(),
    )


def enter(
    yardstick: str, name: str, method: Experiment, seeds: Sequence[int], trials: int, out: Path
) -> tuple[Trial, list[StoredRun]]:
    """Tune a method, and train what is chosen with every seed; finished runs are read."""
    (tuned,) = tune(yardstick, name, method, seeds[0], trials, out).tuned
    if tuned.chosen is None or tuned.best is None:
        raise E2flError("every trial diverged; try lower rates")
    methods = {name: tuned.best}
    runs = compare(methods, seeds, out=out / "final", resume=True, watcher=Progress()).finished()
    return tuned.chosen, [read_run(run.folder) for run in runs if run.folder is not None]


def arena(
    yardstick: str, names: Sequence[str], seeds: Sequence[int], trials: int, out: Path
) -> list[Entry]:
    """Enter the methods one by one; one that fails is named, and the others go on.

    Training alone is always entered: the gains of the others are over it.
    """
    entered: dict[str, tuple[Trial, list[StoredRun]]] = {}
    for name, method in methods_on(yardstick, names and ["local", *names]).items():
        try:
            entered[name] = enter(yardstick, name, method, seeds, trials, out / file_name(name))
        except DataError:
            raise
        except E2flError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    if not entered:
        raise E2flError("no method was entered")
    every = [run for _, runs in entered.values() for run in runs]
    write_report(study_of(every), out / PAGE)
    alone = entered["local"][1] if "local" in entered else []
    return [
        entry_of(yardstick, name, trials, chosen, runs, [] if name == "local" else alone)
        for name, (chosen, runs) in entered.items()
    ]


def entry_of(
    yardstick: str,
    name: str,
    trials: int,
    chosen: Trial,
    runs: Sequence[StoredRun],
    alone: Sequence[StoredRun],
) -> Entry:
    """Return the result of a method. alone: the runs of training alone."""
    method, run = study_of([*alone, *runs]).main[-1], runs[0]
    paths = [path for path in map(str, method.final) if path.startswith(KEPT)]
    figures = {path: [*method.by_seed(path).values()] for path in paths if method.by_seed(path)}
    figures["seconds"] = [float(run.summary["seconds"]["total"])]
    chance = dict(method.chance)
    settings = {
        key: float(f"{value:.4g}") if isinstance(value, float) else value
        for key, value in chosen.settings.items()
    }
    origin = {key: run.summary["environment"].get(key) for key in ("commit", "engine")}
    seeds = list(method.seeds)
    return Entry(yardstick, name, method.label, trials, settings, seeds, figures, chance, origin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1: an error, 3: the data of a yardstick is not here."""
    parser = argparse.ArgumentParser(prog="python -m paper.arena", description=__doc__)
    parser.add_argument("yardstick", choices=DECLARED)
    parser.add_argument("--methods", default="", metavar="A,B,...")
    parser.add_argument("--trials", type=int, default=4, help="of each method")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/arena"))
    parser.add_argument("--ship", action="store_true", help="add the results to arena.jsonl")
    options = parser.parse_args(arguments)
    names = [name.replace(".py:", ":") for name in options.methods.split(",") if name]
    out = options.out / options.yardstick
    try:
        found = arena(options.yardstick, names, seed_numbers(options.seeds), options.trials, out)
    except DataError as error:
        print(f"{options.yardstick} is left out: {error}", file=sys.stderr)
        return 3
    except E2flError as error:
        print(error, file=sys.stderr)
        return 1
    entries = merged(read_entries(), found)
    if options.ship:
        write_entries(entries)
    shown = [entry for entry in entries if entry.yardstick == options.yardstick]
    print(board(shown).text, *ahead(shown), f"open {out / PAGE}", sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
