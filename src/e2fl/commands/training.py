"""The commands that train: run, compare, resume, sweep and tune."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from e2fl import construct
from e2fl.commands import say, tell_imports
from e2fl.commands.parser import build_parser
from e2fl.config.experiment import Experiment, base_of, load
from e2fl.config.methods import methods, with_attacks
from e2fl.config.overrides import seed_numbers, typed
from e2fl.errors import ConfigError, E2flError, RunError, reason_of
from e2fl.files import read_text, write_text
from e2fl.metrics.measures import measure_of, own_measures
from e2fl.report.finish import finish
from e2fl.report.live import Live
from e2fl.runs import batch
from e2fl.runs.progress import Progress
from e2fl.runs.records import divergence_warnings
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import COMMAND, PAGE, Folder, StoredRun
from e2fl.runs.trackers import Tracker
from e2fl.runs.watcher import Watcher, Watchers

if TYPE_CHECKING:  # a search needs Optuna
    from e2fl.search.results import Result

CODE = re.compile(r"[\w./-]+:\w+")  # such as mine:MyAlgorithm
FAILED = 2  # the exit code if a run of a comparison failed
DIVERGED = 3  # the exit code of a command whose training diverged
TABLE, SETTINGS, SEARCH_PAGE = "trials.csv", "best.toml", "search.html"


def run(options: argparse.Namespace) -> int:
    """Run one experiment."""
    experiment = _single(options)
    with (
        folder_for(options, f"{experiment.name}-{experiment.label}") as out,
        watching(options, out) as watcher,
    ):
        result = run_experiment(experiment, out=out, resume=options.resume, watcher=watcher)
    finish([result], out)
    return _exit_code([result])


def compare(options: argparse.Namespace) -> int:
    """Run several algorithms on the same experiment."""
    base, several = _several(options)
    if options.attacks:
        several = with_attacks(several, options.attacks)
    own = own_measures({one.name: one.described for one in base.build.measures()})
    for column in options.columns:
        measure_of(column, own)  # a mistake is found before hours of training
    seeds = _seeds(options, next(iter(several.values())).seed)
    with folder_for(options, f"{base.name}-compare") as out, watching(options, out) as watcher:
        done = batch.compare(several, seeds, out=out, resume=options.resume, watcher=watcher)
    runs, failed = done.some(), [f"Failed: {reason}." for reason in done.reasons()]
    shown = {"columns": options.columns, "plus_minus": options.plus_minus, "views": options.views}
    finish(runs, out, notes=failed, **shown)
    return FAILED if failed else _exit_code(runs)


def resume(options: argparse.Namespace) -> int:
    """Continue a run by its config.toml, or anything else by the command that started it."""
    changes = [word for change in options.changes for word in ("--set", change)]
    more = [*changes, "--out", str(options.folder), "--resume"]
    again = build_parser().parse_args([*_words(options.folder)[1:], *more])
    again.command, again.watch, again.track = options.command, options.watch, options.track
    act: Callable[[argparse.Namespace], int] = again.act
    typed = [name for text in options.changes for name in CODE.findall(text)]
    with nullcontext() if options.trust else construct.importing_only(typed):
        return act(again)


def sweep(options: argparse.Namespace) -> int:
    """Try every point of a grid of settings."""
    base = replace(_single(options), variants={})
    return _search(options, base, {base.label: base}, f"{base.name}-{base.label}-sweep", "--grid")


def tune(options: argparse.Namespace) -> int:
    """Search settings for several algorithms, with the same budget for each."""
    base, several = _several(options)
    return _search(options, base, several, f"{base.name}-tune", "--space")


def _search(
    options: argparse.Namespace,
    base: Experiment,
    several: Mapping[str, Experiment],
    name: str,
    option: str,
) -> int:
    """Search, or resume a search, and show the results; return 1 if nothing could be chosen."""
    try:
        from e2fl.search.running import VALIDATION_SHARE, search
        from e2fl.search.space import space_of
    except ModuleNotFoundError as error:
        raise ConfigError("a search needs Optuna: pip install 'e2fl[tune]'") from error
    space, seeds = space_of(options.space, option), _seeds(options, base.seed)
    with folder_for(options, name) as out:
        if not base.data.get("validation_share"):
            share = f"{VALIDATION_SHARE} of each client's training rows are set aside to choose on"
            say(f"the experiment sets no data.validation_share; {share}")
        result = search(
            several,
            space,
            seeds,
            out=out,
            sampler="grid" if option == "--grid" else "tpe",
            trials=getattr(options, "trials", 1),
            objectives=options.objectives,
            pick=options.pick,
            resume=options.resume,
            watcher=Progress(),
            tell=say,
            command=options.command,
        )
        _show(result, base, out)
        return 0 if result.final else 1


def _show(result: "Result", base: Experiment, out: Path) -> None:
    """Print the results and write them as a table, a page and an experiment."""
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
        write_text(out / SEARCH_PAGE, page(result))
    except E2flError as error:  # the runs are on disk
        say(f"no page was written: {error}; fix it, then run: e2fl resume {out}")
    else:
        print(f"open {out / SEARCH_PAGE}")


def _single(options: argparse.Namespace) -> Experiment:
    """Return the experiment of --algorithm, with changes applied."""
    experiment = load(options.config, options.changes, algorithm=options.algorithm)
    tell_imports(options, [experiment], str(options.algorithm))
    return experiment


def _several(options: argparse.Namespace) -> tuple[Experiment, dict[str, Experiment]]:
    """Return the experiment, and those of --algorithms, with changes applied."""
    changes = typed(options.changes)
    base = base_of(options.config, changes)
    several = methods(base, options.algorithms, changes)
    tell_imports(options, list(several.values()), *options.algorithms)
    return base, several


def _seeds(options: argparse.Namespace, default: int) -> list[int]:
    return [default] if options.seeds is None else seed_numbers(options.seeds)


def _exit_code(runs: Sequence[StoredRun]) -> int:
    """Return 0, or `DIVERGED` if the models of a client of one of these runs diverged."""
    return DIVERGED if any(divergence_warnings(run.summary) for run in runs) else 0


def _words(folder: Path) -> list[str]:
    """Return the command that continues what is in this folder."""
    if (folder / "config.toml").is_file():
        return ["e2fl", "run", str(folder / "config.toml")]
    try:
        words = shlex.split(read_text(folder / COMMAND))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{folder} holds no run and no comparison: {COMMAND} cannot be read "
            f"({reason_of(error)})"
        ) from error
    if words[:1] != ["e2fl"] or words[1:2] not in (["compare"], ["sweep"], ["tune"]):
        raise RunError(f"{folder} was not made by e2fl run, compare, sweep or tune")
    return words


@contextmanager
def folder_for(options: argparse.Namespace, name: str) -> Iterator[Path]:
    """Yield the folder asked for, or a new one in runs/.

    Creating the folder claims its number: of several processes started at once, each gets its own.
    """
    if options.out is None and options.resume:
        raise ConfigError("--resume continues what is in --out DIR: name the folder")
    path, number = options.out, 1
    while path is None:
        try:
            Path("runs", f"{name}-{number}").mkdir(parents=True)
            path = Path("runs", f"{name}-{number}")
        except FileExistsError:
            number += 1
    options.folder = path
    try:
        yield path
    except BaseException:
        if options.out is None and not any(path.iterdir()):
            path.rmdir()
        raise


@contextmanager
def watching(options: argparse.Namespace, out: Path) -> Iterator[Watcher]:
    """Yield a watcher for progress, trackers and the live page, which rests if the run fails."""
    watchers: list[Watcher] = [Progress()]
    if not Folder(out).exists():  # a command that resumes a run does not repeat it
        watchers.append(CommandRecord(out, options.command))
    watchers += [Tracker(name, out) for name in dict.fromkeys(options.track)]
    if not options.watch:
        yield Watchers(*watchers)
        return
    page = Live(out, out / PAGE)
    say(f"open {out / PAGE} in a browser: it follows the training")
    try:
        yield Watchers(*watchers, page)
    except BaseException:
        page.stop()
        raise


class CommandRecord(Watcher):
    """Stores the command when a run begins, so that it can be repeated."""

    def __init__(self, folder: Path, command: str):
        self.folder, self.command = Folder(folder), command

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        self.folder.write_command(self.command)
