"""Tables as CSV and plots as SVG, each a file of its own."""

import re
from pathlib import Path

from e2fl.auditing.dotplot import dot_plot
from e2fl.auditing.output import write, write_csv
from e2fl.auditing.result import Audit, client_rows, long_rows


def export(audit: Audit, folder: Path) -> None:
    """Write rates.csv, clients.csv and a plot of each rate for every table."""
    for number, each in enumerate(audit.tables):
        target = folder if len(audit.tables) == 1 else folder / f"table-{number + 1}"
        write_csv(target / "rates.csv", long_rows(each))
        if each.spread is not None:
            write_csv(target / "clients.csv", client_rows(each.spread))
        for tables in each.results:
            for table in tables:
                plot = dot_plot(table, standalone=True)
                if plot:
                    write(target / f"{_file_name(table.grouping)}-{_file_name(table.rate.key)}.svg", plot)


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:60] or "plot"
