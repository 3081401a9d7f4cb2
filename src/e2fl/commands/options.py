"""What the options of several commands mean."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl import construct

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.runs.watcher import Watcher


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
    """Return the experiment, and those of --algorithms with changes applied.

    more: other strings of the command line that may name code.
    """
    from e2fl.config.experiment import base_of
    from e2fl.config.methods import methods
    from e2fl.config.overrides import typed

    changes = typed(texts)
    base = base_of(options.config, changes)
    named = methods(base, [name for name in options.algorithms.split(",") if name], changes)
    tell_imports(list(named.values()), [*texts, *more, options.algorithms], options.config)
    return base, named


def tell_imports(experiments: "Sequence[Experiment]", typed: Sequence[str], source: object) -> None:
    """Print which code a configuration file imports, which may lie beside it.

    What was typed is the user's own choice.
    """
    names = dict.fromkeys(name for experiment in experiments for name in experiment.imports())
    from_file = [name for name in names if not any(name in words for words in typed)]
    if from_file and construct.importable is None:  # otherwise it is refused
        say(f"{source} names code that is imported and run: {', '.join(from_file)}")
        sys.path.append(str(Path(str(source)).resolve().parent))


@contextmanager
def folder_for(options: argparse.Namespace, name: str) -> Iterator[Path]:
    """Yield the folder asked for, a new one in runs/ or, to resume, the newest of that name.

    Creating the folder claims its number: of several processes started at once, each gets its own.
    """
    number, made = 1, False
    path = options.out
    if path is None and options.resume:
        while Path("runs", f"{name}-{number + 1}").exists():
            number += 1
        path = Path("runs", f"{name}-{number}")
    while path is None:
        try:
            Path("runs", f"{name}-{number}").mkdir(parents=True)
            path, made = Path("runs", f"{name}-{number}"), True
        except FileExistsError:
            number += 1
    options.folder = path
    try:
        yield path
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise


@contextmanager
def watching(options: argparse.Namespace, out: Path) -> "Iterator[Watcher]":
    """Yield a watcher for progress, trackers and the live page, which rests if the run fails."""
    from e2fl.runs.progress import Progress
    from e2fl.runs.store import PAGE, Folder
    from e2fl.runs.watcher import CommandRecord, Watchers

    watchers: list[Watcher] = [Progress()]
    if not Folder(out).exists():  # a command that resumes a run does not repeat it
        watchers.append(CommandRecord(out, options.command))
    if options.track:
        from e2fl.runs.trackers import Tracker

        watchers += [Tracker(name, out) for name in dict.fromkeys(options.track)]
    if not options.watch:
        yield Watchers(*watchers)
        return
    from e2fl.report.live import Live

    page = Live(out, out / PAGE)
    print(f"open {out / PAGE} in a browser: it follows the training", file=sys.stderr)
    try:
        yield Watchers(*watchers, page)
    except BaseException:
        page.stop()
        raise


def say(message: str) -> None:
    """Print a line beside the results."""
    print(f"e2fl: {message}", file=sys.stderr)
