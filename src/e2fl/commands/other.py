"""The commands that read finished runs, train nothing, or train elsewhere."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.commands import say, tell_imports
from e2fl.config.experiment import load
from e2fl.config.files import read
from e2fl.config.overrides import lay, typed
from e2fl.errors import ConfigError
from e2fl.files import write_text


def report(options: argparse.Namespace) -> None:
    """Write the report page for runs on disk."""
    from e2fl.report.finish import printed
    from e2fl.report.from_runs import read_runs, study_of
    from e2fl.report.page import write_report
    from e2fl.report.table import summary_table
    from e2fl.runs.store import PAGE

    study = study_of(*read_runs(options.runs))
    table = summary_table(study, options.columns, options.plus_minus, views=options.views)
    out = options.out or options.runs[0] / PAGE
    write_report(study, out, export_to=options.export)
    if options.export is not None:
        table.write(options.export, "paper")
    written = f"{out} and {options.export}" if options.export else str(out)
    print(f"{printed(study, table)}\n\nwritten to {written}")


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table with a finished run."""
    from e2fl.runs.trained import TrainedRun

    run = TrainedRun(options.run, trust=options.trust)
    rows = run.read(options.table)
    said = run.predict_unseen(rows) if options.find_group else run.predict(rows, options.group)
    if options.out is None:
        print(said.to_csv(), end="")
        return
    write_text(options.out, said.to_csv())
    used = f" with the model {said.model}" if said.model else ""
    print(f"predicted {len(said.classes):,} rows{used}; written to {options.out}")


def export(options: argparse.Namespace) -> None:
    """Write a model of a finished run as a plain torch module."""
    from e2fl.runs.export import export_model

    model, card = export_model(options.run, options.group, options.out, trust=options.trust)
    print(f"written to {model}; its card: {card}")


def recount(options: argparse.Namespace) -> int:
    """Count the elections of a run again, or look for the ballots of one client."""
    from e2fl.runs.chain import MismatchError, check_receipts
    from e2fl.runs.recount import recount

    try:
        if options.receipt is None:
            print(recount(options.run, options.round))
        else:
            rounds = check_receipts(options.run, options.receipt)
            print(f"the ballots of {rounds} rounds are in the chain")
        return 0
    except MismatchError as error:
        reason = str(error)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = f"elections.jsonl is not one that a run writes ({error!r})"
    print(f"e2fl: {options.run}: {reason}", file=sys.stderr)
    return 1


def groups(options: argparse.Namespace) -> None:
    """Estimate the number of groups of clients."""
    from e2fl.runs.group_survey import survey

    experiment = load(options.config, options.changes)
    tell_imports(options, [experiment])
    found = survey(experiment, options.first, options.last, tell=say)
    print(f"{found.table()}\n\n{found.advice()}")


def data_show(options: argparse.Namespace) -> None:
    """Draw samples of each group, clients per group, and labels of each client."""
    from e2fl.data import build
    from e2fl.data.describe import summarise

    path = Path(options.name)
    out = options.out or Path(f"{path.stem}.svg")
    if out.suffix != ".svg":
        raise ConfigError(f"the picture must be an .svg file, not {out}")
    named: dict[str, Any] = {"seed": 0, "data": {"name": options.name}}
    config = named | (read(path) if path.suffix == ".toml" else {})
    if not isinstance(config["data"], dict) or "name" not in config["data"]:
        raise ConfigError("section 'data' needs a name: data = { name = '...' }")
    section = lay(typed(options.changes), config["data"])
    if path.suffix == ".toml" and ":" in section["name"]:
        say(f"{path} names code that is imported and run: {section['name']}")
    summary = summarise(build(section, seed=config["seed"]))
    write_text(out, summary.draw())
    print(f"{summary}\n\npicture: {out}")


def flower_export(options: argparse.Namespace) -> None:
    """Write an experiment as an app folder for flwr run."""
    from e2fl.flower.export import export

    export(load(options.config, options.changes), options.out)
    print(f"written to {options.out}; {options.out / 'README.md'} says how to run it")


def reproduce(options: argparse.Namespace) -> int:
    """Open the door to `paper/`, which a clone of the repository has."""
    root = Path(__file__).resolve().parents[3]
    if find_spec("paper") is None:
        if not (root / "paper" / "ledger").is_dir():
            raise ConfigError(
                "the paper is reproduced in a clone of the repository, which has its ledger: "
                "install e2fl there with 'pip install --editable .'"
            )
        sys.path.append(str(root))
    from paper.command import reproduce

    return reproduce(options)
