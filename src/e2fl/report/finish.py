"""The end of runs: the printed table, the page, and the table for a paper."""

import sys
from collections.abc import Sequence
from pathlib import Path

from e2fl.errors import E2flError
from e2fl.files import write_text
from e2fl.report import report
from e2fl.report.from_runs import study_of
from e2fl.report.paper import BYTES, COLUMNS, PaperTable, PlusMinus
from e2fl.report.verdict import verdict
from e2fl.runs.folder import COMMAND, PAGE
from e2fl.runs.printed_tables import all_tables
from e2fl.runs.runner import Run


def finish(runs: Sequence[Run], out: Path, command: str = "") -> None:
    """Print the table, and write the page and, if one is given and none is stored, the command that made it."""
    if command and not (out / COMMAND).exists():
        write_text(out / COMMAND, command + "\n")
    print(all_tables([run.summary for run in runs]))
    _write_page(runs, out)


def finish_comparison(
    runs: Sequence[Run], out: Path, columns: Sequence[str], order: Sequence[str], plus_minus: PlusMinus
) -> None:
    """Print the table and the verdict, and write the page and the table for a paper.

    columns, order, plus_minus: as in `PaperTable`. With one seed and no columns or order, the printed table is that of
    a run.
    """
    study = study_of(runs)
    write_paper(PaperTable(study, columns, order, plus_minus), out)
    several = len(study.seeds) > 1
    first = (
        PaperTable(study, columns or (*COLUMNS, *BYTES), order, plus_minus).text()
        if several or columns or order
        else None
    )
    print(all_tables([run.summary for run in runs], first))
    if several:
        print(f"\n{verdict(study)}")
    _write_page(runs, out)


def write_paper(table: PaperTable, out: Path) -> None:
    """Write the table for a paper as LaTeX and CSV."""
    write_text(out / "paper.tex", table.latex())
    write_text(out / "paper.csv", table.csv())


def _write_page(runs: Sequence[Run], out: Path) -> None:
    print(f"\nwritten to {out}")
    try:
        report(runs, out / PAGE)
    except E2flError as error:  # the runs matter most, and they are on disk
        print(f"no page was written: {error}; fix it, then run: e2fl report {out}", file=sys.stderr)
    else:
        print(f"open {out / PAGE}")
