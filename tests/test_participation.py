"""Which clients take part: every policy draws known clients, each once, and keeps its promise."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.data.federated import Population
from e2fl.errors import RunError
from e2fl.participation import PARTICIPATION, Everyone, StratifiedSampling, Uniform
from e2fl.runs.runner import run_experiment, server_of
from e2fl.testing.contract import same
from tests.runs.test_runner import NoGroups

SIZES = {0: 1, 1: 2, 2: 7, 3: 20}
GROUPS = dict(enumerate(group for group, size in SIZES.items() for _ in range(size)))
POPULATION = Population(GROUPS, 4)


def drawn(policy, count=10, round_number=1, groups=GROUPS, population=POPULATION, seed=0):
    return policy.draw(count, population, groups, round_number=round_number, seed=seed)


@pytest.mark.parametrize("name", PARTICIPATION)
@given(count=st.integers(1, 40), round_number=st.integers(1, 50), away=st.sampled_from([0.0, 0.3]))
def test_every_policy_draws_known_clients_each_once_in_rising_order(
    name, count, round_number, away
):
    clients = drawn(PARTICIPATION[name](away=away), count, round_number)
    assert clients == sorted(set(clients))
    assert set(clients) <= set(POPULATION.ids)
    if name != "everyone":
        assert len(clients) <= count
        assert len(clients) == min(count, 30) or away


def test_a_draw_depends_on_the_seed_and_the_round_alone():
    assert drawn(Uniform()) == drawn(Uniform())
    assert drawn(Uniform()) != drawn(Uniform(), round_number=2)
    assert drawn(Uniform()) != drawn(Uniform(), seed=1)
    assert drawn(Everyone(away=0.5)) != drawn(Everyone(away=0.5), seed=1)


@given(st.integers(4, 30), st.integers(1, 200))
def test_by_group_seats_every_group_in_every_round(count, round_number):
    clients = drawn(StratifiedSampling(), count, round_number)
    assert {GROUPS[client] for client in clients} == set(SIZES)


def test_with_fewer_seats_than_groups_the_groups_are_drawn():
    seen = Counter(
        GROUPS[client] for r in range(1, 401) for client in drawn(StratifiedSampling(), 2, r)
    )
    assert sum(seen.values()) == 800
    assert all(150 < seen[group] < 250 for group in SIZES)  # half of the rounds each


def test_more_seats_go_to_groups_that_have_the_clients():
    for r in range(1, 30):
        counts = Counter(GROUPS[client] for client in drawn(StratifiedSampling(seats=2), 7, r))
        assert counts == {0: 1, 1: 2, 2: 2, 3: 2}


def test_by_group_without_known_groups_is_uniform():
    ungrouped = Population(dict.fromkeys(range(30)))
    by_group, uniform = (
        drawn(policy, groups={}, population=ungrouped)
        for policy in (StratifiedSampling(), Uniform())
    )
    assert by_group == uniform


def test_clients_are_away_as_often_as_said():
    present = np.mean([len(drawn(Everyone(away=0.25), round_number=r)) for r in range(1, 201)])
    assert 21.5 < present < 23.5  # three quarters of 30
    assert drawn(Everyone(), 3) == list(range(30))


AWAY = {"name": "by_group", "away": 0.4}
ASKED_WITHOUT_A_DRAW = {
    "afl": ({"name": "afl"}, 1),
    "clustering": ({"name": "e2fl", "grouping": {"name": "rank_clustering", "groups": 2}}, 0),
}


@pytest.mark.parametrize("name", ASKED_WITHOUT_A_DRAW)
def test_a_client_that_is_away_is_asked_for_nothing(toy, name):
    algorithm, round_number = ASKED_WITHOUT_A_DRAW[name]
    server = server_for(replace(toy, algorithm=algorithm, participation=AWAY))
    present = server.participation.present(server.population, round_number, 0)
    assert 0 < len(present) < 8
    assert list(server.ask_of(round_number).clients) == list(present)


def test_who_trains_alone_needs_no_server_to_be_there(toy):
    server = server_for(
        replace(toy, algorithm={"name": "local", "clients_per_round": 4}, participation=AWAY)
    )
    assert [list(server.ask_of(r).clients) for r in (1, 2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def server_for(experiment):
    data = experiment.build.data()
    return server_of(
        experiment, experiment.build.algorithm(), experiment.build.model(data), data.population
    )


def test_an_algorithm_may_prefer_a_policy_and_the_experiment_has_the_last_word(toy):
    steady = toy.variant("e2fl_steady")
    for section, plain, preferred in (
        ({}, Uniform(), StratifiedSampling()),
        ({"away": 0.2}, Uniform(away=0.2), StratifiedSampling(away=0.2)),
        ({"name": "uniform"}, Uniform(), Uniform()),
    ):
        assert replace(toy, participation=section).build.participation() == plain
        assert replace(steady, participation=section).build.participation() == preferred


def test_the_recommended_settings_are_those_that_can_be_spelled_out(toy):
    toy = replace(toy, rounds=3)
    steady = run_experiment(toy.variant("e2fl_steady")).state.smooth_groups
    spelled = replace(
        toy, algorithm=toy.algorithm | {"smoothing": 5.0}, participation={"name": "by_group"}
    )
    assert same(steady, run_experiment(spelled).state.smooth_groups)
    for paper in (replace(spelled, algorithm=toy.algorithm), replace(spelled, participation={})):
        assert not same(steady, run_experiment(paper).state.smooth_groups)


@pytest.mark.parametrize("name", ["fedavg", "ifca", "groupavg", "e2fl", "frl"])
def test_declared_groups_have_their_seats_with_every_algorithm(toy, name):
    seats = {"name": "by_group"}
    algorithm = {"name": name, "clients_per_round": 2}
    if name == "ifca":
        algorithm["oracle_groups"] = True
    server = server_for(replace(toy, algorithm=algorithm, participation=seats))
    assert all({client % 2 for client in server.ask_of(r).clients} == {0, 1} for r in range(1, 21))


def test_a_run_without_any_client_present_says_so(toy):
    away = {"name": "uniform", "away": 1 - 1e-12}
    with pytest.raises(RunError, match="no client was asked"):
        run_experiment(replace(toy, rounds=3, participation=away))


def test_a_summary_says_how_often_clients_of_each_group_were_asked(toy):
    found = run_experiment(toy).summary["participation"]
    assert sum(group["asked"] for group in found.values()) == 6 * 4
    assert [group["clients"] for group in found.values()] == [4, 4]
    assert all(group["asked_per_client"] == group["asked"] / 4 for group in found.values())
    inside = replace(toy, data=toy.data | {"inside": True, "classes": 2})
    assert "participation" not in run_experiment(inside).summary


def test_a_summary_says_how_often_clients_of_each_found_group_were_asked(toy):
    steady = {
        "name": "e2fl_steady",
        "clients_per_round": 2,
        "grouping": {"name": "rank_clustering", "groups": 2},
    }
    run = run_experiment(replace(toy, algorithm=steady), data=NoGroups(styles=True))
    found = run.summary["participation"]
    assert list(found) == list(run.summary["groups"]) == ["found 0", "found 1"]
    # Once before the first round for the clustering, then one seat in each of 6 rounds.
    assert all(group["asked"] == group["clients"] + 6 for group in found.values())
    assert "participation" not in run_experiment(toy.variant("fedavg"), data=NoGroups()).summary


def test_a_client_that_missed_the_clustering_uses_the_global_model(toy):
    grouping = {"name": "rank_clustering", "groups": 2}
    made = replace(
        toy,
        rounds=1,
        data=toy.data | {"inside": True},
        algorithm={"name": "e2fl", "clients_per_round": 4, "grouping": grouping},
        participation={"name": "uniform", "away": 0.6},
    )
    run = run_experiment(made)
    placed = run.state.membership.assignments
    served = made.build.algorithm().serve(run.state, range(12))
    assert 0 < len(placed) < 12
    assert all(
        message.groups == ((placed[client],) if client in placed else ())
        for client, message in served.items()
    )
    assert "as_group0" not in run.summary["views"]
