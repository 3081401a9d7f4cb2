"""What is chosen: objectives, the Pareto front, and the trial that is best in what decides."""

import math

import numpy as np
import pytest

from e2fl.errors import ConfigError
from e2fl.metrics import measure_of
from e2fl.search.results import Trial, Tuned, front, measured, objectives_of

MEAN, WORST, BYTES = map(measure_of, ("group/mean", "group/worst10", "bytes/total"))
OBJECTIVES = [MEAN, WORST, BYTES]


def trial(number, *values, diverged=False):
    keys = [objective.key for objective in OBJECTIVES]
    return Trial(number, {}, [dict(zip(keys, values, strict=False))], diverged)


def test_the_front_agrees_with_its_definition_on_random_points():
    points = np.random.default_rng(0).integers(0, 6, (60, 3)).tolist()
    trials = [trial(n, *point) for n, point in enumerate(points)]
    diverged = trial(60, math.nan, math.nan, 1, diverged=True)
    best = [one.number for one in front([*trials, diverged], OBJECTIVES)]
    assert 60 not in best
    assert front([], OBJECTIVES) == []
    for n, (a, b, c) in enumerate(points):
        beaten = any(x >= a and y >= b and z <= c and [x, y, z] != [a, b, c] for x, y, z in points)
        assert (n in best) != beaten


def test_the_chosen_trial_is_best_in_what_decides_then_in_the_others(toy):
    trials = [trial(1, 60, 30), trial(2, 40, 40), trial(3, 50, 40), trial(4, 60, 30)]
    for order, number in (([MEAN, WORST], 1), ([WORST, MEAN], 3)):
        assert Tuned("x", toy, {}, trials, order).chosen.number == number
    assert Tuned("x", toy, {}, [trial(1, 1, diverged=True)], [MEAN]).chosen is None


def test_objectives_are_paths_of_measures_with_a_direction():
    levels = ["group", "clients"]
    assert objectives_of([], None, levels) == (OBJECTIVES, WORST)
    assert objectives_of(["bytes", "group/mean"], "bytes", levels) == ([BYTES, MEAN], BYTES)
    assert objectives_of(["group/mean"], "group/worst10", levels) == ([MEAN, WORST], WORST)
    for paths, word in (
        (["group/none"], "no measure"),
        (["budget/examples"], "direction"),
    ):
        with pytest.raises(ConfigError, match=word):
            objectives_of(paths, None, levels)
    with pytest.raises(ConfigError, match="groups"):
        objectives_of(["group/mean"], None, ["clients"])


def test_measures_are_those_of_validation_rows():
    line = {
        "clients": {"mean": 1.0},
        "validation": {"clients": {"mean": 2.0}},
        "bytes": {"up_total": 3, "down_total": 4},
    }
    assert measured(line, ["clients/mean", "bytes/total"]) == {"clients/mean": 2, "bytes/total": 7}
    line["validation"]["diverged"] = 1
    assert math.isnan(measured(line, ["clients/mean"])["clients/mean"])
