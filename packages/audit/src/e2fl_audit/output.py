"""Writing of an audit's files: complete or not at all, and never over an input."""

import csv
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit.errors import AuditError
from e2fl_audit.plots import dot_plot
from e2fl_audit.result import Audit

BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("msedge", "brave-browser"),
)
FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-sync", "--disable-component-update", "--no-pdf-header-footer"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def neutral(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: '=1+1' gets an apostrophe in front."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV that is safe to open in a spreadsheet; NaN is an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(neutral, frame.columns))
    cells = frame.astype(object).where(frame.notna(), "")
    writer.writerows(map(neutral, row) for row in cells.itertuples(index=False))
    return file.getvalue()


def exported(audit: Audit, folder: Path) -> dict[Path, str]:
    """Return the files to write: rates.csv, clients.csv and a plot of each rate, for every table."""
    files: dict[Path, str] = {}
    for number, one in enumerate(audit.tables):
        target = folder if len(audit.tables) == 1 else folder / f"table-{number + 1}"
        files[target / "rates.csv"] = csv_text(one.rates())
        if one.spread is not None:
            files[target / "clients.csv"] = csv_text(one.clients())
        for table in (table for tables in one.results for table in tables):
            plot = dot_plot(table, standalone=True)
            name = f"{_file_name(table.grouping)}-{_file_name(table.rate.key)}"
            path, again = target / f"{name}.svg", 2
            while path in files:  # two names may become one when their signs are replaced
                path, again = target / f"{name}-{again}.svg", again + 1
            files |= {path: plot} if plot else {}
    return files


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:60] or "plot"


def require_free(targets: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Raise an error if a file to be written is an input, or is to be written twice."""
    for place, target in enumerate(targets):
        if any(_same_file(target, source) for source in inputs):
            raise AuditError(f"{target} is the table itself; choose another file to write to")
        if any(_same_file(target, other) for other in targets[:place]):
            raise AuditError(f"{target} is named twice; choose different files")
        if target.is_dir():
            raise AuditError(f"{target} is a folder; name a file to write to")


def _same_file(one: Path, other: Path) -> bool:
    """Return whether two paths name one file, through links too."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one.absolute() == other.absolute()


def write(path: Path, content: str | bytes) -> None:
    """Write a file in one step: it is complete, or unchanged."""
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise AuditError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if path.parent.is_dir():
            partial.unlink(missing_ok=True)


def write_pdf(page: str, path: Path) -> None:
    """Print the page with a browser that is installed."""
    command = next((browser for name in BROWSERS if (browser := shutil.which(name))), None)
    if command is None:
        what = "install one, or open the page and print it to PDF"
        raise AuditError(f"--pdf needs Chromium, Chrome or Edge; {what}")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        options = [*FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # browsers refuse to start as root otherwise
        try:
            line = [command, *options, source.as_uri()]
            subprocess.run(line, check=True, capture_output=True, timeout=300)
            content = target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            what = f"{Path(command).name} could not print the page"
            raise AuditError(f"{what}; open it and print it to PDF") from error
    write(path, content)
