"""`e2fl data`: fetch, check, draw and convert data sets."""

import argparse
from pathlib import Path
from typing import Any

from e2fl.commands.arguments import Commands


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("data", help="fetch, check, draw and convert data sets", description="Data sets.")
    parser.set_defaults(act=_print)
    actions = parser.add_subparsers(metavar="ACTION", title="actions", required=True)
    known = actions.add_parser("list", help="list data sets: files present and missing, sizes, licences")
    known.set_defaults(text=lambda commands, options: commands.listing())
    get = actions.add_parser("get", help="download a data set into E2FL_DATA, or into this user's cache")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(text=lambda commands, options: commands.get(options.name))
    check = actions.add_parser("check", help="compare files with the published checksums")
    check.add_argument("name", metavar="NAME")
    check.set_defaults(text=lambda commands, options: commands.check(options.name))
    show = actions.add_parser("show", help="draw samples of each group, clients per group, and labels of each client")
    show.add_argument("name", metavar="NAME", help="a data set; `e2fl list datasets` names them")
    show.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="a setting of the data set, such as clients=20",
    )
    show.add_argument("--out", type=Path, metavar="FILE", help="an .svg file; default: NAME.svg")
    show.set_defaults(text=_show)
    convert = actions.add_parser("convert", help="make one compact .npz of FEMNIST from LEAF's or TFF's files")
    convert.add_argument("source", type=Path, metavar="FOLDER", help="LEAF's all_data_*.json, or fed_emnist_*.h5")
    convert.add_argument("target", type=Path, metavar="FILE.npz")
    convert.set_defaults(text=lambda commands, options: commands.convert_femnist(options.source, options.target))


def _print(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(options.text(commands, options))
    return 0


def _show(commands: Any, options: argparse.Namespace) -> str:
    from e2fl.config.overrides import lay, typed

    return str(commands.show(options.name, lay(typed(options.changes), {}), options.out))
