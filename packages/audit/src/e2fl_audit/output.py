"""An audit's files: written completely or not at all, and never over an input."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from e2fl_audit.api import Audit
from e2fl_audit.page import csv_text, dot_plot, rate_frame
from e2fl_audit.settings import AuditError


def exported(audit: Audit, folder: Path) -> dict[Path, str]:
    """Return the files to write: rates, clients and a plot of each rate."""
    latex = [rate_frame(tables).to_latex(index=False, escape=True) for tables in audit.results]
    files = {folder / "rates.csv": csv_text(audit.rates), folder / "rates.tex": "\n".join(latex)}
    if audit.spread is not None:
        files[folder / "clients.csv"] = csv_text(audit.clients)
    for table in (table for tables in audit.results for table in tables):
        name = re.sub(r"[^a-z0-9]+", "-", f"{table.grouping.name} {table.rate.key}".lower())
        path = folder / f"{name.strip('-')[:100]}.svg"
        if path in files:  # two names may become one when their signs are replaced
            path = path.with_stem(f"{path.stem}-{len(files)}")
        if plot := dot_plot(table, standalone=True):
            files[path] = plot
    return files


def require_free(targets: Sequence[Path], source: Path) -> None:
    """Raise an error if a file to be written is the input, or is to be written twice."""
    for position, target in enumerate(targets):
        if _same_file(target, source):
            raise AuditError(f"{target} is the table itself; choose another file to write to")
        if any(_same_file(target, other) for other in targets[:position]):
            raise AuditError(f"{target} is named twice; choose different files")
        if target.is_dir():
            raise AuditError(f"{target} is a folder; name a file to write to")


def _same_file(one: Path, other: Path) -> bool:
    """Return whether two paths name one file, through links too."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one.absolute() == other.absolute()


def write(path: Path, content: str) -> None:
    """Write a file in one step: it is complete, or unchanged."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise AuditError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if path.parent.is_dir():
            partial.unlink(missing_ok=True)
