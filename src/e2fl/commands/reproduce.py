"""`e2fl reproduce`: the paper's tables compared with ours."""

import argparse

from e2fl.commands.arguments import Commands
from e2fl.reproduce.arguments import DESCRIPTION, add_arguments


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "reproduce", help="reproduce the paper's tables and compare them with ours", description=DESCRIPTION
    )
    add_arguments(parser)
    parser.set_defaults(act=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from e2fl.reproduce.command import reproduce

    return reproduce(options)
