"""Settings to try: choices, ranges, and whom they concern."""

from dataclasses import replace

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from e2fl.errors import ConfigError
from e2fl.search.space import ends_of, own_settings, size_of, space_of, spaces_of, value_of


def test_choices_and_ranges():
    space = space_of(
        ["a=1,2.5,word", "b=[64],[64, 64]", "c={x=1,y=2},'d,e'", "d=1..5", "e=1e-3..1:log"]
    )
    assert ends_of(space["a"]) == [1, 2.5, "word"]
    assert ends_of(space["b"]) == [[64], [64, 64]]
    assert ends_of(space["c"]) == [{"x": 1, "y": 2}, "d,e"]
    assert isinstance(space["a"], CategoricalDistribution)
    assert space["d"] == IntDistribution(1, 5)
    assert space["e"] == FloatDistribution(0.001, 1, log=True)
    assert value_of(space["e"], 0.123456) == 0.1235
    assert size_of({name: space[name] for name in "abd"}) == 3 * 2 * 5
    assert size_of(space) == float("inf")


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["rate"], "takes a setting"),
        (["rate=2..1"], "low"),
        (["rate=0.0..1:log"], "log"),
        (["rate=1..2", "rate=3"], "twice"),
        (["rounds=1..9"], "same for all"),
        (["seed=1,2"], "same for all"),
    ],
)
def test_mistakes_are_explained(texts, word):
    with pytest.raises(ConfigError, match=word):
        space_of(texts)


def test_a_setting_is_searched_where_it_is(toy):
    toy = replace(toy, learner={"score_rate": 0.1, "learning_rate": 0.02})
    methods = {name: toy.variant(name) for name in ("e2fl", "fedavg")}
    space = space_of(
        [
            "algorithm.incumbents=0,1",
            "learner.score_rate=0.01..1",
            "learner.learning_rate=0..1",
            "model.hidden=[8],[24]",
        ]
    )
    spaces = spaces_of(methods, space)
    assert list(spaces["e2fl"]) == ["algorithm.incumbents", "learner.score_rate", "model.hidden"]
    assert list(spaces["fedavg"]) == ["learner.learning_rate", "model.hidden"]
    assert isinstance(spaces["fedavg"]["learner.learning_rate"], FloatDistribution)
    whole = {"fedavg": replace(methods["fedavg"], learner={"learning_rate": 1})}
    ranges = space_of(["learner.learning_rate=0..2", "learner.epochs=1..3"])
    assert spaces_of(whole, ranges)["fedavg"] == {
        "learner.learning_rate": FloatDistribution(0, 2),
        "learner.epochs": IntDistribution(1, 3),
    }
    own = own_settings(spaces["e2fl"], methods["e2fl"])
    assert own == {"algorithm.incumbents": "0", "learner.score_rate": 0.1, "model.hidden": "[24]"}
    with pytest.raises(ConfigError, match="weights"):
        spaces_of({"e2fl": toy}, space_of(["learner.learning_rate=0.1,0.2"]))
    with pytest.raises(ConfigError, match="nothing"):
        spaces_of(methods, space_of(["algorithm.nothing=1"]))
