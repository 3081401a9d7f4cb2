"""The runs of all points of a grid, and the final test of the chosen point."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from e2fl.config.experiment import Experiment, with_seed
from e2fl.errors import ConfigError
from e2fl.runs.compare import require_seeds
from e2fl.runs.folder import Folder
from e2fl.runs.records import Json
from e2fl.runs.watcher import Watcher
from e2fl.sweeps.grid import Axis, Point, points_of, with_validation_share, without_validation_share
from e2fl.sweeps.results import NOTHING, Pick, Result, choose, require_measure
from e2fl.sweeps.tasks import InThisProcess, Task, in_processes, record, saved

RECORD = "sweep.json"


def sweep(
    base: Experiment,
    axes: Sequence[Axis],
    seeds: Sequence[int],
    *,
    out: Path,
    pick: str | None = None,
    jobs: int = 1,
    resume: bool = False,
    watcher: Watcher | None = None,
    tell: Callable[[str], None] = lambda message: None,
    command: str = "",
) -> Result:
    """Run every point with every seed, choose a point on validation data, and test it on test data.

    pick: the measure to choose by; default: the worst tenth of groups, or of clients without groups. jobs: runs at a
    time. resume: continue the sweep in `out`; finished runs are read. tell: called with progress of several jobs.
    command: stored in command.txt, for `e2fl resume`.
    """
    measure = None if pick is None else Pick.of(pick)
    require_seeds(seeds, "a sweep")
    if jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, not {jobs}")
    base = replace(base, variants={})
    validated, points = with_validation_share(base), points_of(axes)
    at = {point.number: validated.changed(point.changes) for point in points}
    for experiment in at.values():  # a mistake in any point is found before one runs
        experiment.build_algorithm()
        experiment.build_settings()
    Folder(out).require_new(resume)
    run = in_processes(jobs, tell) if jobs > 1 else InThisProcess(watcher or Watcher())
    with Folder(out).claimed():
        grid = {axis.name: [change.value for change in axis.changes] for axis in axes}
        content = {"grid": grid, "seeds": list(seeds), "pick": pick, "experiment": saved(validated)}
        record(out / RECORD, "sweep", content, command)
        run(
            [
                Task(f"point {point.number}, seed {seed}", with_seed(at[point.number], seed), _place(out, point, seed))
                for seed in seeds
                for point in points
            ]
        )
        found = {point: [_summary_or_nothing(_place(out, point, seed)) for seed in seeds] for point in points}
        measure = measure or Pick.default(found)
        require_measure(found, measure)
        chosen = choose(found, measure)
        final: list[Json] = []
        if chosen is not None:
            whole = without_validation_share(base).changed(chosen.changes)
            places = {seed: out / f"final-seed{seed}" for seed in seeds}
            run([Task(f"final test, seed {seed}", with_seed(whole, seed), places[seed]) for seed in seeds])
            final = [_summary(place) for place in places.values()]
    share = float(validated.data["validation_share"])
    return Result(base.name, base.label, tuple(axes), tuple(seeds), share, measure, found, chosen, final)


def _place(out: Path, point: Point, seed: int) -> Path:
    return out / f"point{point.number}-seed{seed}"


def _summary_or_nothing(folder: Path) -> Json:
    return _summary(folder) if Folder(folder).finished() else NOTHING


def _summary(folder: Path) -> Json:
    stored = Folder(folder)
    stored.verify()
    return stored.read_summary()
