"""`e2fl list`: everything that can be chosen, and every setting."""

import argparse

from e2fl.commands.arguments import Commands


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "list",
        help="what there is to choose from, and every setting",
        description="List algorithms, groupings, data sets, models and experiments, or every setting of one of them.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help="algorithms, groupings, datasets, models, experiments; or a name, such as e2fl, learner or experiment",
    )
    parser.set_defaults(act=_list)


def _list(options: argparse.Namespace) -> int:
    from e2fl.config.listing import listing

    print(listing(options.what))
    return 0
