"""Construction of objects from sections of a configuration; errors name the valid settings."""

import dataclasses
import difflib
import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from e2fl.errors import ConfigError

# Names of settings in other libraries, and ours.
SYNONYMS = {
    "lr": "learning_rate",
    "rate": "learning_rate",
    "bs": "batch_size",
    "batch": "batch_size",
    "wd": "weight_decay",
    "n_clients": "clients",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "n_rounds": "rounds",
    "local_epochs": "epochs",
    "num_epochs": "epochs",
    "random_state": "seed",
    "participants": "clients_per_round",
    "n_groups": "groups",
    "num_groups": "groups",
    "sparsity": "keep",
}


RENAMED = {"pull": "proximal"}  # old names of settings, and the new ones


def look_up(name: str, registry: Mapping[str, Any], what: str) -> Any:
    """Return the entry of this name, or import "module:name"."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # the user's own file may raise anything when it is imported
            raise ConfigError(f"{what} '{name}' cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(found):
            raise ConfigError(f"{what} '{name}' is not a class or function")
        return found
    if name not in registry:
        raise ConfigError(f"there is no {what} '{name}'{did_you_mean(name, registry)}")
    return registry[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: a hint, and all known names."""
    known = sorted(known)
    if not known:
        return "; there are none"
    last = name.rpartition(".")[2].lower()
    close = [other for other in known if other.rpartition(".")[2] == SYNONYMS.get(last, last)]
    close += difflib.get_close_matches(name, known, n=1)
    close += [other for other in known if difflib.get_close_matches(last, [other.rpartition(".")[2]])]
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} known: {', '.join(known)}"


def construct(make: Callable[..., Any], values: Mapping[str, Any], where: str, *given: Any) -> Any:
    """Call `make` with these settings, after checking their names and types."""
    known = fields_of(make)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known and RENAMED.get(name) in known:
            raise ConfigError(f"{where}: the setting '{name}' is now called '{RENAMED[name]}'")
        if name not in known:
            raise ConfigError(f"{where} has no setting '{name}'{did_you_mean(name, known)}")
        checked[name] = fit(value, known[name], f"{where}.{name}")
    try:
        return make(*given, **checked)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


@cache
def fields_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the settings of a class or function, and their types."""
    try:
        hints = get_type_hints(make)
        if dataclasses.is_dataclass(make):
            return {field.name: hints[field.name] for field in dataclasses.fields(make) if field.init}
        signature = inspect.signature(make)
    except (TypeError, ValueError, NameError) as error:  # a built-in function, or types that cannot be resolved
        raise ConfigError(f"the settings of {getattr(make, '__name__', make)} cannot be read: {error}") from error
    return {
        name: hints.get(name, Any)
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def fit(value: Any, kind: Any, where: str) -> Any:
    """Return the value if it is of this type; an integer is accepted as a float, a list as a tuple."""
    if kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise ConfigError(f"{where} must be one of {', '.join(map(str, inner))}, not {value!r}")
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        choices = [choice for choice in inner if choice is not type(None)]
        for choice in choices[:-1]:
            try:
                return fit(value, choice, where)
            except ConfigError:
                continue
        try:
            return fit(value, choices[-1], where)
        except ConfigError:
            raise ConfigError(f"{where} must be {' or '.join(map(_described, choices))}, not {value!r}") from None
    if origin is tuple and isinstance(value, list | tuple):
        if len(inner) == 2 and inner[1] is not Ellipsis and len(value) != 2:
            raise ConfigError(f"{where} needs two values, not {len(value)}")
        return tuple(fit(part, inner[0], where) for part in value)
    if origin is dict and isinstance(value, dict):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} must be {_described(kind)}, not {value!r}")


def _described(kind: Any) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return names.get(kind, "a list" if get_origin(kind) is tuple else f"a {getattr(kind, '__name__', kind)}")
