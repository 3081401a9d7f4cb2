"""The commands of `e2fl data`: list, get, check, show and convert."""

import argparse
from pathlib import Path


def list_files(options: argparse.Namespace) -> int:
    """List data sets: files present and missing, sizes, licences."""
    from e2fl.data import commands

    print(commands.listing())
    return 0


def get(options: argparse.Namespace) -> int:
    """Download a data set."""
    from e2fl.data import commands

    print(commands.get(options.name))
    return 0


def check(options: argparse.Namespace) -> int:
    """Compare files with the published checksums."""
    from e2fl.data import commands

    print(commands.check(options.name))
    return 0


def show(options: argparse.Namespace) -> int:
    """Draw samples of each group, clients per group, and labels of each client."""
    from e2fl.config.experiment import load
    from e2fl.config.overrides import lay, typed
    from e2fl.data import commands

    path = Path(options.name)
    if path.suffix == ".toml":
        experiment = load(path)
        section, seed = experiment.data, experiment.seed
    else:
        section, seed = {"name": options.name}, 0
    section = lay(typed(options.changes), section)
    print(commands.show(section, seed, options.out or Path(f"{path.stem}.svg")))
    return 0


def convert(options: argparse.Namespace) -> int:
    """Make one compact .npz of FEMNIST."""
    from e2fl.data import commands

    print(commands.convert(options.source, options.target))
    return 0
