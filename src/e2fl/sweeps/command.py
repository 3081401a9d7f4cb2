"""What `e2fl sweep` does: run the grid, print the tables, write sweep.csv and sweep.html."""

import sys
from collections.abc import Sequence
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.errors import E2flError
from e2fl.files import write_text
from e2fl.runs.progress import Progress
from e2fl.sweeps.grid import VALIDATION_SHARE, axes_of
from e2fl.sweeps.page import page
from e2fl.sweeps.results import Result
from e2fl.sweeps.running import sweep

TABLE, PAGE = "sweep.csv", "sweep.html"


def run_sweep(
    experiment: Experiment,
    grid: Sequence[str],
    seeds: Sequence[int],
    *,
    out: Path,
    pick: str | None,
    jobs: int,
    resume: bool,
    command: str,
) -> int:
    """Run or resume a sweep and show what it found; 1 if no point could be chosen."""
    axes = axes_of(grid)
    if not experiment.data.get("validation_share"):
        _say(
            f"the experiment sets no data.validation_share; {VALIDATION_SHARE} of each client's training rows are set "
            "aside to choose on"
        )
    result = sweep(
        experiment,
        axes,
        seeds,
        out=out,
        pick=pick,
        jobs=jobs,
        resume=resume,
        watcher=Progress(),
        tell=_say,
        command=command,
    )
    print(f"accuracy on validation data, in percent\n{result.table()}\n\n{result.choice()}")
    if result.chosen is not None:
        print(f"\nthe chosen point, trained on all training rows\n{result.final_table()}")
    _write(result, out)
    return 0 if result.chosen is not None else 1


def _write(result: Result, out: Path) -> None:
    write_text(out / TABLE, result.to_csv())
    print(f"\nwritten to {out / TABLE}")
    try:
        write_text(out / PAGE, page(result))
    except E2flError as error:  # the runs matter most, and they are on disk
        _say(f"no page was written: {error}; fix it, then run: e2fl resume {out}")
    else:
        print(f"open {out / PAGE}")


def _say(message: str) -> None:
    print(f"e2fl: {message}", file=sys.stderr)
