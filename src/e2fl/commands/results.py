"""The commands that read finished runs: report, predict and export."""

import argparse


def report(options: argparse.Namespace) -> int:
    """Write the report page for runs on disk."""
    from e2fl.report import report_runs
    from e2fl.report.finish import printed, write_paper
    from e2fl.report.methods import require_columns, summary_table
    from e2fl.runs.store import PAGE

    require_columns(options.columns)
    out = options.out or options.runs[0] / PAGE
    study = report_runs(options.runs, out, export_to=options.export)
    default = "seeds" if len(study.seeds) > 1 else "printed"
    table = summary_table(
        study,
        options.columns,
        options.order,
        options.plus_minus,
        views=options.views,
        default=default,
    )
    if options.export is not None:
        write_paper(table, options.export)
    written = f"{out} and {options.export}" if options.export else str(out)
    print(f"{printed(study, table)}\n\nwritten to {written}")
    return 0


def predict(options: argparse.Namespace) -> int:
    """Predict the rows of a table with a finished run."""
    from e2fl.files import write_text
    from e2fl.runs.trained import predict_file

    found = predict_file(
        options.run,
        options.table,
        group=options.group,
        find_group=options.find_group,
        trust=options.trust,
    )
    if options.out is None:
        print(found.to_csv(), end="")
        return 0
    write_text(options.out, found.to_csv())
    used = f" with the model {found.model}" if found.model else ""
    print(f"predicted {len(found.classes):,} rows{used}; written to {options.out}")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write a model of a finished run as a plain torch module."""
    from e2fl.runs.export import export_model

    model, card = export_model(options.run, options.group, options.out, trust=options.trust)
    print(f"written to {model}; its card: {card}")
    return 0
