"""The parser of the command line, made from commands.toml; it imports no command."""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from e2fl.errors import ConfigError
from e2fl.version import __version__

DESCRIPTION = "Equal and equitable federated learning: run, compare and measure fair algorithms."
RAW = argparse.RawDescriptionHelpFormatter


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; `act` is the function that a command calls."""
    parser = argparse.ArgumentParser(
        prog="e2fl", description=DESCRIPTION, epilog=_declared()["examples"], formatter_class=RAW
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
        if "arguments" in command:
            act = _call if "call" in command else _print
            own.set_defaults(act=partial(act, command.get("call") or command["print"]))
            _add_arguments(own, [_declared()["arguments"][key] for key in command["arguments"]])
        else:
            families[name] = own.add_subparsers(metavar="ACTION", title="actions", required=True)
    return parser


@cache
def _declared() -> dict[str, Any]:
    text = (files("e2fl.commands") / "commands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _call(name: str, options: argparse.Namespace) -> int:
    """Call what runs a command; it returns the exit code, or nothing."""
    module, _, function = name.partition(":")
    code: int | None = getattr(import_module(f"e2fl.{module}"), function)(options)
    return code or 0


def _print(name: str, options: argparse.Namespace) -> int:
    """Print what a function returns for the argument of a command, if it has one."""
    module, _, function = name.partition(":")
    given = {key: value for key, value in vars(options).items() if key in ("name", "what")}
    print(getattr(import_module(f"e2fl.{module}"), function)(**given).rstrip("\n"))
    return 0


def _add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Mapping[str, Any]]) -> None:
    exclusive = [argument for argument in arguments if argument.get("exclusive")]
    group = parser.add_mutually_exclusive_group() if len(exclusive) > 1 else parser
    for argument in arguments:
        _add(group if argument.get("exclusive") else parser, argument)


def _add(parser: "argparse._ActionsContainer", argument: Mapping[str, Any]) -> None:
    usage, _, metavar = argument["usage"].partition(" ")
    known = ("dest", "help", "nargs", "choices", "required", "const", "default")
    settings = {key: argument[key] for key in known if key in argument}
    if not usage.startswith("-"):
        metavar, usage = usage, settings.pop("dest")
    if metavar:
        settings["metavar"] = metavar
    elif "const" in argument:
        settings["action"] = "append_const"
    elif "choices" not in argument:
        settings["action"] = "store_true" if argument.get("switch", True) else "store_false"
    if argument.get("repeat"):
        settings |= {"default": []} | ({"action": "append"} if metavar else {})
    if "type" in argument:
        settings["type"] = TYPES[argument["type"]]
    if argument.get("type") == "names":
        settings.setdefault("default", [])
    parser.add_argument(usage, **settings)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


TYPES = {"path": Path, "int": int, "float": float, "names": _names}


def _add_audit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command; without the package it says what to install."""
    about = "audit a table of scores or predictions"
    try:
        from e2fl_audit import command
    except ModuleNotFoundError:
        # No prefix: any option is accepted, so that the answer is always what to install.
        parser = commands.add_parser("audit", help=about, prefix_chars="\0", add_help=False)
        parser.add_argument("arguments", nargs="*")
        parser.set_defaults(act=_no_audit)
        return
    text = command.DESCRIPTION
    parser = commands.add_parser("audit", help=about, description=text, formatter_class=RAW)
    command.add_arguments(parser)
    parser.set_defaults(act=lambda options: command.run(options, "e2fl", options.command))


def _no_audit(_: argparse.Namespace) -> int:
    raise ConfigError("audits need the package e2fl-audit: pip install 'e2fl[audit]'")
