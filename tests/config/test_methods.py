"""Several algorithms on one experiment: what a change applies to, and what is a mistake."""

from dataclasses import replace

import pytest

from e2fl.config.methods import methods
from e2fl.config.overrides import given, typed
from e2fl.errors import ConfigError

VARIANTS = {
    "fedavg": {"learner": {"learning_rate": 0.01}},
    "qffl": {"rounds": 600, "learner": {"learning_rate": 0.01}, "algorithm": {"q": 0.1}},
    "found": {"algorithm": {"grouping": {"name": "lowest_loss", "groups": 4}}},
}
ALL = ["fedavg", "qffl", "e2fl", "found", "ifca"]


def compared(toy, *changes, names=ALL):
    return methods(replace(toy, variants=VARIANTS), names, typed(changes))


def test_settings_outside_the_algorithm_are_changed_in_all(toy):
    found = compared(toy, "rounds=3", "learner.learning_rate=0.05", "data.noise=0.7")
    assert {method.rounds for method in found.values()} == {3}
    assert {method.learner["learning_rate"] for method in found.values()} == {0.05}
    assert {method.data["noise"] for method in found.values()} == {0.7}
    assert list(found) == ALL


def test_settings_of_an_algorithm_are_changed_in_those_that_have_them(toy):
    found = compared(
        toy, "algorithm.q=5.0", "algorithm.absent=present_only", "algorithm.clients_per_round=2"
    )
    assert found["qffl"].build.algorithm().q == 5
    assert [name for name in ALL if "q" in found[name].algorithm] == ["qffl"]
    assert [name for name in ALL if "absent" in found[name].algorithm] == ["e2fl", "found"]
    assert {method.build.algorithm().clients_per_round for method in found.values()} == {2}


def test_settings_of_a_grouping_are_changed_in_those_that_have_them(toy):
    found = compared(toy, "algorithm.grouping.groups=2")
    assert found["found"].build.algorithm().grouping.groups == 2
    assert found["e2fl"].algorithm == toy.algorithm
    found = compared(toy, "algorithm.grouping.groups=3", "algorithm.grouping.name=one_shot")
    for name in ("e2fl", "found"):
        assert found[name].algorithm["grouping"] == {"name": "one_shot", "groups": 3}
    assert "grouping" not in found["fedavg"].algorithm


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "algorithm.tilt=1.0",
            "none of fedavg, qffl, e2fl, found, ifca has a setting 'algorithm.tilt'",
        ),
        ("algorithm.grops=3", "did you mean 'groups'"),
        ("algorithm.grouping.warmth=3", "none of .* has a setting 'algorithm.grouping.warmth'"),
        ("algorithm.grouping.grups=3", "did you mean 'grouping.groups'"),
        ("algorithm.label=x", "the same name"),
        ("algorithm.q=much", "must be a number"),
        ("learner.epochs=0", "at least 1"),
    ],
)
def test_what_fits_nobody_is_a_mistake(toy, change, words):
    with pytest.raises(ConfigError, match=words):
        compared(toy, change)


def test_a_comparison_names_somebody_and_everybody_once(toy):
    for names in ([], ["e2fl", "e2fl"]):
        with pytest.raises(ConfigError, match="at least one algorithm, and must name each once"):
            compared(toy, names=names)


def test_what_is_given_from_python_means_the_same_as_what_is_typed(toy):
    experiment = replace(toy, variants=VARIANTS)
    python = given(
        {"rounds": 3, "algorithm": {"q": 5.0, "grouping": {"groups": 2}}, "model": {"keep": 0.3}}
    )
    words = typed(["rounds=3", "algorithm.q=5.0", "algorithm.grouping.groups=2", "model.keep=0.3"])
    assert methods(experiment, ALL, python) == methods(experiment, ALL, words)
