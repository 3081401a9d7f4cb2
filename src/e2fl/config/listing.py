"""What can be named in a configuration, with a line about each."""

import sys
from collections.abc import Mapping

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import shipped
from e2fl.construct import did_you_mean, fields_of
from e2fl.data import DATASETS
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.models import MODELS


def listing(what: str | None) -> str:
    """All kinds of things, or one kind with the settings each takes."""
    kinds: dict[str, Mapping[str, object]] = {
        "algorithms": ALGORITHMS,
        "groupings": GROUPINGS,
        "datasets": DATASETS,
        "models": MODELS,
        "experiments": shipped(),
    }
    if what is None:
        return "\n\n".join(f"{kind}:\n{_entries(entries, settings=False)}" for kind, entries in kinds.items())
    if what not in kinds:
        raise ConfigError(f"there is no list of '{what}'{did_you_mean(what, kinds)}")
    return _entries(kinds[what], settings=True)


def _entries(entries: Mapping[str, object], *, settings: bool) -> str:
    rows = []
    for name, entry in entries.items():
        if isinstance(entry, str):
            rows.append((f"  {name}", entry))
            continue
        rows.append((f"  {name}", _first_line(entry)))
        if settings and callable(entry):
            rows += [("", f"{key}: {_type(kind)}") for key, kind in fields_of(entry).items()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def _first_line(entry: object) -> str:
    own = entry.__doc__ or ""
    if own.startswith(f"{getattr(entry, '__name__', '')}("):  # the signature that dataclasses put there
        own = sys.modules[entry.__module__].__doc__ or ""
    return own.strip().splitlines()[0]


def _type(kind: object) -> str:
    return getattr(kind, "__name__", str(kind)) if isinstance(kind, type) else str(kind)
