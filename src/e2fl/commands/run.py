"""`e2fl run`: one experiment."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_config, add_watching, changes_of, folder_for, tell_imports


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser("run", help="run one experiment", description="Run one experiment.")
    add_config(parser)
    parser.add_argument("--algorithm", metavar="NAME", help="another algorithm, or a variant of the experiment")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to store the run; default: a new folder in runs/"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in --out DIR: interrupted, or with more rounds"
    )
    add_watching(parser)
    parser.set_defaults(act=_run)


def _run(options: argparse.Namespace) -> int:
    from e2fl.commands.watching import watching
    from e2fl.config.experiment import load
    from e2fl.report.finish import finish
    from e2fl.runs.runner import run_experiment

    experiment = load(options.config, changes_of(options), algorithm=options.algorithm)
    tell_imports([experiment], [*options.changes, str(options.algorithm)], options.config)
    with (
        folder_for(options, f"{experiment.name}-{experiment.label}") as out,
        watching(out, command=options.command, live=options.watch, track=options.track) as watcher,
    ):
        result = run_experiment(experiment, out=out, resume=options.resume, watcher=watcher)
    finish([result], out)
    return 0
