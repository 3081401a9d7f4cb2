"""The methods of a comparison: algorithms or variants of one experiment, with changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from e2fl.attacks import ATTACKS
from e2fl.config.experiment import NAMING, Experiment
from e2fl.config.overrides import Change, ordered
from e2fl.construct import did_you_mean, fields_of, look_up
from e2fl.errors import ConfigError


def methods(
    experiment: Experiment, names: Sequence[str], changes: Sequence[Change] = ()
) -> dict[str, Experiment]:
    """Return the algorithms or variants of these names, changed and checked before any is run.

    A setting of an algorithm, or of its grouping, is changed in those that have it. It is an error
    if none has it.
    """
    if not names or len(set(names)) != len(names):
        raise ConfigError("a comparison needs at least one algorithm, and must name each once")
    general, particular = general_and_particular(changes)
    return changed_where_defined(
        particular, {name: experiment.variant(name, general) for name in names}
    )


def with_attacks(
    methods: Mapping[str, Experiment], attacks: Sequence[str]
) -> dict[str, Experiment]:
    """Return each method with everybody honest, and under each attack.

    All measure the same clients. Settings of the section `attack` are those of attacks that have
    them.
    """
    if len({"none", *attacks}) != len(attacks) + 1:
        raise ConfigError("--attack must name each attack once; `e2fl list attacks` names them")
    both: dict[str, Experiment] = {}
    for method, experiment in methods.items():
        settings = {key: value for key, value in experiment.attack.items() if key != "name"}
        known = {name: fields_of(look_up(name, ATTACKS, "attack")) for name in ("none", *attacks)}
        for key in settings:
            if not any(key in fields for fields in known.values()):
                raise ConfigError(f"none of the attacks has a setting 'attack.{key}'")
        for name, fields in known.items():
            own = {key: value for key, value in settings.items() if key in fields}
            key = method if name == "none" else f"{method}-{name}"
            both[key] = replace(experiment, attack={"name": name} | own)
            both[key].build_attack()
    return both


def general_and_particular(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that every method can take, and those that only some algorithms have."""
    particular = [
        change for change in changes if change.section == "algorithm" and change.path not in NAMING
    ]
    return [change for change in changes if change not in particular], particular


def changed_where_defined(
    particular: Sequence[Change], methods: Mapping[str, Experiment]
) -> dict[str, Experiment]:
    """Return the methods, changed where they have a setting, and checked."""
    changed = dict(methods)
    for change in ordered(particular):
        if change.path[1:] == ("label",) and len(changed) > 1:
            raise ConfigError("algorithm.label would give all compared algorithms the same name")
        for name in names_with(change, changed):
            changed[name] = changed[name].changed([change])
    for method in changed.values():
        method.build_algorithm()
        method.build_settings()
    return changed


def names_with(change: Change, methods: Mapping[str, Experiment]) -> list[str]:
    """Return the methods that have the setting of a change, or raise an error if none has it."""
    if change.section != "algorithm" or change.path in NAMING:
        return list(methods)
    known = {name: method.algorithm_settings() for name, method in methods.items()}
    wanted = ".".join(change.path[1:] if change.path[1] == "grouping" else change.path[1:2])
    having = [name for name, settings in known.items() if wanted in settings]
    if not having:
        everything = {setting for settings in known.values() for setting in settings}
        labels = ", ".join(dict.fromkeys(method.label for method in methods.values()))
        raise ConfigError(
            f"none of {labels} has a setting '{change.name}'{did_you_mean(wanted, everything)}"
        )
    return having
