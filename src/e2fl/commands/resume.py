"""`e2fl resume`: continue a run, comparison, sweep or search."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from e2fl.commands import compare, run, sweep, tune
from e2fl.commands.arguments import Commands, add_set, add_watching
from e2fl.errors import RunError


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "resume",
        help="continue an interrupted run, comparison, sweep or search, or give a finished run more rounds",
        description="Continue the run, comparison, sweep or search in a folder with the command that started it.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder of a run, a comparison, a sweep or a search"
    )
    add_set(parser, "change a setting that does not change results, or rounds, such as rounds=3000")
    add_watching(parser)
    parser.set_defaults(act=_resume)


def _resume(options: argparse.Namespace) -> int:
    """Continue a run by its config.toml, or anything else by the command that started it."""
    from e2fl.runs.folder import COMMAND

    config = options.folder / "config.toml"
    if config.is_file():
        words = ["e2fl", "run", str(config)]
    else:
        try:
            words = shlex.split((options.folder / COMMAND).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{options.folder} holds no run and no comparison: {COMMAND} cannot be read") from error
        if words[:1] != ["e2fl"] or words[1:2] not in (["compare"], ["sweep"], ["tune"]):
            raise RunError(f"{options.folder} was not made by e2fl run, compare, sweep or tune")
    changes = [word for change in options.changes for word in ("--set", change)]
    again = _parser().parse_args([*words[1:], *changes, "--out", str(options.folder), "--resume"])
    again.command, again.watch, again.track = options.command, options.watch, options.track
    again.keep_client_models = options.keep_client_models or getattr(again, "keep_client_models", False)
    act: Callable[[argparse.Namespace], int] = again.act
    return act(again)


def _parser() -> argparse.ArgumentParser:
    """Return a parser of the commands that can be resumed."""
    parser = argparse.ArgumentParser(prog="e2fl")
    commands = parser.add_subparsers()
    for command in (run, compare, sweep, tune):
        command.add_parser(commands)
    return parser
