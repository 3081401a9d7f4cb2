"""`e2fl tune`: settings searched with Optuna, the same budget for every algorithm."""

import argparse
from pathlib import Path

from e2fl.commands.arguments import Commands, add_config, folder_for, methods_of, seeds_of
from e2fl.commands.sweep import say, say_share, write_page

TABLE, SETTINGS, PAGE = "tune.csv", "tuned.toml", "tune.html"


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "tune",
        help="search settings for several algorithms, with the same budget for each",
        description="Search settings for several algorithms with the same budget, on validation data, with several "
        "objectives; show the Pareto front, and test the chosen settings once. Needs Optuna: pip install 'e2fl[tune]'.",
    )
    add_config(parser)
    parser.add_argument("--algorithms", required=True, metavar="A,B,...", help="algorithms or variants to tune")
    parser.add_argument(
        "--space",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help="a setting and what to try: learner.learning_rate=0.01..1:log (logarithmic), learner.epochs=1..5 or "
        "model.keep=0.3,0.5; may be repeated; settings of an algorithm are tried in those that have them",
    )
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="trials of each algorithm; default: 20")
    parser.add_argument("--seeds", default=None, metavar="0,1,...", help="seeds of every trial; default: one")
    parser.add_argument(
        "--objectives",
        metavar="A,B,...",
        help="what to improve, on validation data: measures such as user/mean, and bytes; default: "
        "group/mean,group/worst10,bytes, or user/... where the data declares no groups",
    )
    parser.add_argument(
        "--pick", metavar="OBJECTIVE", help="the objective by which settings are chosen; default: the worst tenth"
    )
    parser.add_argument("--no-prune", action="store_true", help="run every trial to its last round")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to store it; default: a new folder in runs/")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted search in --out DIR")
    parser.set_defaults(act=_tune)


def _tune(options: argparse.Namespace) -> int:
    """Run or resume a search and show the results; return 1 if no trial could be chosen."""
    from e2fl.files import write_text
    from e2fl.runs.progress import Progress
    from e2fl.tuning.page import page
    from e2fl.tuning.search import FINAL, require_optuna, tune
    from e2fl.tuning.space import space_of

    require_optuna()
    base, methods = methods_of(options, options.changes, options.space)
    seeds = seeds_of(options.seeds, base.seed)
    with folder_for(options, f"{base.name}-tune") as out:
        say_share(next(iter(methods.values())))
        result = tune(
            methods,
            space_of(options.space),
            seeds,
            options.trials,
            out=out,
            objectives=options.objectives,
            pick=options.pick,
            prune=not options.no_prune,
            resume=options.resume,
            watcher=Progress(),
            tell=say,
            command=options.command,
        )
        print(f"the chosen settings, on validation data\n{result.chosen_table()}")
        write_text(out / TABLE, result.to_csv())
        written = [out / TABLE]
        if result.final:
            print(f"\nthe chosen settings, trained on all training rows\n{result.final_table()}")
            write_text(out / SETTINGS, result.to_toml(base))
            written += [out / SETTINGS, out / FINAL]
        print(f"\nwritten to {', '.join(map(str, written))}")
        write_page(out, PAGE, lambda: page(result))
        return 0 if result.final else 1
