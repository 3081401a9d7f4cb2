"""The command `e2fl tune`: search, print the tables, write tune.csv, tuned.toml and tune.html."""

from collections.abc import Sequence
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.files import write_text
from e2fl.runs.progress import Progress
from e2fl.sweeps.command import say, say_share, write_page
from e2fl.tuning.page import page
from e2fl.tuning.search import FINAL, tune
from e2fl.tuning.space import space_of

TABLE, SETTINGS, PAGE = "tune.csv", "tuned.toml", "tune.html"


def run_tune(
    base: Experiment,
    methods: dict[str, Experiment],
    space: Sequence[str],
    seeds: Sequence[int],
    budget: int,
    *,
    out: Path,
    objectives: str | None,
    pick: str | None,
    prune: bool,
    resume: bool,
    command: str,
) -> int:
    """Run or resume a search and show the results; return 1 if no trial could be chosen.

    base: the experiment that the methods are variants of; tuned.toml is made of it.
    """
    say_share(next(iter(methods.values())))
    result = tune(
        methods,
        space_of(space),
        seeds,
        budget,
        out=out,
        objectives=objectives,
        pick=pick,
        prune=prune,
        resume=resume,
        watcher=Progress(),
        tell=say,
        command=command,
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
