"""The methods of a comparison: algorithms or variants of one experiment, with changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from e2fl.algorithms import ALGORITHMS, SECTION_REGISTRIES
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
    return changed_where_defined(changes, names, experiment.variant)


def with_attacks(
    methods: Mapping[str, Experiment], attacks: Sequence[str]
) -> dict[str, Experiment]:
    """Return each method with everybody honest, and under each attack.

    All measure the same clients. Settings of the section `attack` are those of attacks that have
    them.
    """
    if len({"none", *attacks}) != len(attacks) + 1:
        raise ConfigError("--attack must name each attack once; `e2fl list attacks` names them")
    fields = {name: fields_of(look_up(name, ATTACKS, "attack")) for name in ("none", *attacks)}
    both: dict[str, Experiment] = {}
    for method, experiment in methods.items():
        settings = {key: value for key, value in experiment.attack.items() if key != "name"}
        unknown = settings.keys() - {key for known in fields.values() for key in known}
        if unknown:
            raise ConfigError(f"none of the attacks has a setting 'attack.{min(unknown)}'")
        for name, known in fields.items():
            own = {key: value for key, value in settings.items() if key in known}
            attacked = replace(experiment, attack={"name": name} | own)
            attacked.build.attack()
            both[method if name == "none" else f"{method}-{name}"] = attacked
    return both


def changed_where_defined(
    changes: Sequence[Change],
    names: Iterable[str],
    make: Callable[[str, Sequence[Change]], Experiment],
) -> dict[str, Experiment]:
    """Return the methods, with settings of an algorithm changed in those that have them.

    make: returns the experiment of a method, with the changes that every method can take.
    """
    particular = [
        change for change in changes if change.section == "algorithm" and change.path not in NAMING
    ]
    general = [change for change in changes if change not in particular]
    changed = {name: make(name, general) for name in names}
    for change in ordered(particular):
        if change.path[1:] == ("label",) and len(changed) > 1:
            raise ConfigError("algorithm.label would give all compared algorithms the same name")
        for name in names_with(change, changed):
            changed[name] = changed[name].changed([change])
    for method in changed.values():
        method.build.algorithm()
        method.build.settings()
    return changed


def names_with(change: Change, methods: Mapping[str, Experiment]) -> list[str]:
    """Return the methods that have the setting of a change, or raise an error if none has it."""
    if change.section != "algorithm" or change.path in NAMING:
        return list(methods)
    known = {name: algorithm_settings(method) for name, method in methods.items()}
    wanted = ".".join(change.path[1:] if change.path[1] == "grouping" else change.path[1:2])
    having = [name for name, settings in known.items() if wanted in settings]
    if not having:
        everything = {setting for settings in known.values() for setting in settings}
        labels = ", ".join(dict.fromkeys(method.label for method in methods.values()))
        raise ConfigError(
            f"none of {labels} has a setting '{change.name}'{did_you_mean(wanted, everything)}"
        )
    return having


def algorithm_settings(experiment: Experiment) -> list[str]:
    """Return the settings of the algorithm and its parts: label, grouping.name."""
    names = ["label", *fields_of(look_up(experiment.algorithm["name"], ALGORITHMS, "algorithm"))]
    for part in [part for part in SECTION_REGISTRIES if part in names]:
        section = experiment.algorithm.get(part)
        name = section.get("name") if isinstance(section, dict) else None
        inner = fields_of(look_up(str(name), SECTION_REGISTRIES[part], part)) if name else ()
        names += [f"{part}.{setting}" for setting in ("name", *inner)]
    return names
