"""`e2fl export`: a model as a plain torch module."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_group


def add_parser(commands: Commands) -> None:
    export = commands.add_parser(
        "export",
        help="write a model of a finished run as a plain torch module",
        description="Write the model of a group as a plain torch module, with a model card beside it.",
    )
    export.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    add_group(export)
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="NAME.safetensors or NAME.pt2")
    export.set_defaults(act=_export)


def _export(options: argparse.Namespace) -> int:
    from e2fl.runs.export import export_model

    model, card = export_model(options.run, options.group, options.out)
    print(f"written to {model}; its card: {card}")
    return 0
