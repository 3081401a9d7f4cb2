"""Several algorithms on one experiment: same data, same draws of clients, same number of rounds."""

from collections.abc import Sequence
from pathlib import Path

from e2fl.data import FederatedData
from e2fl.errors import ConfigError, RunError
from e2fl.experiment import Experiment, with_seed
from e2fl.history import Folder
from e2fl.runner import Run, Watcher, run_experiment


def compare(
    experiment: Experiment,
    names: Sequence[str],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    watcher: Watcher | None = None,
) -> list[Run]:
    """One run for each name and seed, in folders NAME-seedN of `out`; finished ones are not run again."""
    if not names or not seeds:
        raise ConfigError("a comparison needs at least one algorithm and one seed")
    if len(set(names)) != len(names) or len(set(seeds)) != len(seeds):
        raise ConfigError("a comparison names every algorithm and every seed once")
    if out is not None and Folder(out).exists() and not resume:
        raise RunError(f"{out} is there already; choose another with --out, or go on with it with --resume")
    # Mistakes in any of them are found before the first has run for an hour.
    planned = [(name, seed, with_seed(experiment.variant(name), seed)) for seed in seeds for name in names]
    for _, _, variant in planned[: len(names)]:
        variant.build_algorithm()
        variant.build_settings()
    runs: list[Run] = []
    shared: dict[str, FederatedData] = {}  # the last built only: seeds deal differently, algorithms do not
    for name, seed, variant in planned:
        folder = None if out is None else out / f"{name.replace(':', '.')}-seed{seed}"
        key = f"{seed} {variant.data}"
        if data is None and key not in shared:
            shared = {key: variant.build_data()}
        runs.append(run_experiment(variant, out=folder, resume=resume, data=data or shared[key], watcher=watcher))
    return runs
