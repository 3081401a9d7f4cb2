"""The command: collect runs, run what a table or figure lacks, and write the pages.

Writing pages loads no torch: what runs or collects is imported when it is needed.
"""

import argparse
from collections.abc import Sequence

from e2fl.config.overrides import seed_numbers
from e2fl.errors import ConfigError, RunError
from paper.ledger import LEDGER, LedgerRun, frame, merged, read_ledger
from paper.studies import Planned, missing, study
from paper.tables import table


def reproduce(options: argparse.Namespace) -> int:
    """Collect, reproduce and write, as asked for and in this order; 3: runs are still missing."""
    if not (options.what or options.collect or options.write_docs):
        raise ConfigError(
            "nothing to do: name a table such as table1, or pass --collect RUNS_DIR or --write-docs"
        )
    if options.budget is not None and not options.budget >= 0:  # NaN is neither
        raise ConfigError(f"--budget takes minutes, 0 or more, not {options.budget}")
    options.ledger = options.ledger or LEDGER
    if options.collect:
        from paper.running import collect, origin_here

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
    from paper.running import planned_runs, run_missing

    spec = study(options.what)
    methods = None if options.methods is None else [m for m in options.methods.split(",") if m]
    seeds = None if options.seeds is None else seed_numbers(options.seeds)
    if [] in (methods, seeds):
        raise ConfigError("--methods and --seeds need a name; leave them out to run all")
    wanted = planned_runs(options.what, options.changes, seeds, methods)
    planned = [run for run, _ in wanted]
    todo = {item.identity: item for item in missing(planned, _known(options))}
    print(f"{spec['title']}: {len(planned)} runs, {len(planned) - len(todo)} of them finished")
    done = True
    if todo:
        print("to run:", *todo.values(), sep="\n  ")
        if options.dry_run:
            return False
        options.after_stop = "the same command resumes from here"
        lacking = [(run, experiment) for run, experiment in wanted if run.identity in todo]
        done = run_missing(lacking, options.out, options.budget, Progress())
    keys = {run.identity[:3] for run in planned}
    own = [run for run in _known(options) if run.identity[:3] in keys]
    print(shown(planned, spec["tables"], own) or f"no table has a row; runs are in {options.out}")
    return done


def _known(options: argparse.Namespace) -> list[LedgerRun]:
    """Return the runs of the ledger and those in --out."""
    from paper.running import read_runs

    return merged([*read_ledger(options.ledger), *read_runs(options.out)])


def shown(planned: Sequence[Planned], names: Sequence[str], runs: Sequence[LedgerRun]) -> str:
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
