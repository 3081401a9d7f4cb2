"""The end of runs: the printed table, the page, and the table for a paper."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.errors import E2flError
from e2fl.files import write_text
from e2fl.metrics import COLUMNS
from e2fl.report import write_report
from e2fl.report.from_runs import study_of
from e2fl.report.study import Study
from e2fl.report.table import PlusMinus, Table, summary_table
from e2fl.report.verdict import verdict
from e2fl.runs.store import COMMAND, PAGE

if TYPE_CHECKING:
    from e2fl.runs.store import Run


def printed(study: Study, table: Table | None = None) -> str:
    """Return what a terminal shows: the table, differences of protected groups, and the verdict."""
    parts = [(table or summary_table(study)).text()]
    protected = [key for key in COLUMNS["protected"] if any(m.by_seed(key) for m in study.methods)]
    if len(protected) > 1:
        parts.append(summary_table(study, protected).text())
    if study.settings:
        parts.append(f"The methods differ in their settings. {'; '.join(study.settings)}.")
    parts += [f"Warning: {warning}" for warning in study.warnings]
    return "\n\n".join([*parts, verdict(study)])


def finish(runs: Sequence["Run"], out: Path, command: str = "") -> None:
    """Print the table, and write the page; store the command that made it, if none is stored."""
    if command and not (out / COMMAND).exists():
        write_text(out / COMMAND, command + "\n")
    study = study_of(runs)
    print(printed(study))
    _write_page(study, out)


def finish_comparison(
    runs: Sequence["Run"],
    out: Path,
    columns: Sequence[str] = (),
    order: Sequence[str] = (),
    plus_minus: PlusMinus = "std",
    *,
    views: bool = True,
) -> None:
    """Print the table and the verdict, and write the page and the table for a paper.

    columns, order, plus_minus, views: as in `summary_table`.
    """
    study = study_of(runs)
    default = "seeds" if len(study.seeds) > 1 else "printed"
    table = summary_table(study, columns, order, plus_minus, views=views, default=default)
    write_paper(table, out)
    print(printed(study, table))
    _write_page(study, out)


def write_paper(table: Table, out: Path) -> None:
    """Write the table for a paper as LaTeX and CSV."""
    write_text(out / "paper.tex", table.latex())
    write_text(out / "paper.csv", table.csv())


def _write_page(study: Study, out: Path) -> None:
    print(f"\nwritten to {out}")
    try:
        write_report(study, out / PAGE)
    except E2flError as error:  # the runs matter most, and they are on disk
        print(f"no page was written: {error}; fix it, then run: e2fl report {out}", file=sys.stderr)
    else:
        print(f"open {out / PAGE}")
