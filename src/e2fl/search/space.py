"""The settings that a search tries, as distributions of Optuna: values to choose from, or a range.

A choice is kept as JSON, because Optuna stores no lists: `value_of` reads it.
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from e2fl.config.experiment import Experiment
from e2fl.config.methods import names_with
from e2fl.config.overrides import from_names, typed
from e2fl.config.sections import completed, known_settings
from e2fl.construct import settings_of
from e2fl.errors import ConfigError

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Distribution]

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
DIGITS = 4  # significant digits of a number that is drawn: more would be noise in a table
FIXED = ("seed", "data.validation_share", "rounds", "evaluate_every")  # the same for all trials
RATES = {"learner.learning_rate": False, "learner.score_rate": True}  # whether it is of scores


def space_of(texts: Sequence[str], option: str = "--space") -> Space:
    """Return what to try from strings such as "model.keep=0.3,0.5" or "learner.epochs=1..5".

    option: what errors call them. --space also takes ranges, such as 0.01..1:log.
    """
    space: Space = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        if not name or not values:
            raise ConfigError(f"{option} takes a setting and values, such as x.y=1,2; not '{text}'")
        if name in FIXED or name in space:
            raise ConfigError(f"{name} is the same for all trials, or is given to {option} twice")
        match = RANGE.fullmatch(values) if option == "--space" else None
        try:
            space[name] = _choice(values) if match is None else _range(*match.groups())
        except ValueError as error:
            raise ConfigError(f"{option} {text}: {error}") from error
    return space


def _choice(text: str) -> CategoricalDistribution:
    """Return a choice from TOML values, or from words, separated by commas."""
    try:
        values = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [change.value for change in typed(f"value={part}" for part in text.split(","))]
    return CategoricalDistribution(
        list(dict.fromkeys(json.dumps(value, default=str) for value in values))
    )


def _range(low: str, high: str, log: str | None) -> Distribution:
    if all(re.fullmatch(r"[-+]?\d+", end) for end in (low, high)):
        return IntDistribution(int(low), int(high), log=bool(log))
    return FloatDistribution(float(low), float(high), log=bool(log))


def value_of(distribution: Distribution, drawn: Any) -> Any:
    """Return the value of a setting for what was drawn."""
    if isinstance(distribution, FloatDistribution):
        rounded = float(f"{drawn:.{DIGITS}g}")
        return min(max(rounded, distribution.low), distribution.high)
    return json.loads(drawn) if isinstance(distribution, CategoricalDistribution) else int(drawn)


def ends_of(distribution: Distribution) -> list[Any]:
    """Return the choices, or both ends of a range."""
    if isinstance(distribution, CategoricalDistribution):
        return [json.loads(str(choice)) for choice in distribution.choices]
    return [value_of(distribution, end) for end in (distribution.low, distribution.high)]


def size_of(space: Space) -> float:
    """Return the number of points."""
    return math.prod(map(_points_of, space.values()))


def _points_of(distribution: Distribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    whole = isinstance(distribution, IntDistribution)
    return distribution.high - distribution.low + 1 if whole else math.inf


def described(distribution: Distribution) -> str:
    """Return what is tried, in words."""
    ends = ends_of(distribution)
    if isinstance(distribution, CategoricalDistribution):
        return ", ".join(map(shown, ends))
    kind = "integers, " if isinstance(distribution, IntDistribution) else ""
    return f"{kind}{ends[0]:g} to {ends[1]:g}{', logarithmic' if distribution.log else ''}"


def shown(value: Any) -> str:
    """Return a value formatted for display."""
    return value if isinstance(value, str) else json.dumps(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    texts = [f"{name} = {shown(value)}" for name, value in settings.items()]
    return ", ".join(texts) or "as in the experiment"


def spaces_of(methods: Mapping[str, Experiment], space: Space) -> dict[str, Space]:
    """Return the space of each method: a setting is searched in the methods that have it."""
    spaces: dict[str, Space] = {method: {} for method in methods}
    for name, distribution in space.items():
        for method in _having(name, methods):
            fitted = distribution
            if isinstance(fitted, IntDistribution) and _is_float(name, methods[method]):
                fitted = FloatDistribution(fitted.low, fitted.high, log=fitted.log)
            spaces[method][name] = fitted
    return spaces


def _having(name: str, methods: Mapping[str, Experiment]) -> list[str]:
    """Return the methods with a setting; a rate belongs to those that train with it."""
    if name not in RATES:
        return names_with(from_names({name: None})[0], methods)
    kinds = {method: one.build.algorithm().trains_scores for method, one in methods.items()}
    having = [method for method, scores in kinds.items() if scores == RATES[name]]
    if not having:
        what, other = ("scores", "learning_rate") if RATES[name] else ("weights", "score_rate")
        raise ConfigError(f"none of {', '.join(methods)} trains {what}; use learner.{other}")
    return having


def own_settings(space: Space, method: Experiment) -> dict[str, Any]:
    """Return what has to be drawn for the method's own settings, where the space has them."""
    drawn: dict[str, Any] = {}
    for name, distribution in space.items():
        own, ends = _own_value(name, method), ends_of(distribution)
        if isinstance(distribution, CategoricalDistribution):
            drawn |= {name: distribution.choices[ends.index(own)]} if own in ends else {}
        elif isinstance(own, int | float) and ends[0] <= own <= ends[1]:
            drawn[name] = own
    return drawn


def _is_float(name: str, method: Experiment) -> bool:
    """Return whether a setting takes floats, even where the experiment writes 1 for 1.0."""
    section, _, last = name.rpartition(".")
    known = settings_of(Experiment)
    if section:
        known = known_settings(section.rpartition(".")[2], _own_value(section, method) or {})
    kind = known[last].type if last in known else None
    return float in (kind, *get_args(kind)) or isinstance(_own_value(name, method), float)


def _own_value(name: str, method: Experiment) -> Any:
    """Return the method's own value of a setting, or its default."""
    value: Any = completed(method).to_dict()
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
