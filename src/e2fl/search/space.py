"""The settings that a search tries, as distributions of Optuna: values to choose from, or a range.

A choice is kept as it was typed, because Optuna stores no lists: `value_of` reads it.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from e2fl.config.completion import completed
from e2fl.config.experiment import Experiment
from e2fl.config.methods import names_with
from e2fl.config.overrides import Change, typed
from e2fl.errors import ConfigError

Space = dict[str, BaseDistribution]

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
LOOKS_LIKE_RANGE = re.compile(rf"{NUMBER}\.\.")
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
DIGITS = 4  # significant digits of a number that is drawn: more would be noise in a table
ELSEWHERE = {  # settings that are the same for all trials, and how to set them
    "seed": "--seeds",
    "data.validation_share": "--set",
}
BUDGET = {"rounds": "--set", "evaluate_every": "--set"}
RATES = {"learner.learning_rate": False, "learner.score_rate": True}  # whether it is of scores


def space_of(texts: Sequence[str], option: str = "--space") -> Space:
    """Return what to try from strings such as "model.keep=0.3,0.5" or "learner.epochs=1..5".

    option: what errors call them. --space also takes ranges, such as 0.01..1:log.
    """
    space: Space = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        if not name or not values:
            example = "learner.epochs=1,2"
            raise ConfigError(
                f"{option} takes a setting and values, such as {example}; not '{text}'"
            )
        elsewhere = ELSEWHERE if option == "--grid" else ELSEWHERE | BUDGET
        if name in elsewhere:
            raise ConfigError(f"{name} is the same for all trials; use {elsewhere[name]} for it")
        if name in space:
            raise ConfigError(f"{name} is given to {option} twice")
        match = RANGE.fullmatch(values) if option == "--space" else None
        space[name] = (
            _choice(name, values, option) if match is None else _range(name, *match.groups())
        )
    return space


def _choice(name: str, text: str, option: str) -> CategoricalDistribution:
    choices, choice = [], ""
    for piece in text.split(","):
        choice = f"{choice},{piece}" if choice else piece
        if _closed(choice):
            choices.append(choice.strip())
            choice = ""
    if choice or not all(choices) or any(LOOKS_LIKE_RANGE.match(one) for one in choices):
        raise ConfigError(f"{option} {name}: '{text}' is not KEY=A,B,... or KEY=LOW..HIGH[:log]")
    values = [_typed(choice) for choice in choices]
    if any(isinstance(value, str) and value[0] in "[{" for value in values):
        raise ConfigError(f"{option} {name}: TOML cannot read '{text}'")
    if len(set(map(shown, values))) != len(values):
        raise ConfigError(f"{option} {name} names a value twice")
    return CategoricalDistribution(choices)


def _closed(text: str) -> bool:
    """Return whether every bracket and quote is closed: a comma inside belongs to a value."""
    brackets = all(text.count(left) == text.count(right) for left, right in ("[]", "{}"))
    return brackets and all(text.count(quote) % 2 == 0 for quote in "\"'")


def _range(name: str, low: str, high: str, log: str | None) -> BaseDistribution:
    ends = float(low), float(high)
    if not ends[0] < ends[1] < math.inf or (log and ends[0] <= 0):
        raise ConfigError(f"--space {name}: {low} must be below {high}, and above 0 for :log")
    if all(re.fullmatch(r"[-+]?\d+", end) for end in (low, high)):
        return IntDistribution(int(low), int(high), log=bool(log))
    return FloatDistribution(*ends, log=bool(log))


def value_of(distribution: BaseDistribution, drawn: Any) -> Any:
    """Return the value of a setting for what was drawn."""
    if isinstance(distribution, FloatDistribution):
        rounded = float(f"{drawn:.{DIGITS}g}")
        return min(max(rounded, distribution.low), distribution.high)
    return _typed(drawn) if isinstance(distribution, CategoricalDistribution) else int(drawn)


def ends_of(distribution: BaseDistribution) -> list[Any]:
    """Return the choices, or both ends of a range."""
    if isinstance(distribution, CategoricalDistribution):
        return [_typed(choice) for choice in distribution.choices]
    return [value_of(distribution, end) for end in (distribution.low, distribution.high)]  # type: ignore[attr-defined]


def size_of(space: Space) -> float:
    """Return the number of points."""
    size = 1.0
    for distribution in space.values():
        if isinstance(distribution, CategoricalDistribution):
            size *= len(distribution.choices)
        elif isinstance(distribution, IntDistribution):
            size *= distribution.high - distribution.low + 1
        else:
            size = math.inf
    return size


def described(distribution: BaseDistribution) -> str:
    """Return what is tried, in words."""
    ends = ends_of(distribution)
    if isinstance(distribution, CategoricalDistribution):
        return ", ".join(map(shown, ends))
    kind = "integers, " if isinstance(distribution, IntDistribution) else ""
    log = ", logarithmic" if getattr(distribution, "log", False) else ""
    return f"{kind}{ends[0]:g} to {ends[1]:g}{log}"


def shown(value: Any) -> str:
    """Return a value formatted for display."""
    return value if isinstance(value, str) else json.dumps(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    texts = [f"{name} = {shown(value)}" for name, value in settings.items()]
    return ", ".join(texts) or "as in the experiment"


def changes_of(settings: Mapping[str, Any]) -> list[Change]:
    """Return changes from settings by their full names."""
    return [Change(tuple(name.split(".")), value) for name, value in settings.items()]


def spaces_of(methods: Mapping[str, Experiment], space: Space) -> dict[str, Space]:
    """Return the space of each method: a setting is searched in the methods that have it."""
    having = {name: _having(name, methods) for name in space}
    return {
        method: {
            name: _fitted(distribution, own_value(name, experiment))
            for name, distribution in space.items()
            if method in having[name]
        }
        for method, experiment in methods.items()
    }


def _having(name: str, methods: Mapping[str, Experiment]) -> list[str]:
    """Return the methods with a setting; a rate belongs to those that train with it."""
    if name not in RATES:
        return names_with(changes_of({name: None})[0], methods)
    kinds = {method: one.build_algorithm().trains_scores for method, one in methods.items()}
    having = [method for method, scores in kinds.items() if scores == RATES[name]]
    if not having:
        what, other = ("scores", "learning_rate") if RATES[name] else ("weights", "score_rate")
        raise ConfigError(f"none of {', '.join(methods)} trains {what}; use learner.{other}")
    return having


def _fitted(distribution: BaseDistribution, own: Any) -> BaseDistribution:
    """Return the distribution for a setting: a range of a float is not one of integers."""
    if isinstance(distribution, IntDistribution) and isinstance(own, float):
        return FloatDistribution(distribution.low, distribution.high, log=distribution.log)
    return distribution


def own_settings(space: Space, method: Experiment) -> dict[str, Any]:
    """Return what has to be drawn for the method's own settings, where the space has them."""
    drawn: dict[str, Any] = {}
    for name, distribution in space.items():
        own = own_value(name, method)
        if isinstance(distribution, CategoricalDistribution):
            same = [choice for choice in distribution.choices if _typed(choice) == own]
            drawn |= {name: same[0]} if same else {}
        elif isinstance(own, int | float):
            low, high = ends_of(distribution)
            drawn |= {name: own} if low <= own <= high else {}
    return drawn


def own_value(name: str, method: Experiment) -> Any:
    """Return the method's own value of a setting, or its default."""
    value: Any = completed(method).to_dict()
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _typed(text: Any) -> Any:
    return typed([f"value={text}"])[0].value
