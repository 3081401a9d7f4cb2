"""What the options of several commands mean."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.runs.records import Json

DIVERGED = 3  # the exit code of a command whose training diverged


def changes_of(options: argparse.Namespace) -> list[str]:
    """Return the changes of --set, and of flags that stand for settings."""
    return [*options.changes, *(["keep_client_models=true"] if options.keep_client_models else [])]


def seeds_of(text: str | None, default: int) -> list[int]:
    """Return the seeds of --seeds, or the default."""
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
        print(
            f"e2fl: {source} names code that is imported and run: {', '.join(from_file)}",
            file=sys.stderr,
        )


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


def exit_code(summaries: "Sequence[Json]") -> int:
    """Return 0, or `DIVERGED` if the models of a client of one of these runs diverged."""
    from e2fl.runs.records import divergence_warnings

    return DIVERGED if any(divergence_warnings(summary) for summary in summaries) else 0


def say(message: str) -> None:
    """Print a line beside the results."""
    print(f"e2fl: {message}", file=sys.stderr)
