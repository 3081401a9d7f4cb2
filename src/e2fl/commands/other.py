"""The commands that train nothing, or elsewhere: list, show, groups, data, flower and reproduce."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.errors import ConfigError


def list_choices(options: argparse.Namespace) -> None:
    """List what a configuration can name, and its settings."""
    from e2fl.config import listing

    print(listing.listing(options.what))


def show(options: argparse.Namespace) -> None:
    """Print a shipped experiment."""
    from e2fl.config.files import shipped_text

    print(shipped_text(options.name), end="")


def groups(options: argparse.Namespace) -> None:
    """Estimate the number of groups of clients."""
    from e2fl.config.experiment import load
    from e2fl.runs.group_survey import survey
    from e2fl.runs.progress import timed_steps

    experiment = load(options.config, options.changes)
    found = survey(experiment, options.first, options.last, tell=timed_steps())
    print(f"{found.table()}\n\n{found.advice()}")


def data_list(options: argparse.Namespace) -> None:
    """List data sets: files present and missing, sizes, licences."""
    from e2fl.data import commands

    print(commands.listing())


def data_get(options: argparse.Namespace) -> None:
    """Download a data set."""
    from e2fl.data import commands

    print(commands.get(options.name))


def data_show(options: argparse.Namespace) -> None:
    """Draw samples of each group, clients per group, and labels of each client."""
    from e2fl.config.files import read
    from e2fl.config.overrides import lay, typed
    from e2fl.data import commands

    path = Path(options.name)
    named: dict[str, Any] = {"seed": 0, "data": {"name": options.name}}
    config = named | (read(path) if path.suffix == ".toml" else {})
    if not isinstance(config["data"], dict) or "name" not in config["data"]:
        raise ConfigError("section 'data' needs a name: data = { name = '...' }")
    section = lay(typed(options.changes), config["data"])
    print(commands.show(section, config["seed"], options.out or Path(f"{path.stem}.svg")))


def flower_export(options: argparse.Namespace) -> None:
    """Write an experiment as an app folder for flwr run."""
    from e2fl.config.experiment import load
    from e2fl.flower.export import export

    export(load(options.config, options.changes), options.out)
    print(f"written to {options.out}; {options.out / 'README.md'} says how to run it")


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
