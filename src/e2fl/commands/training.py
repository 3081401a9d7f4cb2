"""The commands that train one experiment or several: run, compare and resume."""

import argparse
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.commands.options import (
    changes_of,
    folder_for,
    methods_of,
    seeds_of,
    tell_imports,
    watching,
)
from e2fl.construct import importing_only
from e2fl.errors import RunError, reason_of

if TYPE_CHECKING:
    from e2fl.runs.store import Run

CODE = re.compile(r"[\w.]+:\w+")  # such as mine:MyAlgorithm
DIVERGED = 3  # the exit code of a command whose training diverged


def run(options: argparse.Namespace) -> int:
    """Run one experiment."""
    from e2fl.config.experiment import load
    from e2fl.report.finish import finish
    from e2fl.runs.runner import run_experiment

    experiment = load(options.config, changes_of(options), algorithm=options.algorithm)
    tell_imports([experiment], [*options.changes, str(options.algorithm)], options.config)
    with (
        folder_for(options, f"{experiment.name}-{experiment.label}") as out,
        watching(options, out) as watcher,
    ):
        result = run_experiment(experiment, out=out, resume=options.resume, watcher=watcher)
    finish([result], out)
    return _exit_code([result])


def compare(options: argparse.Namespace) -> int:
    """Run several algorithms on the same experiment."""
    from e2fl.config.methods import with_attacks
    from e2fl.metrics.measures import measure_of, own_measures
    from e2fl.report.finish import finish
    from e2fl.runs.batch import compare as run_all

    _, methods = methods_of(options, changes_of(options))
    if options.attacks:
        methods = with_attacks(methods, options.attacks)
    first = next(iter(methods.values()))
    own = own_measures(first.build_measures())
    for column in options.columns:
        measure_of(column, own)  # a mistake is found before hours of training
    seeds = seeds_of(options.seeds, first.seed)
    with (
        folder_for(options, f"{first.name}-compare") as out,
        watching(options, out) as watcher,
    ):
        runs = run_all(methods, seeds, out=out, resume=options.resume, watcher=watcher)
    finish(runs, out, columns=options.columns, plus_minus=options.plus_minus, views=options.views)
    return _exit_code(runs)


def _exit_code(runs: "Sequence[Run]") -> int:
    """Return 0, or `DIVERGED` if the models of a client of one of these runs diverged."""
    from e2fl.runs.records import divergence_warnings

    return DIVERGED if any(divergence_warnings(run.summary) for run in runs) else 0


def resume(options: argparse.Namespace) -> int:
    """Continue a run by its config.toml, or anything else by the command that started it."""
    from e2fl.commands.parser import build_parser

    words = _words(options.folder)
    changes = [word for change in options.changes for word in ("--set", change)]
    again = build_parser().parse_args(
        [*words[1:], *changes, "--out", str(options.folder), "--resume"]
    )
    again.command, again.watch, again.track = options.command, options.watch, options.track
    kept = getattr(again, "keep_client_models", False)
    again.keep_client_models = options.keep_client_models or kept
    act: Callable[[argparse.Namespace], int] = again.act
    typed = [name for text in options.changes for name in CODE.findall(text)]
    with nullcontext() if options.trust else importing_only(typed):
        return act(again)


def _words(folder: Path) -> list[str]:
    """Return the command that continues what is in this folder."""
    from e2fl.files import read_text
    from e2fl.runs.store import COMMAND

    if (folder / "config.toml").is_file():
        return ["e2fl", "run", str(folder / "config.toml")]
    try:
        words = shlex.split(read_text(folder / COMMAND))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{folder} holds no run and no comparison: {COMMAND} cannot be read "
            f"({reason_of(error)})"
        ) from error
    if words[:1] != ["e2fl"] or words[1:2] not in (["compare"], ["sweep"], ["tune"]):
        raise RunError(f"{folder} was not made by e2fl run, compare, sweep or tune")
    return words
