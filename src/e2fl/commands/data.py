"""`e2fl data`: fetch, check, draw and convert data sets."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("data", help="fetch, check, draw and convert data sets", description="Data sets.")
    actions = parser.add_subparsers(metavar="ACTION", title="actions", required=True)
    known = actions.add_parser("list", help="list data sets: files present and missing, sizes, licences")
    known.set_defaults(act=_data_list)
    get = actions.add_parser("get", help="download a data set into E2FL_DATA, or into this user's cache")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(act=_data_get)
    check = actions.add_parser("check", help="compare files with the published checksums")
    check.add_argument("name", metavar="NAME")
    check.set_defaults(act=_data_check)
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
    show.set_defaults(act=_data_show)
    convert = actions.add_parser("convert", help="make one compact .npz of FEMNIST from LEAF's or TFF's files")
    convert.add_argument("source", type=Path, metavar="FOLDER", help="LEAF's all_data_*.json, or fed_emnist_*.h5")
    convert.add_argument("target", type=Path, metavar="FILE.npz")
    convert.set_defaults(act=_data_convert)


def _data_list(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.listing())
    return 0


def _data_get(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.get(options.name))
    return 0


def _data_check(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.check(options.name))
    return 0


def _data_show(options: argparse.Namespace) -> int:
    from e2fl.config.overrides import lay, typed
    from e2fl.data import commands

    print(commands.show(options.name, lay(typed(options.changes), {}), options.out))
    return 0


def _data_convert(options: argparse.Namespace) -> int:
    from e2fl.data import commands

    print(commands.convert_femnist(options.source, options.target))
    return 0
