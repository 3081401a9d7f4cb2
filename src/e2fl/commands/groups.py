"""`e2fl groups`: estimate the number of groups of clients."""

import argparse

from e2fl.commands.arguments import Commands, add_config


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "groups",
        help="estimate the number of groups of clients",
        description="Cluster the clients' rankings into different numbers of groups and recommend one.",
    )
    add_config(parser)
    parser.add_argument("--from", type=int, default=2, metavar="N", dest="first", help="fewest groups; default: 2")
    parser.add_argument("--to", type=int, default=12, metavar="N", dest="last", help="most groups; default: 12")
    parser.set_defaults(act=_groups)


def _groups(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.runs.group_survey import survey
    from e2fl.runs.progress import timed_steps

    experiment = load(options.config, options.changes)
    found = survey(experiment, options.first, options.last, tell=timed_steps())
    print(found.table())
    print(f"\n{found.advice()}")
    return 0
