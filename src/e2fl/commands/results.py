"""The commands that read finished runs: report, predict, export and recount."""

import argparse
import sys


def report(options: argparse.Namespace) -> None:
    """Write the report page for runs on disk."""
    from e2fl.report.finish import printed, write_paper
    from e2fl.report.from_runs import read_runs, study_of
    from e2fl.report.page import write_report
    from e2fl.report.table import summary_table
    from e2fl.runs.store import PAGE

    study = study_of(*read_runs(options.runs))
    table = summary_table(study, options.columns, options.plus_minus, views=options.views)
    out = options.out or options.runs[0] / PAGE
    write_report(study, out, export_to=options.export)
    if options.export is not None:
        write_paper(table, options.export)
    written = f"{out} and {options.export}" if options.export else str(out)
    print(f"{printed(study, table)}\n\nwritten to {written}")


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table with a finished run."""
    from e2fl.files import write_text
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
    from e2fl.runs.trained import export_model

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
    except MismatchError as error:
        print(f"e2fl: {options.run}: {error}", file=sys.stderr)
        return 1
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        what = "elections.jsonl is not one that a run writes"
        print(f"e2fl: {options.run}: {what} ({error!r})", file=sys.stderr)
        return 1
    return 0
