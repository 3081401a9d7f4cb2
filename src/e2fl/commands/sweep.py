"""`e2fl sweep`: a grid of settings."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl.commands.arguments import Commands, add_config, folder_for, seeds_of, tell_imports
from e2fl.errors import E2flError

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment

TABLE, PAGE = "sweep.csv", "sweep.html"


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "sweep",
        help="run a grid of settings and choose the best on validation data",
        description="Run every point of a grid of settings, choose the best on validation data, and test it once.",
    )
    add_config(parser)
    parser.add_argument(
        "--grid",
        action="append",
        required=True,
        metavar="KEY=A,B,...",
        help="a setting and the values to try, such as learner.learning_rate=0.05,0.1; may be repeated",
    )
    parser.add_argument("--algorithm", metavar="NAME", help="another algorithm, or a variant of the experiment")
    parser.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds to repeat with; default: one")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of runs in parallel, each in its own process; default: 1",
    )
    parser.add_argument(
        "--pick",
        metavar="MEASURE",
        help="the validation measure to choose by, such as user/mean; default: group/worst10, or user/worst10 where "
        "the data declares no groups",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to store it; default: a new folder in runs/")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted sweep in --out DIR")
    parser.set_defaults(act=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    """Run or resume a sweep and show the results; return 1 if no point could be chosen."""
    from e2fl.config.experiment import load
    from e2fl.files import write_text
    from e2fl.runs.progress import Progress
    from e2fl.sweeps.grid import axes_of
    from e2fl.sweeps.page import page
    from e2fl.sweeps.running import sweep

    experiment = load(options.config, options.changes, algorithm=options.algorithm)
    tell_imports([experiment], [*options.changes, *options.grid, str(options.algorithm)], options.config)
    seeds = seeds_of(options.seeds, experiment.seed)
    with folder_for(options, f"{experiment.name}-{experiment.label}-sweep") as out:
        axes = axes_of(options.grid)
        say_share(experiment)
        result = sweep(
            experiment,
            axes,
            seeds,
            out=out,
            pick=options.pick,
            jobs=options.jobs,
            resume=options.resume,
            watcher=Progress(),
            tell=say,
            command=options.command,
        )
        print(f"accuracy on validation data, in percent\n{result.table()}\n\n{result.choice()}")
        if result.chosen is not None:
            print(f"\nthe chosen point, trained on all training rows\n{result.final_table()}")
        write_text(out / TABLE, result.to_csv())
        print(f"\nwritten to {out / TABLE}")
        write_page(out, PAGE, lambda: page(result))
        return 0 if result.chosen is not None else 1


def say_share(experiment: "Experiment") -> None:
    """Print that validation rows are set aside if the experiment sets no share."""
    from e2fl.sweeps.grid import VALIDATION_SHARE

    if not experiment.data.get("validation_share"):
        say(
            f"the experiment sets no data.validation_share; {VALIDATION_SHARE} of each client's training rows are set "
            "aside to choose on"
        )


def write_page(out: Path, name: str, make: Callable[[], str]) -> None:
    """Write a page; an error is only reported, since the runs are on disk."""
    from e2fl.files import write_text

    try:
        write_text(out / name, make())
    except E2flError as error:
        say(f"no page was written: {error}; fix it, then run: e2fl resume {out}")
    else:
        print(f"open {out / name}")


def say(message: str) -> None:
    print(f"e2fl: {message}", file=sys.stderr)
