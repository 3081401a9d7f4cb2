"""Tables as CSV and plots as SVG, each a file of its own."""

import re
from pathlib import Path

from e2fl.auditing.dotplot import dot_plot
from e2fl.auditing.result import Audit, client_rows, long_rows
from e2fl.csv_text import csv_text


def exported(audit: Audit, folder: Path) -> dict[Path, str]:
    """Return the files to write: rates.csv, clients.csv and a plot of each rate, for every table."""
    files: dict[Path, str] = {}
    for number, each in enumerate(audit.tables):
        target = folder if len(audit.tables) == 1 else folder / f"table-{number + 1}"
        files[target / "rates.csv"] = csv_text(long_rows(each))
        if each.spread is not None:
            files[target / "clients.csv"] = csv_text(client_rows(each.spread))
        for tables in each.results:
            for table in tables:
                plot = dot_plot(table, standalone=True)
                if plot:
                    name = f"{_file_name(table.grouping)}-{_file_name(table.rate.key)}"
                    files[_unused(target, name, files)] = plot
    return files


def _unused(folder: Path, name: str, files: dict[Path, str]) -> Path:
    """Return a path for a plot; two names may become one when their signs are replaced."""
    path, number = folder / f"{name}.svg", 2
    while path in files:
        path, number = folder / f"{name}-{number}.svg", number + 1
    return path


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:60] or "plot"
