"""Arguments that several commands share, and their meaning."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a TOML file, or the name of a shipped experiment")
    add_set(
        parser,
        "change a setting, such as rounds=20 or data.samples_per_client=60; may be repeated; overrides the file and "
        "its variants",
    )


def add_set(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help=words)


def add_watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="keep report.html up to date during training")
    parser.add_argument(
        "--keep-client-models",
        action="store_true",
        help="keep the clients' own models (Local, Ditto) after the run; they need much disk space",
    )
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="TRACKER",
        help="also write to a tracker in --out DIR: tensorboard, mlflow or wandb (offline); may be repeated",
    )


def add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        type=_names,
        default=[],
        metavar="A,B,...",
        help="measures in the table, such as group/mean,user/variance,bytes/up; default: mean, worst 10 %% and "
        "variance of groups and clients",
    )
    parser.add_argument(
        "--order",
        type=_names,
        default=[],
        metavar="A,B,...",
        help="methods that come first in the table, such as fedavg,e2fl",
    )
    parser.add_argument(
        "--plus-minus",
        choices=("std", "ci", "none"),
        default="std",
        help="the value after ±: standard deviation over seeds, or half the 95 %% confidence interval; default: std",
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def changes_of(options: argparse.Namespace) -> list[str]:
    return [*options.changes, *(["keep_client_models=true"] if options.keep_client_models else [])]


def seeds_of(text: str | None, default: int) -> list[int]:
    from e2fl.config.overrides import seed_numbers

    return [default] if text is None else seed_numbers(text)


def methods_of(
    options: argparse.Namespace, texts: Sequence[str], more: Sequence[str] = ()
) -> "tuple[Experiment, dict[str, Experiment]]":
    """Return the experiment, and those of --algorithms with changes applied; more: other strings that may name code."""
    from e2fl.config.experiment import base_of
    from e2fl.config.overrides import typed
    from e2fl.runs.compare import methods

    changes = typed(texts)
    base = base_of(options.config, changes)
    found = methods(base, [name for name in options.algorithms.split(",") if name], changes)
    tell_imports(list(found.values()), [*texts, *more, options.algorithms], options.config)
    return base, found


def tell_imports(experiments: "Sequence[Experiment]", typed: Sequence[str], source: object) -> None:
    """Print which code a configuration file imports; names on the command line were the user's own choice."""
    names = dict.fromkeys(name for experiment in experiments for name in experiment.imports())
    from_file = [name for name in names if not any(name in words for words in typed)]
    if from_file:
        print(f"e2fl: {source} names code that is imported and run: {', '.join(from_file)}", file=sys.stderr)


@contextmanager
def folder_for(options: argparse.Namespace, name: str) -> Iterator[Path]:
    """Yield the folder asked for; by default a new one in runs/ or, to resume, the newest of that name.

    Creating the folder claims its number: of several processes started at once, each gets its own.
    """
    runs, number = Path("runs"), 1
    made = False
    path = options.out
    if path is None and options.resume:
        while (runs / f"{name}-{number + 1}").exists():
            number += 1
        path = runs / f"{name}-{number}"
    while path is None:
        try:
            (runs / f"{name}-{number}").mkdir(parents=True)
            path, made = runs / f"{name}-{number}", True
        except FileExistsError:
            number += 1
    options.folder = path
    try:
        yield path
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise


def add_group(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--group",
        metavar="G",
        help="the group whose model to use: its name or number, or global; default: the only model",
    )
