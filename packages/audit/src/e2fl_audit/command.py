"""The command: `e2fl-audit`, and `e2fl audit` of the package e2fl.

Its options are in options.toml.
"""

import argparse
import shlex
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

from e2fl_audit.settings import AuditError, Settings

DESCRIPTION = """\
Audit a table of scores or predictions for fairness, and write one self-contained page.

One row per person: y (label), y_hat (prediction, probability or score), and columns that name
groups, such as sex and race; a client column where rows belong to clients. One row per client:
accuracy (or --score COLUMN), group, n. Columns with usual names are found without options. CSV,
Parquet and xlsx are read.
"""
TYPES = {"int": int, "float": float, "path": Path}
MOST_PRINTED = 20  # groups in the terminal; the page has all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `e2fl-audit`; return 0 for success, 2 for a mistake that the message explains."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("e2fl-audit", description=DESCRIPTION, formatter_class=form)
    add_arguments(parser)
    given = sys.argv[1:] if arguments is None else arguments
    return run(parser.parse_args(given), "e2fl-audit", shlex.join(["e2fl-audit", *given]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of an audit."""
    about = "a CSV, Parquet or xlsx file"
    parser.add_argument("table", type=Path, metavar="TABLE", help=about)
    text = (files("e2fl_audit") / "options.toml").read_text(encoding="utf-8")
    for section, options in tomllib.loads(text).items():
        group = parser.add_argument_group(section)
        for name, settings in options.items():
            if "type" in settings:
                settings["type"] = TYPES[settings["type"]]
            group.add_argument(f"--{name}", **settings)


def run(options: argparse.Namespace, program: str, command: str) -> int:
    """Audit the table, write the files and print what was found; 130 if interrupted."""
    try:
        return _run(options, command)
    except AuditError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: audit interrupted; nothing was written", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, command: str) -> int:
    from e2fl_audit.api import Audit
    from e2fl_audit.page import rate_frame
    from e2fl_audit.reader import read_table

    source: Path = options.table
    out = options.out or source.with_name(f"{source.stem}-audit.html")
    targets = [path for path in (out, options.json) if path is not None]
    _require_free(targets, source)
    names = [name.strip() for group in options.groups for name in group.split(",")]
    given = vars(options) | {"groups": tuple(filter(None, names))}
    given["reference"] = tuple(options.reference)
    known = {field.name for field in fields(Settings)}
    settings = Settings(**{name: value for name, value in given.items() if name in known})
    audit = Audit(read_table(source, settings), settings, command)
    for target in targets:
        audit.save(target, as_json=target is options.json)
    print("\n".join(audit.sentences))
    for tables in audit.results:
        drawn = [table for table in tables if not table.rate.label]
        print(f"\n{rate_frame(drawn, intervals=False).head(MOST_PRINTED).to_string(index=False)}")
    print(f"\nwritten to {', '.join(map(str, targets))}")
    return 0


def _require_free(targets: Sequence[Path], source: Path) -> None:
    """Raise an error if a file to be written is the input, or is to be written twice."""
    paths = [path.resolve() for path in targets]
    if source.resolve() in paths:
        raise AuditError(f"{source} is the table itself; choose another file to write to")
    if len(set(paths)) < len(paths):
        raise AuditError(f"{targets[0]} is named twice; choose different files")
