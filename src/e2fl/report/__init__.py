"""The fairness report: runs on disk as one self-contained HTML page.

    from e2fl.report import report_runs
    report_runs([Path("runs/demo-compare-1")], Path("report.html"))

How it works: frame (a column per measure) -> study -> verdict and sections (a function for each
question: text, table, plot) -> page, files. A page is drawn from files alone: torch is not loaded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2fl.report.study import Study


def report_runs(paths: Sequence[Path], out: Path, *, export_to: Path | None = None) -> "Study":
    """Write the page of all finished runs in these folders and, if asked, everything as files."""
    from e2fl.report.from_runs import read_runs, study_of

    runs, left_out = read_runs(paths)
    study = study_of(runs, left_out)
    write_report(study, out, export_to=export_to)
    return study


def write_report(study: "Study", out: Path, *, export_to: Path | None = None) -> None:
    """Write the page of a study and, if asked, its tables and plots as files."""
    from e2fl.files import write_text
    from e2fl.report.page import export, page

    write_text(out, page(study))
    if export_to is not None:
        export(study, export_to)
