"""Everything that can be named in a configuration, with its settings: type, default, choices and meaning.

`settings_of` returns settings as data, for `e2fl list NAME` and for the reference in the documentation. The meaning of
a setting is the comment beside its field in the source.
"""

import ast
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from e2fl.algorithms import ALGORITHMS
from e2fl.ballots import BALLOTS
from e2fl.config.completion import raw_defaults
from e2fl.config.experiment import Experiment, shipped
from e2fl.construct import did_you_mean, fields_of
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.learning import Settings
from e2fl.models import MODELS
from e2fl.participation import PARTICIPATION, Uniform

REQUIRED = "required"


@dataclass(frozen=True)
class Setting:
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
    settings: tuple[Setting, ...]


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
        return "\n\n".join([*parts, "settings of any of these: e2fl list NAME; also: e2fl list learner, experiment"])
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


def settings_of(make: Any) -> tuple[Setting, ...]:
    """Return every setting of a class or a function, in the order of its definition."""
    meanings, defaults = _meanings(make), {name: _shown(value) for name, value in raw_defaults(make).items()}
    return tuple(
        Setting(name, _type(kind), defaults.get(name, REQUIRED), _choices(kind), meanings.get(name, ""))
        for name, kind in fields_of(make).items()
    )


def _entry(kind: str, name: str, thing: Any) -> Entry:
    settings, summary = settings_of(thing), _first_line(thing)
    if kind == "algorithms" and thing.participation != Uniform():
        policy = next(name for name, kind in PARTICIPATION.items() if type(thing.participation) is kind)
        summary += f" Its participation is {policy}, unless the experiment names another policy."
    if kind == "models":
        settings += (
            Setting("keep", "float", "0.5", (), "fraction of edges kept in a subnetwork: above 0, at most 1"),
            Setting("weight_scale", "float", "1.0", (), "frozen weights, times the Kaiming constant"),
        )
    if kind == "datasets":
        meaning = "of each client's training rows that is set aside for validation: at least 0, below 1"
        settings += (Setting("validation_share", "float", "0.0", (), meaning),)
    return Entry(kind, name, summary, settings)


def _described(entry: Entry) -> str:
    title = entry.name if entry.kind in ("learner", "experiment") else f"{entry.name} ({entry.kind})"
    head = f"{title}: {entry.summary}"
    if not entry.settings:
        return f"{head}\n  no settings"
    rows = [("  setting", "type", "default"), *((f"  {s.name}", s.type, s.default) for s in entry.settings)]
    lines = _left(rows).splitlines()
    for place, setting in enumerate(entry.settings, start=1):
        told = setting.meaning
        if setting.choices:
            told = f"one of {', '.join(setting.choices)}" + (f"; {told}" if told else "")
        lines[place] += f"  {told}" if told else ""
    return "\n".join([head, *(line.rstrip() for line in lines)])


def _left(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _names(registry: Mapping[str, Any]) -> str:
    rows = [(f"  {name}", thing if isinstance(thing, str) else _first_line(thing)) for name, thing in registry.items()]
    return "\n".join(line.rstrip() for line in _left(rows).splitlines())


def _first_line(thing: Any) -> str:
    own = thing.__doc__ or ""
    if not own or own.startswith(f"{getattr(thing, '__name__', '')}("):  # the signature that dataclasses put there
        own = sys.modules[thing.__module__].__doc__ or ""
    return own.strip().splitlines()[0]


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "str"
    if get_origin(kind) is dict:
        return "section"
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


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


def _meanings(make: Any) -> dict[str, str]:
    """Return the comments beside the fields of a class and its bases, or beside the arguments of a function."""
    found: dict[str, str] = {}
    for thing in reversed(make.__mro__) if isinstance(make, type) else (make,):
        with suppress(OSError, TypeError, SyntaxError, tokenize.TokenError):  # built in, or made in an interpreter
            found |= _comments(thing)
    return found


@cache
def _comments(thing: Any) -> dict[str, str]:
    """Return the comment that ends the definition of each field or argument, with its following lines."""
    source = textwrap.dedent(inspect.getsource(thing))
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (top,) = ast.parse(source).body[:1]
    if isinstance(top, ast.ClassDef):
        fields = [node for node in top.body if isinstance(node, ast.AnnAssign)]
        ends = {node.target.id: node.end_lineno for node in fields if isinstance(node.target, ast.Name)}
    elif isinstance(top, ast.FunctionDef):
        ends = {argument.arg: argument.end_lineno for argument in top.args.kwonlyargs}
    else:
        return {}
    found = {}
    for name, end in ends.items():
        words, line = [comments[end]] if end in comments else [], (end or 0) + 1
        while words and line in comments and lines[line - 1].lstrip().startswith("#"):
            words.append(comments[line])
            line += 1
        if words:
            found[name] = " ".join(words)
    return found
