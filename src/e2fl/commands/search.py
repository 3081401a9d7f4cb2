"""`e2fl sweep` and `e2fl tune`: settings searched on a grid, or with Optuna's TPE sampler."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2fl.commands.options import folder_for, methods_of, say, seeds_of, tell_imports
from e2fl.errors import ConfigError, E2flError

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment
    from e2fl.search.results import Result

TABLE, SETTINGS, PAGE = "trials.csv", "best.toml", "search.html"


def sweep(options: argparse.Namespace) -> int:
    """Try every point of a grid of settings."""
    from e2fl.config.experiment import load

    base = load(options.config, options.changes, algorithm=options.algorithm)
    tell_imports([base], [*options.changes, *options.space, str(options.algorithm)], options.config)
    base = replace(base, variants={})
    name = f"{base.name}-{base.label}-sweep"
    return _search(options, base, {base.label: base}, name, sampler="grid")


def tune(options: argparse.Namespace) -> int:
    """Search settings for several algorithms, with the same budget for each."""
    base, methods = methods_of(options, options.changes, options.space)
    return _search(options, base, methods, f"{base.name}-tune", trials=options.trials)


def _search(
    options: argparse.Namespace,
    base: "Experiment",
    methods: "dict[str, Experiment]",
    name: str,
    **settings: Any,
) -> int:
    """Search, or resume a search, and show the results; return 1 if nothing could be chosen."""
    try:
        from e2fl.search.running import VALIDATION_SHARE, Options, search
    except ModuleNotFoundError as error:
        raise ConfigError("a search needs Optuna: pip install 'e2fl[tune]'") from error
    from e2fl.runs.progress import Progress
    from e2fl.search.space import space_of

    chosen = Options(objectives=options.objectives, pick=options.pick, **settings)
    space = space_of(options.space, "--grid" if chosen.sampler == "grid" else "--space")
    with folder_for(options, name) as out:
        if not base.data.get("validation_share"):
            share = f"{VALIDATION_SHARE} of each client's training rows are set aside to choose on"
            say(f"the experiment sets no data.validation_share; {share}")
        result = search(
            methods,
            space,
            seeds_of(options.seeds, base.seed),
            chosen,
            out=out,
            resume=options.resume,
            watcher=Progress(),
            tell=say,
            command=options.command,
        )
        _show(result, base, out)
        return 0 if result.final else 1


def _show(result: "Result", base: "Experiment", out: Path) -> None:
    """Print the results and write them as a table, a page and an experiment."""
    from e2fl.files import write_text
    from e2fl.search.page import page

    grid = result.sampler == "grid"
    usual = [path for path in result.measures if path.endswith(("/mean", "/worst10"))]
    paths = dict.fromkeys([*(usual if grid else ()), *(one.key for one in result.objectives)])
    print(f"on validation data\n{result.table(list(paths), chosen=not grid).text()}\n")
    print("\n".join(result.choices()))
    write_text(out / TABLE, result.table().csv())
    written = [out / TABLE]
    if result.final:
        print(f"\ntrained on all training rows, on test data\n{result.final_table().text()}")
        write_text(out / SETTINGS, result.to_toml(base))
        written += [out / SETTINGS, out / "final"]
    print(f"\nwritten to {', '.join(map(str, written))}")
    try:
        write_text(out / PAGE, page(result))
    except E2flError as error:  # the runs are on disk
        say(f"no page was written: {error}; fix it, then run: e2fl resume {out}")
    else:
        print(f"open {out / PAGE}")
