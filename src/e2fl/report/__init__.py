"""The fairness report: runs on disk as one self-contained HTML page.

    from e2fl.report import report_runs
    report_runs([Path("runs/demo-compare-1")], Path("report.html"))

How it works: from_runs (measurements) -> study -> verdict and sections (one module per question: text, table, plot)
-> html, export.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.errors import ReportError

if TYPE_CHECKING:
    from e2fl.report.study import Study
    from e2fl.runs.runner import Run

NEEDS = "the page needs libraries for plots and tables; install them with: pip install 'e2fl[report]'"

# Modules are imported when they are needed: importing this package loads neither torch nor a plotting library.


def report_runs(paths: Sequence[Path], out: Path, *, export_to: Path | None = None) -> "Study":
    """Write the page of all finished runs in these folders and, if asked, every table and plot as files."""
    from e2fl.report.from_runs import read_runs

    runs, left_out = read_runs(paths)
    return report(runs, out, notes=left_out, export_to=export_to)


def report(runs: "Sequence[Run]", out: Path, *, notes: Sequence[str] = (), export_to: Path | None = None) -> "Study":
    """Write the page of these runs."""
    from e2fl.report.from_runs import study_of

    study = study_of(runs, notes)
    _put(study, out, export_to)
    return study


def _put(study: "Study", out: Path, export_to: Path | None) -> None:
    try:
        from e2fl.report.export import export
        from e2fl.report.html import write
    except ImportError as error:
        raise ReportError(NEEDS) from error
    write(study, out)
    if export_to is not None:
        export(study, export_to)
