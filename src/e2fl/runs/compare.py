"""Several methods on one experiment: the same data, the same draws of clients, the same number of rounds."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2fl.config.experiment import NAMING, Experiment, with_seed
from e2fl.config.overrides import Change, ordered
from e2fl.construct import did_you_mean
from e2fl.data import FederatedData
from e2fl.errors import ConfigError
from e2fl.runs.batch import Task, run_all
from e2fl.runs.store import Folder, Run
from e2fl.runs.watcher import Watcher


def methods(
    experiment: Experiment, names: Sequence[str], changes: Sequence[Change] = ()
) -> dict[str, Experiment]:
    """Return the algorithms or variants of these names, with changes applied and checked before any of them runs.

    A setting of an algorithm, or of its grouping, is changed in those that have it. It is an error if none has it.
    """
    if not names:
        raise ConfigError("a comparison needs at least one algorithm")
    if len(set(names)) != len(names):
        raise ConfigError("a comparison must name every algorithm once")
    general, particular = general_and_particular(changes)
    return changed_where_defined(
        particular, {name: experiment.variant(name, general) for name in names}
    )


def general_and_particular(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that every method can take, and those of settings that only some algorithms have."""
    particular = [
        change for change in changes if change.section == "algorithm" and change.path not in NAMING
    ]
    return [change for change in changes if change not in particular], particular


def changed_where_defined(
    particular: Sequence[Change], methods: Mapping[str, Experiment]
) -> dict[str, Experiment]:
    """Return the methods, changed where they have a setting, and checked."""
    found = dict(methods)
    for change in ordered(particular):
        found = _changed_where_defined(change, found)
    for method in found.values():
        method.build_algorithm()
        method.build_settings()
    return found


def compare(
    methods: Mapping[str, Experiment],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    resume: bool = False,
    data: FederatedData | None = None,
    watcher: Watcher | None = None,
) -> list[Run]:
    """Run each method with each seed, in folders NAME-seedN of `out`.

    Finished runs are not run again. A run that fails does not stop the others, and is named at the
    end.
    """
    require_seeds(seeds, "a comparison")
    if out is not None:
        Folder(out).require_new(resume)
    tasks = [
        Task(
            with_seed(method, seed),
            None if out is None else out / f"{file_name(name)}-seed{seed}",
        )
        for seed in seeds
        for name, method in methods.items()
    ]
    return run_all(tasks, data=data, watcher=watcher).finished()


def require_seeds(seeds: Sequence[int], what: str) -> None:
    """Raise `ConfigError` unless there is a seed, and each is named once. what: runs with them, such as "a sweep"."""
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"{what} needs at least one seed, and must name every seed once")


def file_name(name: str) -> str:
    """Return the name of a method as part of a file name: a variant named "../x" must not leave its folder."""
    return re.sub(r"[:/\\]", ".", name)


def _changed_where_defined(
    change: Change, found: Mapping[str, Experiment]
) -> dict[str, Experiment]:
    """Change a setting of an algorithm in those that have it."""
    if change.path[1:] == ("label",) and len(found) > 1:
        raise ConfigError("algorithm.label would give all compared algorithms the same name")
    having = names_with(change, found)
    return {
        name: method.changed([change]) if name in having else method
        for name, method in found.items()
    }


def names_with(change: Change, found: Mapping[str, Experiment]) -> list[str]:
    """Return the methods that have the setting of a change, or raise an error if none has it."""
    if change.section != "algorithm" or change.path in NAMING:
        return list(found)
    known = {name: method.algorithm_settings() for name, method in found.items()}
    wanted = ".".join(change.path[1:] if change.path[1] == "grouping" else change.path[1:2])
    having = [name for name, settings in known.items() if wanted in settings]
    if not having:
        everything = {setting for settings in known.values() for setting in settings}
        labels = ", ".join(dict.fromkeys(method.label for method in found.values()))
        raise ConfigError(
            f"none of {labels} has a setting '{change.name}'{did_you_mean(wanted, everything)}"
        )
    return having
