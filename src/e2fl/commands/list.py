"""`e2fl list`: algorithms, data sets and other choices, and their settings."""

import argparse

from e2fl.commands.arguments import Commands


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "list",
        help="list algorithms, data sets and other choices, and their settings",
        description="List algorithms, groupings, data sets, models, participation policies, ballots and experiments, "
        "or every setting of one of them.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="algorithms, groupings, datasets, models, participation, ballots or experiments; or a name, such as e2fl, "
        "learner or experiment",
    )
    parser.set_defaults(act=_list)


def _list(options: argparse.Namespace) -> int:
    from e2fl.config.listing import listing

    print(listing(options.what))
    return 0
