"""The command: `e2fl-audit`, and `e2fl audit` of the package e2fl."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

DESCRIPTION = """Audit a table of scores or predictions for fairness, and write one self-contained page.

One row per person: y (label), y_hat (prediction, probability or score), and columns that name
groups, such as sex and race; a client column where rows belong to clients. One row per client:
accuracy (or --score COLUMN), group, n. Columns with usual names are found without options. CSV,
Parquet and xlsx are read. Two tables are compared.
"""
TEXT = {"default": "", "metavar": "TEXT"}
MANY: dict[str, Any] = {"action": "append", "default": []}
FLAG = {"action": "store_true"}
NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}
FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
COLUMN = {"metavar": "COLUMN"}

# The options by section: name, help, and what argparse needs to know.
OPTIONS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "columns": [
        ("client", "the client each row belongs to", COLUMN),
        (
            "group",
            "the attributes that make groups: each alone, then crossed; such as sex,race",
            MANY | {"metavar": "A,B", "dest": "groups"},
        ),
        ("y", "the true label", COLUMN),
        ("y-hat", "the prediction: a label, probability or score", COLUMN),
        ("score", "a score per person, or without labels any measure per client", COLUMN),
    ],
    "meaning of values": [
        ("positive", "the positive label; default: 1, yes, ...", {"metavar": "LABEL"}),
        (
            "threshold",
            "scores of T or more are positive; default: 0.5",
            {"type": float, "metavar": "T"},
        ),
        ("unit", "unit of accuracies; default: inferred", {"choices": ("percent", "fraction")}),
        ("lower-is-better", "--score is an error, such as rmse", FLAG),
        ("drop-missing", "leave out rows without label or prediction", FLAG),
    ],
    "judging": [
        (
            "reference",
            "compare with this group, with 'best' (default) or 'largest'; may be repeated",
            MANY | {"metavar": "GROUP"},
        ),
        ("min-n", "smaller groups are not judged; default: 30 rows or 5 clients", NUMBER),
        ("suppress-below", "hide groups below this size", NUMBER | {"default": 0}),
        ("profile", "ll144: New York City's Local Law 144", {"choices": ("ll144",)}),
        ("resamples", "of clients; default: 400", NUMBER | {"default": 400}),
    ],
    "output": [
        ("out", "the page; default: TABLE-audit.html beside the table", FILE),
        ("json", "also write everything as JSON", FILE),
        ("pdf", "also print the page, with Chromium, Chrome or Edge", FILE),
        ("export", "also write tables as CSV and plots as SVG", FILE | {"metavar": "DIR"}),
        ("system", "fills in the field 'system' of the page", TEXT),
        ("purpose", "fills in the field 'purpose' of the page", TEXT),
        ("auditor", "fills in the field 'auditor' of the page", TEXT),
    ],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `e2fl-audit`; return 0 for success, 2 for a mistake that the message explains."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("e2fl-audit", description=DESCRIPTION, formatter_class=form)
    add_arguments(parser)
    given = sys.argv[1:] if arguments is None else arguments
    return run(parser.parse_args(given), "e2fl-audit", shlex.join(["e2fl-audit", *given]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of an audit."""
    parser.add_argument(
        "tables", nargs="+", type=Path, metavar="TABLE", help="a CSV, Parquet or xlsx file"
    )
    for section, options in OPTIONS.items():
        group = parser.add_argument_group(section)
        for name, about, settings in options:
            group.add_argument(f"--{name}", help=about, **settings)


def run(options: argparse.Namespace, program: str, command: str) -> int:
    """Audit the tables, write the files and print what was found; 130 if interrupted."""
    from e2fl_audit.errors import AuditError

    try:
        return _run(options, command)
    except AuditError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: audit interrupted; nothing was written", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, command: str) -> int:
    from e2fl_audit.output import exported, require_free, write, write_pdf
    from e2fl_audit.reader import read_table
    from e2fl_audit.result import examine
    from e2fl_audit.settings import Settings

    first: Path = options.tables[0]
    out = options.out or first.with_name(f"{first.stem}-audit.html")
    written = [path for path in (out, options.json, options.pdf) if path is not None]
    require_free(written, options.tables)
    names = [name.strip() for group in options.groups for name in group.split(",")]
    given = vars(options) | {"groups": tuple(filter(None, names))}
    given["reference"] = tuple(options.reference)
    known = {field.name for field in fields(Settings)}
    settings = Settings(**{name: value for name, value in given.items() if name in known})
    audit = examine([read_table(path, settings) for path in options.tables], settings)
    about = {name: getattr(options, name) for name in ("system", "purpose", "auditor")}
    audit.command, audit.about = command, {name: text for name, text in about.items() if text}
    page = audit.to_html()
    files = {} if options.export is None else exported(audit, options.export)
    require_free([*written, *files], options.tables)
    write(out, page)
    if options.json is not None:
        write(options.json, audit.to_json())
    if options.pdf is not None:
        write_pdf(page, options.pdf)
    for path, content in files.items():
        write(path, content)
    print("\n".join(audit.sentences))
    written += [] if options.export is None else [options.export]
    print(f"\nwritten to {', '.join(map(str, written))}")
    return 0
