"""Tables as text, and an audit's files: complete or not at all, and never over an input."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit.names import safe
from e2fl_audit.plots import dot_plot, in_order
from e2fl_audit.rates import RateTable
from e2fl_audit.result import Audit
from e2fl_audit.settings import AuditError
from e2fl_audit.wording import interval, shown, whole

BROWSERS = (
    "chromium chromium-browser google-chrome google-chrome-stable chrome msedge brave-browser"
)
FLAGS = "--headless --disable-gpu --no-first-run --disable-background-networking --disable-sync "
FLAGS += "--disable-component-update --no-pdf-header-footer"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def rate_frame(tables: Sequence[RateTable], intervals: bool = True) -> pd.DataFrame:
    """Return the rates of a grouping as text, most favourable first: terminal, notebook, LaTeX."""
    first, order = tables[0], in_order(tables[0])
    size = "clients" if first.is_measure else "n"
    columns = {safe(first.grouping.name): [safe(first.rows[row].group) for row in order]}
    columns[size] = [whole(first.rows[row].n) for row in order]
    for table in tables:
        rows = [table.rows[position] for position in order]
        texts = [shown(row.value, table.unit) for row in rows]
        if intervals:
            reach = [interval(row.low, row.high, table.unit) for row in rows]
            texts = [f"{text} ({one})" for text, one in zip(texts, reach, strict=True)]
        columns[safe(table.rate.title)] = [
            text if row.judged else f"{text} [{row.status}]"
            for text, row in zip(texts, rows, strict=True)
        ]
    return pd.DataFrame(columns)


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
    texts = frame.rename(columns=neutral)
    for name in texts.select_dtypes(exclude=["number", "bool"]).columns:
        texts[name] = texts[name].map(neutral)
    return texts.to_csv(index=False, lineterminator="\n")


def exported(audit: Audit, folder: Path) -> dict[Path, str]:
    """Return the files to write: rates, clients and a plot of each rate, for every table."""
    files: dict[Path, str] = {}
    for position, one in enumerate(audit.tables):
        target = folder if len(audit.tables) == 1 else folder / f"table-{position + 1}"
        files[target / "rates.csv"] = csv_text(one.rates)
        frames = [rate_frame(tables) for tables in one.results]
        latex = [frame.to_latex(index=False, escape=True) for frame in frames]
        files[target / "rates.tex"] = "\n".join(latex)
        if one.spread is not None:
            files[target / "clients.csv"] = csv_text(one.clients)
        for table in (table for tables in one.results for table in tables):
            name = re.sub(r"[^a-z0-9]+", "-", f"{table.grouping.name} {table.rate.key}".lower())
            path = target / f"{name.strip('-')[:100]}.svg"
            if path in files:  # two names may become one when their signs are replaced
                path = path.with_stem(f"{path.stem}-{len(files)}")
            if plot := dot_plot(table, standalone=True):
                files[path] = plot
    return files


def require_free(targets: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Raise an error if a file to be written is an input, or is to be written twice."""
    for position, target in enumerate(targets):
        if any(_same_file(target, source) for source in inputs):
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
    browser = next(filter(None, map(shutil.which, BROWSERS.split())), None)
    if browser is None:
        what = "install one, or open the page and print it to PDF"
        raise AuditError(f"--pdf needs Chromium, Chrome or Edge; {what}")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        line = [browser, *FLAGS.split(), f"--user-data-dir={folder}/profile"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            line.append("--no-sandbox")  # browsers refuse to start as root otherwise
        line += [f"--print-to-pdf={target}", source.as_uri()]
        try:
            subprocess.run(line, check=True, capture_output=True, timeout=300)
            content = target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            what = f"{Path(browser).name} could not print the page"
            raise AuditError(f"{what}; open it and print it to PDF") from error
    write(path, content)
