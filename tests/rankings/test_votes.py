"""Vote rules: the registry, weights, and another rule in place of Borda."""

from dataclasses import dataclass

import numpy as np
import pytest

import e2fl
from e2fl.config.experiment import from_dict
from e2fl.errors import ConfigError
from e2fl.rankings.votes import VOTES, Borda, Vote, elect

TOY = {
    "data": {"name": "e2fl.testing.toy:Toy"},
    "model": {"name": "mlp", "hidden": [8]},
    "rounds": 2,
}


@dataclass(frozen=True)
class Dictator(Vote):
    """The ballot of one place decides; for tests."""

    place: int = 0

    def elect(self, ballots):
        return ballots[self.place][0]


def permutations(*orders):
    return [{"fc": np.array(order, np.int32)} for order in orders]


def test_borda_ranks_by_the_sum_of_ranks_and_ties_go_to_the_lower_edge():
    ballots = permutations([0, 1, 2, 3], [1, 0, 3, 2], [3, 2, 1, 0])
    assert elect(ballots)["fc"].tolist() == [1, 0, 3, 2]


def test_an_incumbent_counts_as_many_ballots_as_its_weight():
    (new, old) = permutations([0, 1, 2], [2, 1, 0])
    assert elect([new], old, 0.4)["fc"].tolist() == new["fc"].tolist()
    assert elect([new], old, 2.5)["fc"].tolist() == old["fc"].tolist()


def test_another_rule_takes_the_place_of_borda():
    ballots = permutations([0, 1, 2], [2, 1, 0], [2, 1, 0])
    assert elect(ballots, rule=Dictator())["fc"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="at least one ballot"):
        elect([], rule=Borda())


@pytest.mark.parametrize("name", ["e2fl", "frl", "e2fl_steady"])
@pytest.mark.parametrize("setting", ["borda", {"name": "borda"}])
def test_the_setting_names_a_rule(name, setting):
    experiment = from_dict(TOY | {"algorithm": {"name": name, "vote": setting}})
    assert experiment.build_algorithm().vote == VOTES["borda"]()


def test_an_unknown_rule_is_named():
    experiment = from_dict(TOY | {"algorithm": {"name": "e2fl", "vote": "borada"}})
    with pytest.raises(ConfigError, match="borda"):
        experiment.build_algorithm()


def test_an_own_rule_changes_the_result():
    results = [
        e2fl.run(from_dict(TOY | {"algorithm": {"name": "e2fl", "vote": vote}}), progress=False)
        for vote in ("borda", {"name": f"{__name__}:Dictator"})
    ]
    first, second = (run.state.global_ranking for run in results)
    assert any(not np.array_equal(first[layer], second[layer]) for layer in first)
