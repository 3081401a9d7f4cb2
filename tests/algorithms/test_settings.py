"""Settings without meaning are refused where an object is made, by the name of the setting."""

import math
from typing import Literal, get_origin

import numpy as np
import pytest

from e2fl.algorithms import ALGORITHMS
from e2fl.attacks import ATTACKS
from e2fl.construct import settings_of
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.learning import Settings
from e2fl.participation import PARTICIPATION
from e2fl.rankings.ballots import BALLOTS, Boundary
from e2fl.rankings.votes import VOTES

KINDS = ALGORITHMS | GROUPINGS | PARTICIPATION | dict(BALLOTS) | dict(VOTES) | dict(ATTACKS)
KINDS |= {"learner": Settings}
SETTINGS = [(kind, *item) for kind in KINDS.values() for item in settings_of(kind).items()]
# Numbers that are checked against the data, or that an attack may choose freely.
FREE = {"grouping.groups", "attack.factor", "attack.examples", "attack.loss"}
BORDERS = tuple(np.linspace(0.1, 0.9, 300))
# What limits and choices cannot say.
WRONG = [
    *(("e2fl", name, value) for name in ("incumbents", "smoothing") for value in (1e-4, 1001)),
    *(("e2fl", "own_vote", value) for value in [(1.0, 1e-4), (1.0, 2000.0)]),
    ("e2fl", "downlink", Boundary()),
    ("buckets", "finer", 200),
    *(("buckets", "uneven", value) for value in [(0.5, 0.4), BORDERS]),
    ("moves", "steps", 64),
    ("boundary", "band", 0.1),
]


@pytest.mark.parametrize(("kind", "name", "setting"), SETTINGS)
def test_values_outside_limits_and_choices_are_refused(kind, name, setting):
    wrong = ["none of these"] if get_origin(setting.type) is Literal else []
    if limits := setting.limits:
        wrong = [limits.least - 1e-9, limits.above, limits.most + 1e-9, limits.below, math.nan]
    elif setting.type in (int, float):
        assert f"{kind.section}.{name}" in FREE
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"{kind.section}\.{name} must be"):
            kind(**{name: (value,) if isinstance(setting.default, tuple) else value})


@pytest.mark.parametrize(("name", "setting", "value"), WRONG)
def test_settings_without_meaning_are_refused(name, setting, value):
    kind = KINDS[name]
    with pytest.raises(ConfigError, match=rf"{kind.section}\.{setting} must be"):
        kind(**{setting: value})


def test_settings_that_exclude_each_other_are_refused():
    for settings in ({"finer": 2, "uneven": (0.5,)}, {"buckets": 8, "uneven": (0.5,)}):
        with pytest.raises(ConfigError, match="uneven"):
            KINDS["buckets"](**settings)
