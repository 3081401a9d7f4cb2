"""The parser of the command line, made from commands.toml; it imports no command."""

import argparse
import sys
import tomllib
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from e2fl.version import __version__

DESCRIPTION = "Equal and equitable federated learning: run, compare and measure fair algorithms."


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; `act` is the function that a command calls."""
    parser = argparse.ArgumentParser(
        prog="e2fl",
        description=DESCRIPTION,
        epilog=_declared()["examples"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"e2fl {__version__}")
    families = {"": parser.add_subparsers(metavar="COMMAND", title="commands")}
    for name, command in _declared()["commands"].items():
        family, _, last = name.rpartition(" ")
        if name == "audit":
            _add_audit(families[""])
            continue
        about = command.get("description", command["help"][:1].upper() + command["help"][1:] + ".")
        own = families[family].add_parser(last, help=command["help"], description=about)
        if "call" in command:
            own.set_defaults(act=partial(_call, command["call"]))
            _add_arguments(own, [_declared()["arguments"][key] for key in command["arguments"]])
        else:
            families[name] = own.add_subparsers(metavar="ACTION", title="actions", required=True)
    return parser


@cache
def _declared() -> dict[str, Any]:
    text = (files("e2fl.commands") / "commands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _call(name: str, options: argparse.Namespace) -> int:
    module, _, function = name.partition(":")
    code: int | None = getattr(import_module(f"e2fl.commands.{module}"), function)(options)
    return code or 0


def _add_arguments(parser: argparse.ArgumentParser, arguments: "list[Mapping[str, Any]]") -> None:
    exclusive = [argument for argument in arguments if argument.get("exclusive")]
    group = parser.add_mutually_exclusive_group() if len(exclusive) > 1 else parser
    for argument in arguments:
        _add(group if argument.get("exclusive") else parser, argument)


def _add(parser: "argparse._ActionsContainer", argument: Mapping[str, Any]) -> None:
    usage, _, metavar = argument["usage"].partition(" ")
    known = ("dest", "help", "nargs", "choices", "required")
    settings = {key: argument[key] for key in known if key in argument}
    if not usage.startswith("-"):
        metavar, usage = usage, settings.pop("dest")
    if metavar:
        settings["metavar"] = metavar
    elif "choices" not in argument:
        settings["action"] = "store_true" if argument.get("switch", True) else "store_false"
    if argument.get("repeat"):
        settings |= {"action": "append", "default": []}
    if "type" in argument:
        settings["type"] = TYPES[argument["type"]]
    if argument.get("type") == "names":
        settings["default"] = []
    if "default" in argument:
        settings["default"] = argument["default"]  # argparse converts a string as if it was typed
    parser.add_argument(usage, **settings)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


TYPES = {"path": Path, "int": int, "float": float, "names": _names}


def _add_audit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command; without the package it says what to install."""
    about = "audit a table of scores or predictions"
    try:
        from e2fl_audit.command import DESCRIPTION, add_arguments
    except ModuleNotFoundError:
        # No prefix: any option is accepted, so that the answer is always what to install.
        parser = commands.add_parser("audit", help=about, prefix_chars="\0", add_help=False)
        parser.add_argument("arguments", nargs="*")
        parser.set_defaults(act=_no_audit)
        return
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("audit", help=about, description=DESCRIPTION, formatter_class=form)
    add_arguments(parser)
    parser.set_defaults(act=_audit)


def _audit(options: argparse.Namespace) -> int:
    from e2fl_audit.command import run

    return run(options, "e2fl", options.command)


def _no_audit(_: argparse.Namespace) -> int:
    print("e2fl: audits need the package e2fl-audit: pip install 'e2fl[audit]'", file=sys.stderr)
    return 2
