"""The commands for other machines and for the paper: flower and reproduce."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from e2fl.errors import ConfigError


def flower_export(options: argparse.Namespace) -> int:
    """Write an experiment as an app folder for flwr run."""
    from e2fl.config.experiment import load
    from e2fl.flower.export import export

    export(load(options.config, options.changes), options.out)
    print(f"written to {options.out}; {options.out / 'README.md'} says how to run it")
    return 0


def flower_keys(options: argparse.Namespace) -> int:
    """Write certificates for the server and a key for each node."""
    from e2fl.flower.certificates import make_keys

    for path in make_keys(options.out, options.nodes, options.hosts or ["127.0.0.1", "localhost"]):
        print(path)
    return 0


def reproduce(options: argparse.Namespace) -> int:
    """Open the door to `paper/`, which a clone of the repository has."""
    root = Path(__file__).resolve().parents[3]
    if find_spec("paper") is None:
        if not (root / "paper" / "ledger").is_dir():
            raise ConfigError(
                "the paper is reproduced in a clone of the repository, which has its ledger: "
                "install e2fl there with 'pip install --editable .'"
            )
        sys.path.append(str(root))
    from paper.running import reproduce

    return reproduce(options)
