"""`e2fl report`: the page of runs on disk, and their tables."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_table


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="write the report page for runs on disk",
        description="Write one self-contained HTML page about all finished runs in these folders and their subfolders.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="DIR", help="the folder of a run, or a folder with runs in it"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write the page; default: report.html in the first DIR"
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="also write tables as CSV and LaTeX, plots as PNG and SVG, all as JSON",
    )
    add_table(parser)
    parser.set_defaults(act=_report)


def _report(options: argparse.Namespace) -> int:
    from e2fl.report import report_runs
    from e2fl.report.finish import write_paper
    from e2fl.report.paper import PaperTable, require_columns
    from e2fl.report.verdict import verdict
    from e2fl.runs.folder import PAGE

    require_columns(options.columns)
    out = options.out or options.runs[0] / PAGE
    study = report_runs(options.runs, out, export_to=options.export)
    table = PaperTable(study, options.columns, options.order, options.plus_minus)
    if options.export is not None:
        write_paper(table, options.export)
    print(f"{table.text()}\n\n{verdict(study)}\n\nwritten to {out}{f' and {options.export}' if options.export else ''}")
    return 0
