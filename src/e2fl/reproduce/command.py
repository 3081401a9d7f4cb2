"""The command `e2fl reproduce`."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2fl.config.overrides import seed_numbers
from e2fl.errors import ConfigError, RunError
from e2fl.reproduce import adult_tables, ballot_tables, our_tables, paper_tables
from e2fl.reproduce.causes import causes
from e2fl.reproduce.collecting import Origin, collect, machine
from e2fl.reproduce.ledger import Entry, best_of, read_entries
from e2fl.reproduce.running import Runner, listing, missing, resumable
from e2fl.reproduce.selection import alpha, images, other_alpha, select
from e2fl.reproduce.studies import study, wanted
from e2fl.reproduce.tables import Table
from e2fl.runs.progress import Progress
from e2fl.terminal import aligned

LEDGER = Path("results")


def reproduce(options: argparse.Namespace) -> int:
    """Collect runs, reproduce a table or figure, and write the pages, as asked for and in this order."""
    if not (options.what or options.collect or options.write_docs):
        raise ConfigError("nothing to do: name a table such as table1, or pass --collect RUNS_DIR or --write-docs")
    if options.budget is not None and not options.budget >= 0:  # NaN is neither
        raise ConfigError(f"--budget takes minutes, 0 or more, not {options.budget}")
    if options.ledger is None:
        options.ledger = LEDGER
    elif not options.collect and not options.ledger.is_dir():
        raise ConfigError(f"there is no ledger {options.ledger}: the folder does not exist; check --ledger")
    if options.collect:
        changed = collect(options.collect, options.ledger, Origin(options.commit, machine()))
        print(f"{len(changed)} runs new or changed in {options.ledger}")
    done = True
    if options.what:
        done = _reproduce(options)
    if options.write_docs:
        from e2fl.reproduce.pages import write

        entries = read_entries(options.ledger)
        if not entries:
            raise RunError(
                f"the ledger {options.ledger} has no run to write pages from; name another one with --ledger"
            )
        for path in write(entries, options.docs):
            print(path)
    return 0 if done else 3


def _reproduce(options: argparse.Namespace) -> bool:
    """Run what is missing and show the outcome; return False if runs are still missing."""
    found = study(options.what)
    methods = None if options.methods is None else [name for name in options.methods.split(",") if name]
    seeds = None if options.seeds is None else seed_numbers(options.seeds)
    if methods == []:
        raise ConfigError("--methods names no method; leave it out to run all of them")
    if seeds == []:
        raise ConfigError("--seeds names no seed; leave it out to run all of them")
    needed = wanted(found, options.changes, seeds, methods)
    todo = resumable(missing(needed, _known(options)), options.out)
    print(f"{found.title}: {len(needed)} runs, {len(needed) - len(todo)} of them finished")
    done = True
    if todo:
        print(f"to run:\n{listing(todo)}")
        if options.dry_run:
            return False
        options.after_stop = "the same command resumes from here"
        runner = Runner(options.out, Origin.here(), budget=options.budget, tell=_tell, watcher=Progress())
        done = runner.run(todo)
    keys = {run.settings for run in needed}
    own = [entry for entry in _known(options) if entry.settings in keys]
    text = shown(options.what, own)
    if text:
        print(text)
    if options.what.startswith("figure"):
        paths = _figures(options.what, own, options.out, min(run.seed for run in needed))
        print("\n".join(map(str, paths)) or f"no figure: it needs two evaluated rounds; the runs are in {options.out}")
    elif not text:
        print(
            "no table: it is made for the study's own settings and rounds, and these runs have others; "
            f"they are in {options.out}"
        )
    return done


def shown(name: str, entries: Sequence[Entry]) -> str:
    """Return the comparison of the paper's numbers with those of these runs; empty if no table has a row."""
    if not entries:
        return "no run has an evaluated round yet"
    by_images = _grouped(entries, lambda entry: f"{images(entry)} images per client")
    by_model = _grouped(entries, lambda entry: f"model {entry.config['model']['name']}")
    by_alpha = _grouped(entries, lambda entry: f"{alpha(entry):g}")
    parts: dict[str, Table] = {}
    if name == "table1":
        parts = {title: paper_tables.table1(own, papers=_as_shipped(own)) for title, own in by_images.items()}
    elif name == "table2":
        parts = {title: paper_tables.table2(own, compared=_as_shipped(own)) for title, own in by_model.items()}
    elif name == "table4":
        for value, own in by_alpha.items():
            comparable = _as_shipped(own, other_alpha(float(value)))
            parts[f"alpha {value}"] = paper_tables.table4(own, float(value), comparable=comparable)
    elif name == "table5":
        parts = {title: paper_tables.table5(own, papers=_as_shipped(own)) for title, own in by_images.items()}
    elif name == "table6":
        parts = {title: paper_tables.table6(own, compared=_as_shipped(own)) for title, own in by_model.items()}
    elif name == "figure_inference":
        parts = {title: paper_tables.inference_table(own) for title, own in by_images.items()}
    elif name == "steady":
        parts = {
            "the demo": our_tables.demo(entries),
            "ablation": our_tables.ablation(entries),
            "the same participation": our_tables.same_turns(entries),
        }
    elif name == "ballots":
        parts = {"the demo": ballot_tables.ballots(entries, "demo")}
    elif name == "wide_ballots":
        parts = {"60 images per client, 100 rounds": ballot_tables.ballots(entries, "table1", 60)}
    elif name == "states":
        parts = {"ACS income": our_tables.natural(entries, "acs_income")}
    elif name == "readings":
        parts = {f"alpha {value}": adult_tables.readings(own, float(value)) for value, own in by_alpha.items()}
    elif name == "rates":
        parts = {"FedAvg, on a fifth of the training rows": adult_tables.rates(entries)}
    elif name == "causes":
        parts = {"60 images per client, 100 rounds": causes(entries)}
    filled = {title: table for title, table in parts.items() if table.rows}
    return "\n\n".join(f"{title}\n{aligned([table.titles, *table.rows])}" for title, table in filled.items())


def _as_shipped(entries: Sequence[Entry], changes: Mapping[str, Any] | None = None) -> bool:
    """Return whether these runs differ from the shipped experiment only in seeds, rounds and these changes."""
    return len(select(entries, entries[0].experiment, changes)) == len(entries)


def _grouped(entries: Sequence[Entry], key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return found


def _figures(name: str, entries: Sequence[Entry], out: Path, seed: int) -> list[Path]:
    from e2fl.reproduce import figures

    written: list[Path] = []
    for samples in sorted({images(entry) for entry in entries}):
        own = [entry for entry in entries if images(entry) == samples]
        chart = figures.figure3(own, samples, seed) if name == "figure3" else figures.figure_inference(own, samples)
        if chart is not None:
            written += figures.write(chart, out, f"{name}-{samples}")
    return written


def _known(options: argparse.Namespace) -> list[Entry]:
    """Return the runs of the ledger and those in --out."""
    places = [place for place in (options.ledger, options.out) if place.is_dir()]
    return best_of(entry for place in places for entry in read_entries(place))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
