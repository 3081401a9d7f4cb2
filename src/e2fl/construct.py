"""Construction of objects from sections of a configuration; errors name the valid settings."""

import dataclasses
import difflib
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from typing_extensions import Doc

from e2fl.errors import ConfigError, RunError

# Names of settings in other libraries, and ours.
_SYNONYMS = (
    "lr=learning_rate rate=learning_rate bs=batch_size batch=batch_size wd=weight_decay "
    "n_clients=clients num_clients=clients num_rounds=rounds n_rounds=rounds local_epochs=epochs "
    "num_epochs=epochs random_state=seed participants=clients_per_round n_groups=groups "
    "num_groups=groups sparsity=keep"
)
SYNONYMS = dict(pair.split("=") for pair in _SYNONYMS.split())


importable: frozenset[str] | None = None  # the only names that are imported; None: any


@contextmanager
def importing_only(names: Iterable[str]) -> Iterator[None]:
    """Let `look_up` import no "module:name" but these, and what is in this package."""
    global importable
    former, importable = importable, frozenset(names)
    try:
        yield
    finally:
        importable = former


def look_up(name: str, registry: Mapping[str, Any], what: str) -> Any:
    """Return the entry of this name, or import "module:name" if it is of the same kind."""
    if ":" not in name:
        if name not in registry:
            raise ConfigError(f"there is no {what} '{name}'{did_you_mean(name, registry)}")
        return registry[name]
    module, _, attribute = name.partition(":")
    if importable is not None and name not in importable and not module.startswith("e2fl."):
        raise RunError(
            f"{what} '{name}' is code that would be imported and run; if you trust {name}, "
            "pass --trust"
        )
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's own file may raise anything when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what} '{name}' cannot be imported: {reason}") from error
    if not _is_of_kind(imported, module, list(registry.values())):
        raise ConfigError(f"{what} '{name}' is not a class or function of the right kind")
    return imported


def _is_of_kind(imported: Any, module: str, known: list[Any]) -> bool:
    """Return whether an imported object can stand beside these entries of a registry.

    A class must have their common base in this package; where there are functions, it may be a
    network. A function must be defined in the module that is named, which is the user's own: not
    of this package, of torch or of Python.
    """
    classes = [entry for entry in known if isinstance(entry, type)]
    if inspect.isfunction(imported):
        foreign = module.partition(".")[0] in {"e2fl", "torch", *sys.stdlib_module_names}
        own = imported.__module__ == module and not foreign
        return own and any(inspect.isfunction(entry) for entry in known)
    if not isinstance(imported, type):
        return False
    if not classes:
        return any(base.__module__ == "torch.nn.modules.module" for base in imported.__mro__)
    shared = [base for base in classes[0].__mro__ if all(issubclass(c, base) for c in classes)]
    root = [base for base in shared if base.__module__.startswith("e2fl.")][-1]
    return issubclass(imported, root)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: a hint, and all known names."""
    known = sorted(known)
    if not known:
        return "; there are none"
    last = name.rpartition(".")[2].lower()
    ends = {other: other.rpartition(".")[2] for other in known}
    close = [other for other, end in ends.items() if end == SYNONYMS.get(last, last)]
    close += difflib.get_close_matches(name, known, n=1)
    close += [other for other, end in ends.items() if difflib.get_close_matches(last, [end])]
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} known: {', '.join(known)}"


def construct(make: Callable[..., Any], values: Mapping[str, Any], where: str, *given: Any) -> Any:
    """Call `make` with these settings, after checking their names and types."""
    known = fields_of(make)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{where} has no setting '{name}'{did_you_mean(name, known)}")
        checked[name] = fit(value, known[name], f"{where}.{name}")
    try:
        return make(*given, **checked)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of a class or function: its type, its default if it has one, and its help."""

    type: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING


@cache
def settings_of(make: Callable[..., Any]) -> Mapping[str, Setting]:
    """Return the settings of a class or function, in the order of their definition.

    They are the fields of a dataclass, or the keyword-only arguments of anything else. The help
    is the `Doc` in the annotation of a field; a field that a subclass declares again keeps it.
    """
    fields = dataclasses.is_dataclass(make)
    annotated: Any = make
    if isinstance(make, type) and not fields:
        annotated = make.__init__  # type: ignore[misc]  # of this class, not of a subclass
    try:
        owners = reversed(annotated.__mro__) if fields else (annotated,)
        helps = {
            name: part.documentation
            for owner in owners
            for name, kind in get_type_hints(owner, include_extras=True).items()
            for part in getattr(kind, "__metadata__", ())
            if isinstance(part, Doc)
        }
        hints, defaults = get_type_hints(annotated), _defaults(make)
    except (TypeError, ValueError, NameError) as error:  # built in, or unknown types
        name = getattr(make, "__name__", make)
        raise ConfigError(f"the settings of {name} cannot be read: {error}") from error
    return {
        name: Setting(hints.get(name, Any), default, helps.get(name, ""))
        for name, default in defaults.items()
    }


def fields_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the settings of a class or function, and their types."""
    return {name: setting.type for name, setting in settings_of(make).items()}


def _defaults(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the default of each setting, or MISSING."""
    if dataclasses.is_dataclass(make):
        return {
            field.name: field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
            for field in dataclasses.fields(make)
            if field.init
        }
    arguments = inspect.signature(make).parameters.values()
    return {
        argument.name: dataclasses.MISSING
        if argument.default is argument.empty
        else argument.default
        for argument in arguments
        if argument.kind is argument.KEYWORD_ONLY
    }


def fit(value: Any, kind: Any, where: str) -> Any:
    """Return the value if it is of this type; an integer may be a float, a list a tuple."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise ConfigError(f"{where} must be one of {', '.join(map(str, inner))}, not {value!r}")
        return value
    choices = inner if origin in (Union, types.UnionType) else (kind,)
    if value is None and type(None) in choices:
        return None
    choices = tuple(choice for choice in choices if choice is not type(None))
    if len(choices) > 1 or choices != (kind,):
        for choice in choices:
            with suppress(ConfigError):
                return fit(value, choice, where)
    elif origin is tuple and isinstance(value, list | tuple):
        if len(inner) == 2 and inner[1] is not Ellipsis and len(value) != 2:
            raise ConfigError(f"{where} needs two values, not {len(value)}")
        return tuple(fit(part, inner[0], where) for part in value)
    elif kind is float and type(value) is int:
        return float(value)
    elif kind is Any or (isinstance(value, origin or kind) and (kind, type(value)) != (int, bool)):
        return value
    described = " or ".join(map(_described, choices))
    raise ConfigError(f"{where} must be {described}, not {value!r}")


def _described(kind: Any) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    sections = {tuple: "a list", dict: "a section, such as { name = '...' }"}
    other = f"a {getattr(kind, '__name__', kind)}"
    return names.get(kind) or sections.get(get_origin(kind), other)
