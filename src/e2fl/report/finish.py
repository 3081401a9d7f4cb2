"""The end of runs: the printed table, the page, and the table for a paper."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2fl.errors import E2flError
from e2fl.report.from_runs import study_of
from e2fl.report.page import write_report
from e2fl.report.sections import attack_table
from e2fl.report.study import Study
from e2fl.report.table import Table, known_measures, summary_table
from e2fl.report.verdict import verdict
from e2fl.runs.store import PAGE, Folder, StoredRun


def printed(study: Study, table: Table | None = None) -> str:
    """Return the text for a terminal: table, differences of protected groups, and verdict."""
    parts = [(table or summary_table(study)).text()]
    protected = [measure.key for measure in known_measures(study.methods, "protected")]
    if len(protected) > 1:  # the mean of clients is always there
        parts.append(summary_table(study, protected).text())
    attacked = attack_table(study)
    if attacked is not None:
        parts.append(f"{attacked.title}\n\n{attacked.text()}")
    if study.settings:
        parts.append(f"The methods differ in their settings. {'; '.join(study.settings)}.")
    parts += [f"Warning: {warning}" for warning in study.warnings]
    return "\n\n".join([*parts, verdict(study).text])


def finish(
    runs: Sequence[StoredRun],
    out: Path,
    command: str = "",
    notes: Sequence[str] = (),
    **options: Any,
) -> None:
    """Print the table and the verdict, and write the page; of a comparison, the table for a paper.

    command: the command that made the folder, if none is stored. notes: further warnings.
    options: of a comparison, as in `summary_table`.
    """
    Folder(out).write_command(command)
    study = study_of(runs, notes)
    table = summary_table(study, **options)
    if options:
        table.write(out, "paper")
    print(f"{printed(study, table)}\n\nwritten to {out}")
    try:
        write_report(study, out / PAGE)
    except E2flError as error:  # the runs matter most, and they are on disk
        print(f"no page was written: {error}; fix it, then run: e2fl report {out}", file=sys.stderr)
    else:
        print(f"open {out / PAGE}")
