"""The fairness report: runs on disk as one self-contained HTML page.

    from e2fl.report import report_runs
    report_runs([Path("runs/demo-compare-1")], Path("report.html"))

Way through: runs (measurements) -> study -> verdict, contents (tables), bars, lines, points (plots) ->
sections -> page, export.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2fl.report.study import Study
    from e2fl.runs.runner import Run

# What each needs is imported when it is called.


def report_runs(paths: Sequence[Path], out: Path, *, export_to: Path | None = None) -> "Study":
    """Write the page of all finished runs in these folders and, if asked, every table and plot as files."""
    from e2fl.report.from_runs import read_runs

    runs, left_out = read_runs(paths)
    return report(runs, out, notes=left_out, export_to=export_to)


def report(runs: "Sequence[Run]", out: Path, *, notes: Sequence[str] = (), export_to: Path | None = None) -> "Study":
    """The same of runs at hand."""
    from e2fl.report.from_runs import study_of
    from e2fl.report.picture import picture

    study = study_of(runs, notes).with_data(picture(runs[0].experiment))
    _put(study, out, export_to)
    return study


def _put(study: "Study", out: Path, export_to: Path | None) -> None:
    from e2fl.report.export import export
    from e2fl.report.html import write

    write(study, out)
    if export_to is not None:
        export(study, export_to)
