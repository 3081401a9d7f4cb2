"""Runs as variants of shipped experiments: experiments from overrides, and overrides from both.

Needs torch, unlike the pages: the overrides of a run are found when it is planned or collected.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from e2fl.config.experiment import UNSAVED, Experiment, base_of, with_seed
from e2fl.config.experiment import with_whole_numbers as whole
from e2fl.config.files import shipped
from e2fl.config.methods import changed_where_defined, general_and_particular
from e2fl.config.overrides import Change, flattened, typed
from e2fl.config.sections import completed, trimmed
from e2fl.errors import ConfigError
from e2fl.participation import PARTICIPATION
from paper.ledger import Json
from paper.studies import Planned, needed

UNSAID = ("name", "device", "data.dir", *UNSAVED)  # of this machine, not of the result
# Settings that came after the first runs of the ledger, which lack them: stored if not the default.
LATER = tuple(
    f"algorithm.{name}"
    for name in (
        *("vote", "own_vote", "served", "reading", "finetune_epochs", "trim"),
        "grouping.clustered",
    )
)
# Settings that may differ between runs of one method.
FREE = ("seed", "rounds", "evaluate_every", "evaluate_clients")


def planned_runs(
    study: str,
    changes: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
) -> list[tuple[Planned, Experiment]]:
    """Return the runs of a study with changes such as "rounds=20", and their experiments.

    A setting of an algorithm is changed in the methods that have it; it is an error if none has it.
    """
    asked = typed(changes)
    if any(change.section == "seed" for change in asked):
        raise ConfigError("a study has several seeds: name them with --seeds, not with --set seed")
    general, particular = general_and_particular(asked)
    planned = {item.label: item for item in needed(study, seeds, methods)}
    made = changed_where_defined(
        particular, {label: _experiment_of(item, general) for label, item in planned.items()}
    )
    overrides = {}
    for label, item in planned.items():
        made[label].build_participation()
        overrides[label] = overrides_of(made[label], item.experiment, item.method)
    runs: dict[object, tuple[Planned, Experiment]] = {}
    for item in needed(study, seeds, methods):
        experiment = with_seed(made[item.label], item.seed)
        run = replace(
            item,
            overrides=overrides[item.label],
            rounds=experiment.rounds,
            evaluate_every=experiment.evaluate_every,
            changed={change.name: change.value for change in asked},
        )
        runs[run.identity] = run, experiment
    return list(runs.values())


def _experiment_of(item: Planned, changes: Sequence[Change]) -> Experiment:
    own = item.overrides | {"rounds": item.rounds, "evaluate_every": item.evaluate_every}
    wanted = [*_changes_of(own), *changes]
    return base_of(item.experiment, wanted).variant(item.method, wanted)


def _changes_of(overrides: Mapping[str, Any]) -> list[Change]:
    return [Change(tuple(key.split(".")), value) for key, value in overrides.items()]


def overrides_of(
    experiment: Experiment, name: str, method: str, free: Iterable[str] = FREE
) -> Json:
    """Return the settings in which an experiment differs from a shipped one's variant."""
    before = _flat(completed(base_of(name, ()).variant(method)))
    after, told = _flat(completed(experiment)), _flat(trimmed(experiment))
    # A section of another name, or a new one, starts empty: what is not its default is set again.
    renamed = tuple(
        key.removesuffix("name")
        for key in after
        if key.endswith(".name") and after[key] != before.get(key)
    )
    return {
        key: value
        for key, value in sorted(after.items())
        if key not in (*UNSAID, *free)
        and ((key in told) if key.startswith(renamed) else before.get(key) != value)
    }


def settings_of(experiment: Experiment) -> Json:
    """Return all settings that decide a result, by their full names."""
    values = _flat(completed(experiment))
    policy = type(experiment.build_participation())
    names = {kind: name for name, kind in PARTICIPATION.items()}
    values["participation.name"] = names[policy]
    told = _flat(trimmed(experiment))
    left_out = (*UNSAID, *FREE, "measures", "update_limit", "examples_limit")
    return {
        key: value
        for key, value in sorted(values.items())
        if key not in left_out and (key in told or not key.startswith(LATER))
    }


def method_of(experiment: Experiment) -> str | None:
    """Return the variant of the shipped experiment that a run was made from; None if of none.

    Code that a file names is not imported to read the file.
    """
    if experiment.name not in shipped() or experiment.imports():
        return None
    base = base_of(experiment.name, ())
    titled = (name for name in base.variants if base.variant(name).label == experiment.label)
    method = next(titled, experiment.label)
    try:
        changes = _changes_of(overrides_of(experiment, experiment.name, method, ()))
        again = base_of(experiment.name, changes).variant(method, changes)
        again.build_algorithm()  # rejects settings that this version does not have
    except ConfigError:
        return None
    same = _flat(completed(again)) | dict.fromkeys(UNSAID)
    return method if same == _flat(completed(experiment)) | dict.fromkeys(UNSAID) else None


def command_of(experiment: Experiment, method: str) -> str:
    """Return the command that repeats a run, even if another command started it."""
    words = ["e2fl", "run", experiment.name, "--algorithm", method]
    for key, value in overrides_of(experiment, experiment.name, method, ()).items():
        text = json.dumps(value) if isinstance(value, bool | list) else str(value)
        words += ["--set", f"{key}={text}"]
    return shlex.join(words)


def _flat(experiment: Experiment) -> Json:
    values = flattened(replace(experiment, variants={}).to_dict())
    return {key: whole(value) for key, value in values.items() if value != {}}
