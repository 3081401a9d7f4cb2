"""A hook of mkdocs: pages that are generated from the code, so that they cannot become outdated.

`settings.md` and `commands.md` hold a mark that is replaced by the reference of all settings and of the command line.
Links to files outside docs/, which work in the repository, become plain text on the site.
"""

import argparse
import html
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from e2fl.cli import build_parser
from e2fl.config.listing import Entry, entries

MARK = "<!-- generated -->"
TITLES = {
    "experiment": "The experiment",
    "learner": "Section learner",
    "algorithms": "Section algorithm",
    "groupings": "Section algorithm.grouping",
    "datasets": "Section data",
    "models": "Section model",
    "participation": "Section participation",
    "ballots": "Section algorithm.ballot",
}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill in what is generated; called by mkdocs for every page."""
    make = {"settings.md": settings_reference, "commands.md": command_reference}.get(page.file.src_uri)
    markdown = markdown if make is None else markdown.replace(MARK, make())
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def settings_reference() -> str:
    """Every setting of everything that a configuration can name."""
    lines: list[str] = []
    kind = ""
    for entry in entries():
        if entry.kind != kind:
            kind = entry.kind
            lines += [f"## {TITLES.get(kind, kind)}", ""]
        lines += _entry(entry)
    return "\n".join(lines)


def _entry(entry: Entry) -> list[str]:
    alone = entry.kind == entry.name
    lines = [] if alone else [f"### {entry.name} {{ #{entry.kind}-{entry.name} }}", ""]
    lines += [_text(entry.summary), ""]
    if not entry.settings:
        return [*lines, "No settings.", ""]
    lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for setting in entry.settings:
        choices = f"one of {', '.join(f'`{choice}`' for choice in setting.choices)}" if setting.choices else ""
        meaning = "; ".join(part for part in (choices, _text(setting.meaning)) if part)
        lines.append(f"| `{setting.name}` | {_code(setting.type)} | {_code(setting.default)} | {meaning} |")
    return [*lines, ""]


def command_reference() -> str:
    """Every command with its usage and its arguments."""
    parser = build_parser()
    lines = []
    for command in _commands(parser):
        words = re.sub(r"\s+", " ", command.format_usage().removeprefix("usage: ")).strip()
        usage = textwrap.fill(words, 80, subsequent_indent="    ", break_on_hyphens=False)
        lines += [f"## {command.prog}", "", _text(command.description or ""), "", "```text", usage, "```", ""]
        actions = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        if actions:
            lines += ["| argument | meaning |", "|---|---|"]
            lines += [f"| {_code(_name(action))} | {_text(_meaning(action))} |" for action in actions]
            lines.append("")
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands that do something, in the order of `--help`."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        helps = {choice.dest: choice.help for choice in action._choices_actions}
        for name, command in action.choices.items():
            command.description = command.description or _sentence(helps.get(name) or "")
            yield from _commands(command)


def _name(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return value
    takes_value = action.nargs != 0
    return ", ".join(action.option_strings) + (f" {value}" if takes_value else "")


def _meaning(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default, "prog": "e2fl"} if action.help else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _code(text: str) -> str:
    """Code in a cell of a table, where Markdown takes a bar for the end of the cell."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _text(text: str) -> str:
    """Words that Markdown shows as they are, also in a table."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("\n", " ")
