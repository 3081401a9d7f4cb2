"""The command `e2fl sweep`: run the grid, print the tables, write sweep.csv and sweep.html."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.errors import E2flError
from e2fl.files import write_text
from e2fl.runs.progress import Progress
from e2fl.sweeps.grid import VALIDATION_SHARE, axes_of
from e2fl.sweeps.page import page
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
    """Run or resume a sweep and show the results; return 1 if no point could be chosen."""
    axes = axes_of(grid)
    say_share(experiment)
    result = sweep(
        experiment,
        axes,
        seeds,
        out=out,
        pick=pick,
        jobs=jobs,
        resume=resume,
        watcher=Progress(),
        tell=say,
        command=command,
    )
    print(f"accuracy on validation data, in percent\n{result.table()}\n\n{result.choice()}")
    if result.chosen is not None:
        print(f"\nthe chosen point, trained on all training rows\n{result.final_table()}")
    write_text(out / TABLE, result.to_csv())
    print(f"\nwritten to {out / TABLE}")
    write_page(out, PAGE, lambda: page(result))
    return 0 if result.chosen is not None else 1


def say_share(experiment: Experiment) -> None:
    """Print that validation rows are set aside if the experiment sets no share."""
    if not experiment.data.get("validation_share"):
        say(
            f"the experiment sets no data.validation_share; {VALIDATION_SHARE} of each client's training rows are set "
            "aside to choose on"
        )


def write_page(out: Path, name: str, make: Callable[[], str]) -> None:
    """Write a page; an error is only reported, since the runs are on disk."""
    try:
        write_text(out / name, make())
    except E2flError as error:
        say(f"no page was written: {error}; fix it, then run: e2fl resume {out}")
    else:
        print(f"open {out / name}")


def say(message: str) -> None:
    print(f"e2fl: {message}", file=sys.stderr)
