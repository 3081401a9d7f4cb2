"""Objectives, the Pareto front, pruning and the choice."""

import math

import numpy as np
import pytest

from e2fl.errors import ConfigError
from e2fl.search.results import (
    Trial,
    Tuned,
    front,
    measured,
    objective_of,
    objectives_of,
    pick_of,
    should_prune,
)

MEAN, WORST, BYTES = OBJECTIVES = [
    objective_of(path) for path in ("group/mean", "group/worst10", "bytes")
]


def values(*numbers):
    return {one.key: float(value) for one, value in zip(OBJECTIVES, numbers, strict=False)}


def trial(number, *numbers, state="complete"):
    return Trial(number, {"x": number}, state, [{1: values(*numbers)}])


def numbers(trials):
    return [trial.number for trial in trials]


def test_the_front_holds_the_trials_that_no_other_dominates():
    trials = [
        trial(1, 50, 40, 10),  # best worst group
        trial(2, 60, 30, 10),  # best mean
        trial(3, 50, 30, 10),  # dominated by both
        trial(4, 50, 40, 5),  # like 1 with fewer bytes
        trial(5, 60, 30, 10),  # equal to 2: neither dominates the other
        trial(6, 99, 99, 1, state="pruned"),
        trial(7, math.nan, math.nan, 1, state="diverged"),
    ]
    assert numbers(front(trials, OBJECTIVES)) == [2, 4, 5]
    assert front([], OBJECTIVES) == []


def test_the_front_agrees_with_its_definition_on_random_points():
    points = np.random.default_rng(0).integers(0, 6, (60, 3)).tolist()
    best = numbers(front([trial(n, *point) for n, point in enumerate(points)], OBJECTIVES))
    for n, (a, b, c) in enumerate(points):
        beaten = any(x >= a and y >= b and z <= c and [x, y, z] != [a, b, c] for x, y, z in points)
        assert (n in best) != beaten


def test_the_chosen_trial_is_the_first_best_of_the_front(toy):
    trials = [trial(1, 60, 30), trial(2, 50, 40), trial(3, 40, 40), trial(4, 60, 30)]
    for pick, number in ((MEAN, 1), (WORST, 2)):
        assert Tuned("x", toy, {}, trials, [MEAN, WORST], pick).chosen.number == number
    pruned = [trial(1, 1, 1, state="pruned")]
    assert Tuned("x", toy, {}, pruned, [MEAN], MEAN).chosen is None


def test_a_trial_is_pruned_if_the_medians_dominate_it():
    earlier = [values(mean, 50) for mean in (10, 20, 30, 40, 50)]
    both = [MEAN, WORST]
    assert should_prune(values(29, 50), earlier, both)
    assert not should_prune(values(29, 51), earlier, both)  # better in one
    assert not should_prune(values(30, 50), earlier, both)  # equal
    assert not should_prune(values(0, 0), earlier[:4], both)  # too few
    assert should_prune(values(math.nan, 99), earlier, both)  # diverged


def test_objectives_are_paths_of_measures_with_a_direction():
    assert [one.sign for one in OBJECTIVES] == [1, 1, -1]
    assert objectives_of(["clients/variance"], ["clients"])[0].sign == -1
    assert pick_of(None, OBJECTIVES) == WORST
    assert pick_of("bytes", OBJECTIVES) == BYTES
    for wrong in ("group/none", "budget/examples"):
        with pytest.raises(ConfigError):
            objective_of(wrong)
    with pytest.raises(ConfigError, match="groups"):
        objectives_of(["group/mean"], ["clients"])
    with pytest.raises(ConfigError, match="twice"):
        objectives_of(["bytes", " bytes/total"], ["clients"])
    with pytest.raises(ConfigError, match="clients/mean"):
        pick_of("clients/mean", OBJECTIVES)


def test_measures_are_those_of_validation_rows():
    line = {
        "clients": {"mean": 1.0},
        "validation": {"clients": {"mean": 2.0}},
        "bytes": {"up_total": 3, "down_total": 4},
    }
    assert measured(line, ["clients/mean", "bytes/total"]) == {"clients/mean": 2, "bytes/total": 7}
    line["validation"]["diverged"] = 1
    assert math.isnan(measured(line, ["clients/mean"])["clients/mean"])
