"""`e2fl sweep`: a grid of settings."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_config, folder_for, seeds_of, tell_imports


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
    from e2fl.config.experiment import load
    from e2fl.sweeps.command import run_sweep

    experiment = load(options.config, options.changes, algorithm=options.algorithm)
    tell_imports([experiment], [*options.changes, *options.grid, str(options.algorithm)], options.config)
    seeds = seeds_of(options.seeds, experiment.seed)
    with folder_for(options, f"{experiment.name}-{experiment.label}-sweep") as out:
        return run_sweep(
            experiment,
            options.grid,
            seeds,
            out=out,
            pick=options.pick,
            jobs=options.jobs,
            resume=options.resume,
            command=options.command,
        )
