"""The fairness report: runs on disk, or anybody's table of scores, as one self-contained HTML page.

    from e2fl.report import report_runs
    report_runs([Path("runs/demo-compare-1")], Path("report.html"))
"""

from collections.abc import Sequence
from pathlib import Path

from e2fl.report.export import export
from e2fl.report.page import page
from e2fl.report.picture import picture
from e2fl.report.runs import read_runs, study_of
from e2fl.report.study import Study
from e2fl.runner import Run

__all__ = ["Study", "export", "page", "report_runs", "study_of", "write"]


def report_runs(paths: Sequence[Path], out: Path, *, export_to: Path | None = None) -> Study:
    """Write the page of all finished runs in these folders and, if asked, every table and plot as files."""
    runs, left_out = read_runs(paths)
    study = with_picture(study_of(runs, left_out), runs[0])
    write(study, out)
    if export_to is not None:
        export(study, export_to)
    return study


def with_picture(study: Study, run: Run) -> Study:
    """The study with a picture of the data it is about, where that can be drawn."""
    return study.with_data(picture(run.experiment))


def write(study: Study, out: Path, *, reload: int = 0) -> None:
    """Put the page in place, whole or not at all."""
    text = page(study, reload=reload)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
