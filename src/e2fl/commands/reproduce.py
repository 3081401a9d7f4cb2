"""`e2fl reproduce`: the paper's tables compared with ours."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands

DESCRIPTION = (
    "Run the missing runs of a table or figure and compare the paper's numbers with ours. Runs that "
    "were interrupted are resumed; runs in the ledger are not repeated. Exit code 3: runs are still missing."
)


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "reproduce", help="reproduce the paper's tables and compare them with ours", description=DESCRIPTION
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="of the paper: table1, table2, table4, table5, table6, figure3, figure_inference; our own: steady, "
        "ballots, wide_ballots, states, readings, rates, causes",
    )
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="stop after this time; default: no limit")
    parser.add_argument("--seeds", metavar="0,1,...", help="default: as many as the paper has")
    parser.add_argument("--methods", metavar="A,B,...", help="only these methods of the table")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting of the runs that have it, such as data.samples_per_client=60; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the missing runs without running them")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="DIR",
        help="folder for runs and figures; default: runs/reproduce",
    )
    parser.add_argument("--ledger", type=Path, metavar="DIR", help="the ledger; default: results")
    parser.add_argument("--collect", type=Path, metavar="RUNS_DIR", help="add the runs in this folder to the ledger")
    parser.add_argument("--commit", metavar="HASH", help="the commit of collected runs that do not record it")
    parser.add_argument("--write-docs", action="store_true", help="write the pages and figures from the ledger")
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), metavar="DIR", help="folder for the pages; default: docs"
    )
    parser.set_defaults(act=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from e2fl.reproduce.command import reproduce

    return reproduce(options)
