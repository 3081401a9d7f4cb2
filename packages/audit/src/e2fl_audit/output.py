"""An audit's files: written completely or not at all, and never over an input."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2fl_audit.api import Audit
from e2fl_audit.page import csv_text, dot_plot, rate_frame
from e2fl_audit.settings import AuditError

BROWSERS = (
    "chromium chromium-browser google-chrome google-chrome-stable chrome msedge brave-browser"
)
FLAGS = "--headless --disable-gpu --no-first-run --disable-background-networking --disable-sync "
FLAGS += "--disable-component-update --no-pdf-header-footer"


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
