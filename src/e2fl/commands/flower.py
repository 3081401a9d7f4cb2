"""`e2fl flower`: experiments and keys for Flower."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_config


def add_parser(commands: Commands) -> None:
    flower = commands.add_parser(
        "flower", help="run on many machines, with Flower", description="Run an experiment with Flower: docs/flower.md."
    )
    actions = flower.add_subparsers(metavar="ACTION", title="actions", required=True)
    export = actions.add_parser("export", help="write an experiment as an app folder for flwr run")
    add_config(export)
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write")
    export.set_defaults(act=_flower_export)
    keys = actions.add_parser("keys", help="write certificates for the server and a key for each node")
    keys.add_argument("--nodes", type=int, default=3, metavar="N", help="number of nodes; default: 3")
    keys.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        dest="hosts",
        help="name or address by which nodes reach the server; may be repeated; default: 127.0.0.1 and localhost",
    )
    keys.add_argument(
        "--out", type=Path, default=Path("keys"), metavar="DIR", help="the folder to write; default: keys"
    )
    keys.set_defaults(act=_flower_keys)


def _flower_export(options: argparse.Namespace) -> int:
    from e2fl.config.experiment import load
    from e2fl.flower.export import export

    export(load(options.config, options.changes), options.out)
    print(f"written to {options.out}; {options.out / 'README.md'} says how to run it")
    return 0


def _flower_keys(options: argparse.Namespace) -> int:
    from e2fl.flower.certificates import make_keys

    for path in make_keys(options.out, options.nodes, options.hosts or ["127.0.0.1", "localhost"]):
        print(path)
    return 0
