"""The command: collect runs, reproduce a table or figure, and write the pages."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from e2fl.config.overrides import seed_numbers
from e2fl.errors import ConfigError, RunError
from e2fl.terminal import aligned
from paper.ledger import LEDGER, Json, Run, canonical, merged, read_ledger
from paper.studies import missing, study
from paper.tables import Table, declared, select, table


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
        _collect(options)
    done = _reproduce(options) if options.what else True
    if options.write_docs:
        from paper.pages import write

        runs = read_ledger(options.ledger)
        if not runs:
            raise RunError(f"the ledger {options.ledger} has no run to write pages from")
        for path in write(runs, options.docs):
            print(path)
    return 0 if done else 3


def _collect(options: argparse.Namespace) -> None:
    from paper.collecting import Origin, collect

    changed, left_out = collect(options.collect, options.ledger, Origin.here(options.commit))
    print(f"{len(changed)} runs new or changed in {options.ledger}")
    for folder in left_out:
        print(f"left out: {folder} is no variant of a shipped experiment")


def _reproduce(options: argparse.Namespace) -> bool:
    """Run what is missing and show the outcome; return False if runs are still missing."""
    from e2fl.runs.progress import Progress
    from paper.collecting import Origin
    from paper.recipes import planned_runs
    from paper.running import Runner, listing, resumable

    spec = study(options.what)
    methods = None if options.methods is None else [m for m in options.methods.split(",") if m]
    seeds = None if options.seeds is None else seed_numbers(options.seeds)
    for name, values in (("methods", methods), ("seeds", seeds)):
        if values == []:
            raise ConfigError(f"--{name} names none; leave it out to run all of them")
    wanted = planned_runs(options.what, options.changes, seeds, methods)
    planned = [run for run, _ in wanted]
    todo = resumable(missing(planned, _known(options)), options.out)
    print(f"{spec['title']}: {len(planned)} runs, {len(planned) - len(todo)} of them finished")
    done = True
    if todo:
        print(f"to run:\n{listing(todo)}")
        if options.dry_run:
            return False
        options.after_stop = "the same command resumes from here"
        experiments = {run.identity: experiment for run, experiment in wanted}
        runner = Runner(
            options.out,
            experiments,
            Origin.here(),
            budget=options.budget,
            tell=_tell,
            watcher=Progress(),
        )
        done = runner.run(todo)
    keys = {run.identity[:3] for run in planned}
    own = [run for run in _known(options) if run.identity[:3] in keys]
    print(shown(spec, own) or f"no table has a row for these settings; runs are in {options.out}")
    if options.what.startswith("figure"):
        paths = _figures(options.what, own, options.out, min(run.seed for run in planned))
        print("\n".join(map(str, paths)) or "no figure: it needs two evaluated rounds")
    return done


def shown(spec: Json, runs: Sequence[Run]) -> str:
    """Return the tables of a study for these runs, for each setting; empty if none has a row."""
    if not runs:
        return "no run has an evaluated round yet"
    parts: dict[str, Table] = {}
    bases = {name: declared(name).get("overrides", {}) for name in spec["tables"]}
    compared = [name for name in bases if "paper" in declared(name)]
    for overrides in {canonical(run.overrides): run.overrides for run in runs}.values():
        fitting = [name for name in compared if _within(bases[name], overrides)]
        for name in sorted(fitting, key=lambda name: len(bases[name]))[-1:]:
            rest = {key: value for key, value in overrides.items() if key not in bases[name]}
            title = ", ".join(f"{key}={value}" for key, value in overrides.items())
            parts[title or "as shipped"] = table(name, runs, rest)
    parts |= {name: table(name, runs) for name in bases if name not in compared}
    filled = {title: own for title, own in parts.items() if not own.empty and own.rows}
    return "\n\n".join(
        f"{title}\n{aligned([own.titles, *own.rows])}" for title, own in filled.items()
    )


def _within(base: Json, overrides: Json) -> bool:
    return all(overrides.get(key) == value for key, value in base.items())


def _figures(name: str, runs: Sequence[Run], out: Path, seed: int) -> list[Path]:
    from paper import figures

    written: list[Path] = []
    for overrides in {canonical(run.overrides): run.overrides for run in runs}.values():
        own = select(runs, runs[0].experiment, overrides)
        samples = int(own[0].settings["data.samples_per_client"])
        if name == "figure3":
            chart = figures.figure3(own, samples, seed)
        else:
            chart = figures.figure_inference(own, samples)
        if chart is not None:
            written += figures.write(chart, out, f"{name}-{samples}")
    return written


def _known(options: argparse.Namespace) -> list[Run]:
    """Return the runs of the ledger and those in --out."""
    from paper.collecting import read_runs

    own = read_runs(options.out) if options.out.is_dir() else []
    return merged([*read_ledger(options.ledger), *own])


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
