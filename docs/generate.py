"""Writes the source of the documentation site: the pages of docs/, with generated parts filled in.

    python docs/generate.py build/docs

`settings.md`, `commands.md` and `metrics.md` hold a mark that is replaced by the reference of all
settings, of the command line and of all measures. Links to files outside docs/, which work in the
repository, become plain text.
"""

import argparse
import html
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from e2fl.cli import build_parser
from e2fl.config.listing import RegistryEntry, stored
from e2fl.metrics import DEFINITIONS, MEASURES

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


def main(target: Path) -> None:
    """Write the pages of the site, and copy the other files, to a folder that is made anew."""
    shutil.rmtree(target, ignore_errors=True)
    source = Path(__file__).parent
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in target.rglob("*.md"):
        name = page.relative_to(target)
        page.write_text(complete(name, page.read_text(encoding="utf-8")), encoding="utf-8")


def complete(name: Path, markdown: str) -> str:
    """Return the text of a page with its generated part, without links that leave the site."""
    make = MAKERS.get(str(name))
    markdown = markdown if make is None else markdown.replace(MARK, make())
    outside = r"\.\./" * len(name.parts)
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)


def settings_reference() -> str:
    """Every setting of everything that a configuration can name."""
    lines: list[str] = []
    kind = ""
    for entry in stored():
        if entry.kind != kind:
            kind = entry.kind
            lines += [f"## {TITLES.get(kind, kind)}", ""]
        lines += _entry(entry)
    return "\n".join(lines)


def _entry(entry: RegistryEntry) -> list[str]:
    alone = entry.kind == entry.name
    lines = [] if alone else [f"### {entry.name} {{ #{entry.kind}-{entry.name} }}", ""]
    lines += [_text(entry.summary), ""]
    if not entry.settings:
        return [*lines, "No settings.", ""]
    lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for setting in entry.settings:
        name, kind, default = map(_code, setting[:3])
        lines.append(f"| {name} | {kind} | {default} | {_text(setting.meaning)} |")
    return [*lines, ""]


def command_reference() -> str:
    """Every command with its usage and its arguments."""
    parser = build_parser()
    lines = []
    for command in _commands(parser):
        words = re.sub(r"\s+", " ", command.format_usage().removeprefix("usage: ")).strip()
        usage = textwrap.fill(words, 80, subsequent_indent="    ", break_on_hyphens=False)
        lines += [
            f"## {command.prog}",
            "",
            _text(command.description or ""),
            "",
            "```text",
            usage,
            "```",
            "",
        ]
        actions = [
            action for action in command._actions if not isinstance(action, argparse._HelpAction)
        ]
        if actions:
            lines += ["| argument | meaning |", "|---|---|"]
            lines += [
                f"| {_code(_name(action))} | {_text(_meaning(action))} |" for action in actions
            ]
            lines.append("")
    return "\n".join(lines)


def measure_reference() -> str:
    """Every measure with its path, and the definitions."""
    lines = ["| path | title | unit | better | definition |", "|---|---|---|---|---|"]
    for key, measure in MEASURES.items():
        link = f"[{DEFINITIONS[measure.definition].title}](#{measure.definition})"
        cells = (f"`{key}`", measure.title, measure.unit, measure.better, link)
        lines.append(f"| {' | '.join(cells)} |")
    for key, definition in DEFINITIONS.items():
        lines += ["", f"## {definition.title} {{ #{key} }}", "", _text(definition.text)]
    return "\n".join(lines)


MAKERS = {
    "settings.md": settings_reference,
    "commands.md": command_reference,
    "metrics.md": measure_reference,
}


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
    return (
        f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"
    )


def _text(text: str) -> str:
    """Words that Markdown shows as they are, also in a table."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("\n", " ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
