"""Which clients take part: every policy draws clients of the population, each once, and keeps its promise."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import from_dict
from e2fl.data.federated import Population
from e2fl.errors import ConfigError
from e2fl.participation import PARTICIPATION, ByGroup, Everyone, Uniform, burden
from e2fl.runs.runner import run_experiment

SIZES = {0: 1, 1: 2, 2: 7, 3: 20}
GROUPS = dict(enumerate(group for group, size in SIZES.items() for _ in range(size)))
POPULATION = Population(GROUPS, 4)


def drawn(policy, count=10, round_number=1, groups=GROUPS, population=POPULATION, seed=0):
    return policy.draw(count, population, groups, round_number=round_number, seed=seed)


@pytest.mark.parametrize("name", PARTICIPATION)
@given(count=st.integers(1, 40), round_number=st.integers(1, 50), away=st.sampled_from([0.0, 0.3]))
def test_every_policy_draws_known_clients_each_once_in_rising_order(name, count, round_number, away):
    clients = drawn(PARTICIPATION[name](away=away), count, round_number)
    assert clients == sorted(set(clients))
    assert set(clients) <= set(POPULATION.ids)
    if name != "everyone":
        assert len(clients) <= count
        assert len(clients) == min(count, 30) or away


def test_a_draw_depends_on_the_seed_and_the_round_alone():
    assert drawn(Uniform()) == drawn(Uniform())
    assert drawn(Uniform()) != drawn(Uniform(), round_number=2)


@given(st.integers(4, 30), st.integers(1, 200))
def test_by_group_seats_every_group_in_every_round(count, round_number):
    assert {GROUPS[client] for client in drawn(ByGroup(), count, round_number)} == {0, 1, 2, 3}


def test_with_fewer_seats_than_groups_the_groups_are_drawn():
    seen = Counter(GROUPS[client] for r in range(1, 401) for client in drawn(ByGroup(), 2, r))
    assert sum(seen.values()) == 800
    assert all(150 < seen[group] < 250 for group in SIZES)  # half of the rounds each


def test_more_seats_go_to_groups_that_have_the_clients():
    for r in range(1, 30):
        counts = Counter(GROUPS[client] for client in drawn(ByGroup(seats=2), 7, r))
        assert counts == {0: 1, 1: 2, 2: 2, 3: 2}


def test_inside_a_group_every_client_gets_its_turn():
    seen = Counter(client for r in range(1, 301) for client in drawn(ByGroup(), 4, r))
    assert seen[0] == 300  # a group of one client: asked every time
    assert all(100 < seen[client] < 200 for client in (1, 2))


def test_by_group_without_known_groups_is_uniform():
    ungrouped = Population(dict.fromkeys(range(30)))
    assert drawn(ByGroup(), groups={}, population=ungrouped) == drawn(Uniform(), groups={}, population=ungrouped)


def test_everyone_takes_part_whatever_the_number_asked_for():
    assert drawn(Everyone(), 3) == list(range(30))


def test_clients_are_away_as_often_as_said():
    present = np.mean([len(drawn(Everyone(away=0.25), round_number=r)) for r in range(1, 201)])
    assert 21.5 < present < 23.5  # three quarters of 30


def test_by_the_hour_whole_groups_are_absent_and_come_back():
    policy = Everyone(day=24, hours=6)
    seen = [{GROUPS[client] for client in drawn(policy, round_number=r)} for r in range(1, 25)]
    assert all(len(groups) <= 2 for groups in seen)
    assert set().union(*seen) == {0, 1, 2, 3}
    assert seen == [{GROUPS[client] for client in drawn(policy, round_number=r)} for r in range(25, 49)]


def test_the_burden_counts_how_often_clients_of_each_group_were_asked():
    assert burden({0: 5, 1: 1, 2: 2, 29: 4}, POPULATION) == {0: (1, 5), 1: (2, 3), 2: (7, 0), 3: (20, 4)}


@pytest.mark.parametrize("wrong", [{"away": 1.0}, {"away": -0.1}, {"day": -1}, {"hours": 0}, {"hours": 25}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"participation\."):
        Uniform(**wrong)


def test_a_policy_needs_a_name_and_a_known_one(toy):
    with pytest.raises(ConfigError, match=r"participation = \{ name = 'uniform' \}"):
        replace(toy, participation={"seats": 2}).build_participation()
    with pytest.raises(ConfigError, match="did you mean 'by_group'"):
        replace(toy, participation={"name": "bygroup"}).build_participation()
    with pytest.raises(ConfigError, match="no setting 'seats'"):
        replace(toy, participation={"name": "uniform", "seats": 2}).build_participation()


def test_an_algorithm_may_prefer_a_policy_and_the_experiment_has_the_last_word(toy):
    steady = replace(toy, algorithm={"name": "e2fl_steady", "clients_per_round": 4})
    assert steady.build_participation() == ByGroup()
    assert replace(steady, participation={"name": "uniform"}).build_participation() == Uniform()
    assert toy.build_participation() == Uniform()


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_runs_with_seats_for_every_group(toy, name):
    run = run_experiment(
        from_dict(
            toy.to_dict()
            | {"rounds": 2, "algorithm": {"name": name, "clients_per_round": 4}, "participation": {"name": "by_group"}}
        )
    )
    assert run.summary["user"]["mean"] > 0


def test_a_round_without_any_client_present_changes_nothing(toy):
    away = {"name": "uniform", "day": 1000, "hours": 0.001}  # present in one round of a thousand, if at all
    experiment = from_dict(toy.to_dict() | {"rounds": 3, "participation": away})
    with pytest.raises(Exception, match="no client was asked"):
        run_experiment(experiment)
