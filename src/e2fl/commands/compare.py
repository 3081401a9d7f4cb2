"""`e2fl compare`: several algorithms on the same experiment."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import (
    Commands,
    add_config,
    add_table,
    add_watching,
    changes_of,
    folder_for,
    methods_of,
    seeds_of,
)


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "compare",
        help="run several algorithms on the same experiment",
        description="Run several algorithms, or variants of the experiment, on the same data with the same draws; "
        "print the table, and write it as paper.tex and paper.csv.",
    )
    add_config(parser)
    parser.add_argument("--algorithms", required=True, metavar="A,B,...", help="algorithms or variants to compare")
    parser.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds to repeat with; default: one")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to store the runs; default: a new folder in runs/"
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted comparison in --out DIR")
    add_table(parser)
    add_watching(parser)
    parser.set_defaults(act=_compare)


def _compare(options: argparse.Namespace) -> int:
    from e2fl.commands.watching import watching
    from e2fl.report.finish import finish_comparison
    from e2fl.report.paper import require_columns, require_order
    from e2fl.runs.compare import compare

    _, methods = methods_of(options, changes_of(options))
    first = next(iter(methods.values()))
    require_columns(options.columns)  # a mistake is found before hours of training
    require_order(options.order, list(methods.values()))
    seeds = seeds_of(options.seeds, first.seed)
    with (
        folder_for(options, f"{first.name}-compare") as out,
        watching(out, command=options.command, live=options.watch, track=options.track) as watcher,
    ):
        runs = compare(methods, seeds, out=out, resume=options.resume, watcher=watcher)
    finish_comparison(runs, out, options.columns, options.order, options.plus_minus)
    return 0
