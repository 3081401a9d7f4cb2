"""The commands of `e2fl`; commands.toml declares them. They import torch only when they need it."""

import argparse
import sys
from collections.abc import Sequence

from e2fl import construct
from e2fl.config.experiment import Experiment


def say(message: str) -> None:
    """Print a line beside the results."""
    print(f"e2fl: {message}", file=sys.stderr)


def tell_imports(
    options: argparse.Namespace, experiments: Sequence[Experiment], *more: str
) -> None:
    """Print which code a configuration file imports.

    What was typed, in `more` and in options, is the user's own choice.
    """
    typed = [*more, *options.changes, *getattr(options, "space", ())]
    names = dict.fromkeys(name for experiment in experiments for name in experiment.imports())
    from_file = [name for name in names if not any(name in words for words in typed)]
    if from_file and construct.importable is None:  # otherwise it is refused
        say(f"{options.config} names code that is imported and run: {', '.join(from_file)}")
