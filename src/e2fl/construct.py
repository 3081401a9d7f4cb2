"""Construction of objects from sections of a configuration; errors name the valid settings."""

import dataclasses
import difflib
import importlib
import inspect
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import Doc

from e2fl.errors import ConfigError, RunError, require_setting

Made = TypeVar("Made")

# Names of settings in other libraries, and ours.
SYNONYMS = {"lr": "learning_rate", "bs": "batch_size", "wd": "weight_decay", "random_state": "seed"}

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
    """Return the entry of this name, or import "module:name" if it is of the same kind.

    The module may be a file, as in "mine.py:name", and in a folder, as in "code/mine.py:name".
    """
    if ":" not in name:
        if name not in registry:
            raise ConfigError(f"there is no {what} '{name}'{did_you_mean(name, registry)}")
        return registry[name]
    if importable is not None and name not in importable and not is_shipped(name):
        raise RunError(
            f"{what} '{name}' is code that would be imported and run; if you trust {name}, "
            "pass --trust"
        )
    place, _, attribute = name.rpartition(":")
    try:
        module = _imported(place)
        imported = getattr(module, attribute)
    except Exception as error:  # the user's own file may raise anything when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what} '{name}' cannot be imported: {reason}") from error
    if not _is_of_kind(imported, module.__name__, list(registry.values())):
        raise ConfigError(f"{what} '{name}' is not a class or function of the right kind")
    return imported


def is_shipped(name: str) -> bool:
    """Return whether a name such as "module:name" is in this package."""
    return re.fullmatch(r"e2fl(\.\w+)+:\w+", name) is not None


def _imported(place: str) -> types.ModuleType:
    """Import a module by its name, or by its file; its folder is searched after everything else."""
    path = Path(place.removesuffix(".py"))
    folder = path.parent.resolve()
    if not folder.is_dir() or place == path.name:  # of another machine, or by its name
        return importlib.import_module(path.name)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    module = importlib.import_module(path.name)
    if folder not in Path(module.__file__ or "/").resolve().parents:
        raise ImportError(f"{path.name} is also the name of {module.__file__}; rename yours")
    return module


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


def construct(
    make: Callable[..., Made], values: Mapping[str, Any], where: str, *given: Any
) -> Made:
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
class Limits:
    """The numbers that a setting may have, beside its help: `Annotated[float, Limits(least=0)]`.

    Numbers that are not finite are never allowed.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def allow(self, value: float) -> bool:
        """Return whether a number is within the limits."""
        inside = self.least <= value <= self.most and self.above < value < self.below
        return inside and math.isfinite(value)

    def __str__(self) -> str:
        names = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
        limits = [(words, getattr(self, name)) for name, words in names.items()]
        words = [f"{words} {limit}" for words, limit in limits if math.isfinite(limit)]
        return " and ".join(words) or "a finite number"


class Checked:
    """A base of dataclasses whose settings are checked against their limits and choices."""

    section: ClassVar[str]  # where a configuration has these settings

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, setting in settings_of(kind).items():
            value = getattr(self, name)
            if get_origin(setting.type) is Literal:
                fit(value, setting.type, f"{self.section}.{name}")
            numbers = value if isinstance(value, tuple) else (value,)
            limits = setting.limits
            allowed = limits is None or all(n is None or limits.allow(n) for n in numbers)
            self.require(allowed, name, str(limits))

    def require(self, allowed: bool, setting: str, rule: str) -> None:
        """Raise `ConfigError` unless a setting is allowed; `rule` says what it must be."""
        require_setting(allowed, f"{self.section}.{setting}", rule, getattr(self, setting))


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of a class or function: its type, its default if it has one, and its help."""

    type: Any
    default: Any
    help: str
    limits: Limits | None = None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING


@cache
def settings_of(make: Callable[..., Any]) -> Mapping[str, Setting]:
    """Return the settings of a class or function, in the order of their definition.

    They are the fields of a dataclass, or the keyword-only arguments of anything else. The help
    is the `Doc` in the annotation of a field; a field that a subclass declares again keeps it, and
    its limits.
    """
    defaults: dict[str, Any] = {}
    annotated: Any = make
    try:
        owners: tuple[Any, ...] = (make,)
        if dataclasses.is_dataclass(make):
            owners = tuple(reversed(annotated.__mro__))
            for field in dataclasses.fields(make):
                factory = field.default_factory
                if field.init:
                    default = field.default if factory is dataclasses.MISSING else factory()
                    defaults[field.name] = default
        else:
            if isinstance(make, type):
                annotated = make.__init__  # type: ignore[misc]  # of this class, not of a subclass
                owners = (annotated,)
            for argument in inspect.signature(make).parameters.values():
                if argument.kind is argument.KEYWORD_ONLY:
                    required = argument.default is argument.empty
                    defaults[argument.name] = dataclasses.MISSING if required else argument.default
        parts = {
            (name, type(part)): part
            for owner in owners
            for name, kind in get_type_hints(owner, include_extras=True).items()
            for part in getattr(kind, "__metadata__", ())
        }
        hints = get_type_hints(annotated)
    except (TypeError, ValueError, NameError) as error:  # built in, or unknown types
        name = getattr(make, "__name__", make)
        raise ConfigError(f"the settings of {name} cannot be read: {error}") from error
    return {
        name: Setting(
            hints.get(name, Any),
            default,
            parts.get((name, Doc), Doc("")).documentation,
            parts.get((name, Limits)),
        )
        for name, default in defaults.items()
    }


def fields_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the settings of a class or function, and their types."""
    return {name: setting.type for name, setting in settings_of(make).items()}


def fit(value: Any, kind: Any, where: str) -> Any:
    """Return the value if it is of this type; an integer may be a float, a list a tuple."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for choice in inner:
            with suppress(ConfigError):
                return fit(value, choice, where)
        described = " or ".join(_described(choice) for choice in inner if choice is not type(None))
    elif origin is Literal:
        if value in inner:
            return value
        described = f"one of {', '.join(map(str, inner))}"
    elif origin is tuple and isinstance(value, list | tuple):
        fixed = Ellipsis not in inner
        if fixed and len(value) != len(inner):
            raise ConfigError(f"{where} needs {len(inner)} values, not {len(value)}")
        kinds = inner if fixed else inner[:1] * len(value)
        return tuple(fit(part, one, where) for part, one in zip(value, kinds, strict=True))
    elif kind is float and type(value) is int:
        return float(value)
    elif kind is Any or (isinstance(value, origin or kind) and (kind, type(value)) != (int, bool)):
        return value
    else:
        described = _described(kind)
    raise ConfigError(f"{where} must be {described}, not {value!r}")


def _described(kind: Any) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    sections = {tuple: "a list", dict: "a section, such as { name = '...' }"}
    other = f"a {getattr(kind, '__name__', kind)}"
    return names.get(kind) or sections.get(get_origin(kind), other)
