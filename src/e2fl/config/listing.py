"""Everything that can be named in a configuration, with its settings: type, default, choices and meaning.

`entries` returns them as data, for `e2fl list NAME` and for the reference in the documentation.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import Experiment
from e2fl.config.files import shipped
from e2fl.construct import did_you_mean, settings_of
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.learning import Settings
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION, Uniform
from e2fl.rankings.ballots import BALLOTS

REQUIRED = "required"
SHARED = {  # settings that every model or data set has
    "models": (
        ("keep", "float", "0.5", (), "fraction of edges kept in a subnetwork: above 0, at most 1"),
        ("weight_scale", "float", "1.0", (), "frozen weights, times the Kaiming constant"),
    ),
    "datasets": (
        (
            "validation_share",
            "float",
            "0.0",
            (),
            "of each client's training rows that is set aside for validation: at least 0, below 1",
        ),
    ),
}


@dataclass(frozen=True)
class Described:
    """One setting, described for a reader."""

    name: str
    type: str
    default: str  # as TOML writes it; "required" or "unset" where there is none
    choices: tuple[str, ...] = ()
    meaning: str = ""


@dataclass(frozen=True)
class Entry:
    """One entry that a configuration can name."""

    kind: str  # algorithms, groupings, datasets, models, participation, learner or experiment
    name: str
    summary: str
    settings: tuple[Described, ...]


def kinds() -> dict[str, Mapping[str, Any]]:
    """Return everything that can be named, by kind."""
    return {
        "algorithms": ALGORITHMS,
        "groupings": GROUPINGS,
        "datasets": DATASETS,
        "models": MODELS,
        "participation": PARTICIPATION,
        "ballots": BALLOTS,
        "experiments": shipped(),
    }


def entries() -> list[Entry]:
    """Return everything with settings, in a fixed order: the whole reference."""
    found = [_entry("experiment", "experiment", Experiment), _entry("learner", "learner", Settings)]
    for kind, registry in kinds().items():
        if kind != "experiments":
            found += [_entry(kind, name, thing) for name, thing in registry.items()]
    return found


def listing(what: str | None) -> str:
    """Return all kinds with their names, the entries of one kind with their settings, or the settings of one entry."""
    known = kinds()
    if what is None:
        parts = [f"{kind}:\n{_names(registry)}" for kind, registry in known.items()]
        return "\n\n".join(
            [
                *parts,
                "settings of any of these: e2fl list NAME; also: e2fl list learner, experiment",
            ]
        )
    if what == "experiments":
        return _names(known[what])
    if what in known:
        return "\n\n".join(_described(entry) for entry in entries() if entry.kind == what)
    found = [_described(entry) for entry in entries() if entry.name == what]
    if what in shipped():
        found.append(f"experiment {what}: {shipped()[what]}\n  print it: e2fl show {what}")
    if not found:
        names = {*known, *(entry.name for entry in entries()), *shipped()}
        raise ConfigError(f"there is nothing called '{what}' to list{did_you_mean(what, names)}")
    return "\n\n".join(found)


def _settings(make: Any) -> tuple[Described, ...]:
    """Return every setting of a class or a function, in the order of its definition."""
    return tuple(
        Described(
            name,
            _type(setting.type),
            REQUIRED if setting.required else _shown(setting.default),
            _choices(setting.type),
            setting.help,
        )
        for name, setting in settings_of(make).items()
    )


def _entry(kind: str, name: str, thing: Any) -> Entry:
    summary = _first_line(thing)
    if kind == "algorithms" and thing.participation != Uniform():
        policy = {made: name for name, made in PARTICIPATION.items()}[type(thing.participation)]
        summary += f" Its participation is {policy}, unless the experiment names another policy."
    shared = tuple(Described(*setting) for setting in SHARED.get(kind, ()))
    return Entry(kind, name, summary, _settings(thing) + shared)


def _described(entry: Entry) -> str:
    title = (
        entry.name if entry.kind in ("learner", "experiment") else f"{entry.name} ({entry.kind})"
    )
    head = f"{title}: {entry.summary}"
    if not entry.settings:
        return f"{head}\n  no settings"
    rows = [
        ("  setting", "type", "default"),
        *((f"  {s.name}", s.type, s.default) for s in entry.settings),
    ]
    lines = _left(rows).splitlines()
    for place, setting in enumerate(entry.settings, start=1):
        told = setting.meaning
        if setting.choices:
            told = f"one of {', '.join(setting.choices)}" + (f"; {told}" if told else "")
        lines[place] += f"  {told}" if told else ""
    return "\n".join([head, *(line.rstrip() for line in lines)])


def _left(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _names(registry: Mapping[str, Any]) -> str:
    rows = [
        (f"  {name}", thing if isinstance(thing, str) else _first_line(thing))
        for name, thing in registry.items()
    ]
    return "\n".join(line.rstrip() for line in _left(rows).splitlines())


def _first_line(thing: Any) -> str:
    own = thing.__doc__ or ""
    if not own or own.startswith(
        f"{getattr(thing, '__name__', '')}("
    ):  # the signature that dataclasses put there
        own = sys.modules[thing.__module__].__doc__ or ""
    return own.strip().splitlines()[0]


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "str"
    if get_origin(kind) is dict:
        return "section"
    return (
        kind.__name__
        if isinstance(kind, type) and not get_args(kind)
        else str(kind).replace("typing.", "")
    )


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _shown(value: Any) -> str:
    """Return a default as TOML writes it."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]"
    for name, kind in (*GROUPINGS.items(), *BALLOTS.items()):
        if type(value) is kind:
            return f'{{ name = "{name}" }}'
    return f'"{value}"' if isinstance(value, str) else str(value)
