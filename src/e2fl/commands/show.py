"""`e2fl show`: a shipped experiment as TOML."""

import argparse

from e2fl.commands.arguments import Commands


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "show", help="print a shipped experiment", description="Print a shipped experiment as TOML, to start from."
    )
    parser.add_argument("name", metavar="NAME", help="an experiment; `e2fl list experiments` names them")
    parser.set_defaults(act=_show)


def _show(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import shipped_text

    print(shipped_text(options.name), end="")
    return 0
