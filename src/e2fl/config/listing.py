"""Everything that can be named in a configuration, with its settings, for a reader.

`entries` returns them as data, for `e2fl list NAME` and for the reference in the documentation.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from e2fl.algorithms import ALGORITHMS
from e2fl.attacks import ATTACKS
from e2fl.config.experiment import RUNTIMES, Experiment
from e2fl.config.files import shipped
from e2fl.config.sections import plain
from e2fl.construct import did_you_mean, settings_of
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.learning import Settings
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION, Uniform
from e2fl.rankings.ballots import BALLOTS
from e2fl.rankings.votes import VOTES


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


KINDS: dict[str, Mapping[str, Any]] = {
    "algorithms": ALGORITHMS,
    "groupings": GROUPINGS,
    "datasets": DATASETS,
    "models": MODELS,
    "participation": PARTICIPATION,
    "ballots": BALLOTS,
    "votes": VOTES,
    "attacks": ATTACKS,
    "runtimes": RUNTIMES,
}
KEEP = "fraction of edges kept in a subnetwork: above 0, at most 1"
SHARE = "of each client's training rows that is set aside for validation: at least 0, below 1"
SHARED = {  # settings that every model or data set has
    "models": (
        Described("keep", "float", "0.5", (), KEEP),
        Described("weight_scale", "float", "1.0", (), "frozen weights, times the Kaiming constant"),
    ),
    "datasets": (Described("validation_share", "float", "0.0", (), SHARE),),
}


def entries() -> list[Entry]:
    """Return everything with settings, in a fixed order: the whole reference."""
    alone = [_entry("experiment", "experiment", Experiment), _entry("learner", "learner", Settings)]
    named = [(kind, *item) for kind, registry in KINDS.items() for item in registry.items()]
    return [*alone, *(_entry(*item) for item in named)]


def listing(what: str | None) -> str:
    """Return all kinds with their names, the entries of one kind, or the settings of one entry."""
    if what is None:
        lists = {
            kind: {name: _summary(thing) for name, thing in registry.items()}
            for kind, registry in KINDS.items()
        } | {"experiments": shipped()}
        parts = [f"{kind}:\n{_columns(list(about.items()))}" for kind, about in lists.items()]
        end = "settings of any of these: e2fl list NAME; also: e2fl list learner, experiment"
        return "\n\n".join([*parts, end])
    if what == "experiments":
        return _columns(list(shipped().items()))
    known = entries()
    told = [_described(entry) for entry in known if what in (entry.kind, entry.name)]
    if what in shipped():
        told.append(f"experiment {what}: {shipped()[what]}\n  print it: e2fl show {what}")
    if not told:
        names = {*KINDS, *(entry.name for entry in known), *shipped()}
        raise ConfigError(f"there is nothing called '{what}' to list{did_you_mean(what, names)}")
    return "\n\n".join(told)


def _entry(kind: str, name: str, thing: Any) -> Entry:
    summary = _summary(thing)
    if kind == "algorithms" and thing.participation != Uniform():
        policy = {made: name for name, made in PARTICIPATION.items()}[type(thing.participation)]
        summary += f" Its participation is {policy}, unless the experiment names another policy."
    settings = [
        Described(
            setting_name,
            _type(setting.type),
            "required" if setting.required else _shown(setting.default),
            _choices(setting.type),
            setting.help,
        )
        for setting_name, setting in settings_of(thing).items()
    ]
    return Entry(kind, name, summary, (*settings, *SHARED.get(kind, ())))


def _described(entry: Entry) -> str:
    alone = entry.kind in ("learner", "experiment")
    head = f"{entry.name}{'' if alone else f' ({entry.kind})'}: {entry.summary}"
    rows = [("setting", "type", "default", "")]
    for setting in entry.settings:
        choices = f"one of {', '.join(setting.choices)}" if setting.choices else ""
        meaning = "; ".join(part for part in (choices, setting.meaning) if part)
        rows.append((setting.name, setting.type, setting.default, meaning))
    return f"{head}\n{_columns(rows) if entry.settings else '  no settings'}"


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return columns side by side, all aligned left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _summary(thing: Any) -> str:
    """Return the first sentence of a docstring; of the module where there is none of its own."""
    own = thing.__doc__ or ""
    if not own or own.startswith(f"{thing.__name__}("):  # the signature that dataclasses put there
        own = sys.modules[thing.__module__].__doc__ or ""
    paragraph = " ".join(own.strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def _type(kind: Any) -> str:
    if get_origin(kind) in (Literal, dict):
        return "str" if get_origin(kind) is Literal else "section"
    simple = isinstance(kind, type) and not get_args(kind)
    return kind.__name__ if simple else str(kind).replace("typing.", "")


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _shown(value: Any) -> str:
    """Return a default as TOML writes it."""
    held = plain(value)
    if isinstance(held, dict):  # a part of an algorithm
        return f'{{ name = "{held["name"]}" }}'
    return "unset" if held is None else json.dumps(held)
