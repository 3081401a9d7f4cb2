"""Everything that can be named in a configuration, with its settings, for a reader.

`entries` reads the code; `python -m e2fl.config.listing` (or `make format`) stores them in
reference.jsonl, from which `e2fl list` prints without importing torch. A test compares both.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from e2fl.config.files import shipped
from e2fl.construct import did_you_mean, settings_of
from e2fl.errors import ConfigError

STORED = Path(__file__).with_name("reference.jsonl")


class Described(NamedTuple):
    """One setting, described for a reader."""

    name: str
    type: str
    default: str  # as TOML writes it; "required" or "unset" where there is none
    meaning: str


class RegistryEntry(NamedTuple):
    """One entry that a configuration can name."""

    kind: str  # algorithms, datasets, learner, ...
    name: str
    summary: str
    settings: tuple[Described, ...]


def stored() -> list[RegistryEntry]:
    """Return the entries of reference.jsonl."""
    lines = map(json.loads, STORED.read_text(encoding="utf-8").splitlines())
    return [
        RegistryEntry(kind, name, summary, tuple(Described(*setting) for setting in settings))
        for kind, name, summary, settings in lines
    ]


def listing(what: str | None) -> str:
    """Return all kinds with their names, the entries of one kind, or the settings of one entry."""
    known = stored()
    if what is None:
        kinds: dict[str, dict[str, str]] = {}
        for entry in known:
            if entry.kind != entry.name:
                kinds.setdefault(entry.kind, {})[entry.name] = entry.summary
        kinds["experiments"] = dict(shipped())
        parts = [f"{kind}:\n{_columns(list(about.items()))}" for kind, about in kinds.items()]
        end = "settings of any of these: e2fl list NAME; also: e2fl list learner, experiment"
        return "\n\n".join([*parts, end])
    if what == "experiments":
        return _columns(list(shipped().items()))
    told = [_told(entry) for entry in known if what in (entry.kind, entry.name)]
    if what in shipped():
        told.append(f"experiment {what}: {shipped()[what]}\n  print it: e2fl show {what}")
    if not told:
        names = {name for entry in known for name in (entry.kind, entry.name)} | {*shipped()}
        raise ConfigError(f"there is nothing called '{what}' to list{did_you_mean(what, names)}")
    return "\n\n".join(told)


def _told(entry: RegistryEntry) -> str:
    kind = "" if entry.kind == entry.name else f" ({entry.kind})"
    rows = [Described("setting", "type", "default", ""), *entry.settings]
    table = _columns(rows) if entry.settings else "  no settings"
    return f"{entry.name}{kind}: {entry.summary}\n{table}"


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return columns side by side, all aligned left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def entries() -> list[RegistryEntry]:
    """Return everything with settings, in a fixed order; imports all of it, and so torch."""
    from e2fl.config.build import COMMON, REGISTRIES
    from e2fl.config.experiment import Experiment
    from e2fl.data import VALIDATION_SHARE
    from e2fl.learning import Settings

    plural = {"datasets": "data", "participation": "participation"}
    kinds = "algorithms groupings datasets models participation ballots votes attacks runtimes"
    shared = {"models": COMMON, "datasets": {"validation_share": VALIDATION_SHARE}}
    found = [
        _entry("experiment", "experiment", Experiment, settings_of(Experiment)),
        _entry("learner", "learner", Settings, settings_of(Settings)),
    ]
    for kind in kinds.split():
        for name, made in REGISTRIES[plural.get(kind, kind.removesuffix("s"))].items():
            found.append(_entry(kind, name, made, {**settings_of(made), **shared.get(kind, {})}))
    return found


def _entry(kind: str, name: str, made: Any, settings: Any) -> RegistryEntry:
    from e2fl.config.sections import plain
    from e2fl.participation import PARTICIPATION, Uniform

    paragraph = " ".join(made.__doc__.split("\n\n")[0].split())
    summary = re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]
    if kind == "algorithms" and made.participation != Uniform():
        policy = {policy: name for name, policy in PARTICIPATION.items()}[type(made.participation)]
        summary += f" Its participation is {policy}, unless the experiment names another policy."
    described = []
    for setting_name, setting in settings.items():
        default = plain(setting.default)
        if isinstance(default, dict):  # a part of an algorithm
            shown = f'{{ name = "{default["name"]}" }}'
        else:
            shown = "unset" if default is None else json.dumps(default)
        shown = "required" if setting.required else shown
        described.append(Described(setting_name, _type(setting.type), shown, setting.help))
    return RegistryEntry(kind, name, summary, tuple(described))


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(map(json.dumps, get_args(kind)))
    if get_origin(kind) is dict:
        return "section"
    simple = isinstance(kind, type) and not get_args(kind)
    return kind.__name__ if simple else str(kind).replace("typing.", "")


if __name__ == "__main__":
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries()]
    STORED.write_text("\n".join([*lines, ""]), encoding="utf-8")
