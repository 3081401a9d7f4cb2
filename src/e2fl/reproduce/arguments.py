"""The arguments of `e2fl reproduce`. It imports nothing slow, so that `e2fl --help` need not wait for torch."""

import argparse
from pathlib import Path

DESCRIPTION = (
    "Run what a table or figure needs and is missing, and show it, with the paper's numbers beside ours. Runs that "
    "were interrupted are resumed; runs in the ledger are not repeated. Exit code 3: runs are still missing."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="of the paper: table1, table2, table4, table5, table6, figure3, figure_inference; our own: steady, "
        "ballots, states, causes",
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
        help="change a setting of all runs, such as rounds=300 or data.samples_per_client=60; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what is missing, and run nothing")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="DIR",
        help="where the runs and figures go; default: runs/reproduce",
    )
    parser.add_argument(
        "--ledger", type=Path, default=Path("results"), metavar="DIR", help="the ledger; default: results"
    )
    parser.add_argument("--collect", type=Path, metavar="RUNS_DIR", help="put the runs in this folder into the ledger")
    parser.add_argument("--commit", metavar="HASH", help="the commit of collected runs that do not say it themselves")
    parser.add_argument("--write-docs", action="store_true", help="write the pages and figures from the ledger")
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), metavar="DIR", help="where the pages go; default: docs"
    )
