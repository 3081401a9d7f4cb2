"""`e2fl report`: the page of runs on disk, and their tables."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.commands.arguments import Commands

if TYPE_CHECKING:
    from e2fl.report.study import Study


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "report",
        help="make the page of runs that are on disk",
        description="Make one self-contained HTML page of all finished runs in these folders, or below them.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="the folder of a run, or one that holds some")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write the page; default: report.html in the first DIR"
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="also write tables as CSV and LaTeX, plots as PNG and SVG, all as JSON",
    )
    parser.add_argument(
        "--columns",
        metavar="A,B,...",
        help="measures in paper.tex and paper.csv of --export, such as group/mean,user/variance",
    )
    parser.add_argument("--order", metavar="A,B,...", help="methods that come first in that table, such as fedavg,e2fl")
    parser.add_argument(
        "--plus-minus",
        choices=("std", "ci", "none"),
        default="std",
        help="what follows ± there: the standard deviation over seeds, or half the 95 %% interval; default: std",
    )
    parser.set_defaults(act=_report)


def _report(options: argparse.Namespace) -> int:
    from e2fl.report import report_runs
    from e2fl.report.verdict import verdict

    out = options.out or options.runs[0] / "report.html"
    study = report_runs(options.runs, out, export_to=options.export)
    if options.export is not None:
        _write_paper(study, options)
    print(f"{verdict(study)}\n\nwritten to {out}{f' and {options.export}' if options.export else ''}")
    return 0


def _write_paper(study: "Study", options: argparse.Namespace) -> None:
    from e2fl.files import write_text
    from e2fl.report.paper import PaperTable

    columns, order = ([name for name in (text or "").split(",") if name] for text in (options.columns, options.order))
    table = PaperTable(study, columns, order, options.plus_minus)
    write_text(options.export / "paper.tex", table.latex())
    write_text(options.export / "paper.csv", table.csv())
