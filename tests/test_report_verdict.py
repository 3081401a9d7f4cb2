"""The verdict: what is said is true, whoever wins, and says no more than the numbers do."""

from dataclasses import replace

import pytest

from e2fl.report.study import Outcome
from e2fl.report.verdict import chosen, verdict
from tests.studies import contender, study

FAIR = {"A": 88.0, "B": 86.0}
UNFAIR = {"A": 95.0, "B": 74.0}


def test_the_fairer_one_is_praised_for_the_worst_group_and_its_cost_is_named():
    said = verdict(study(contender("FedAvg", {"A": 98, "B": 76}), contender("E2FL", {"A": 85.8, "B": 88})))
    # worst: 85.8 - 76 = 9.8; mean: 86.9 - 87 = -0.1
    assert said.startswith(
        "E2FL serves the worst group 9.8 points better than FedAvg, at the cost of 0.1 points on average."
    )


def test_nobody_is_favoured_by_name():
    said = verdict(study(contender("E2FL", UNFAIR), contender("FedAvg", FAIR)))
    assert said.startswith(
        "FedAvg serves the worst group 12.0 points better than E2FL, and is 2.5 points better on average."
    )


def test_one_seed_says_that_noise_cannot_be_judged():
    assert "noise cannot be judged" in verdict(study(contender("FedAvg", UNFAIR), contender("E2FL", FAIR)))


def test_seeds_that_agree_are_beyond_noise():
    fedavg = contender("FedAvg", {"A": 95, "B": 74}, {"A": 96, "B": 75}, {"A": 94, "B": 73})
    e2fl = contender("E2FL", {"A": 88, "B": 86}, {"A": 89, "B": 87.2}, {"A": 87, "B": 85})
    said = verdict(study(fedavg, e2fl))
    assert "Over 3 seeds, the difference for the worst is beyond noise" in said
    assert "cannot be judged" not in said


def test_seeds_that_disagree_are_within_noise():
    fedavg = contender("FedAvg", {"A": 80, "B": 70}, {"A": 80, "B": 80})
    e2fl = contender("E2FL", {"A": 80, "B": 79}, {"A": 80, "B": 75})
    said = verdict(study(fedavg, e2fl))
    assert "2.0 points better" in said
    assert "the difference for the worst is within noise" in said


def test_a_tie_is_called_a_tie():
    said = verdict(study(contender("FedAvg", FAIR), contender("E2FL", FAIR)))
    assert "serve the worst group equally well, with the same accuracy on average." in said
    assert "better" not in said
    assert "worse" not in said


def test_clients_worse_off_than_alone_are_counted():
    alone = contender("Local", {"A": [80, 80, 80, 80], "B": [80, 80]}, alone=True)
    e2fl = contender("E2FL", {"A": [90, 90, 90, 79], "B": [80, 79.9]})
    fedavg = contender("FedAvg", {"A": [95, 95, 95, 95], "B": [60, 60]})
    said = verdict(study(alone, fedavg, e2fl))
    assert "With E2FL, 2 of 6 clients are worse off than training alone." in said


def test_nobody_worse_off_is_said_so():
    alone = contender("Local", {"A": 70, "B": 70}, alone=True)
    assert "no client is worse off" in verdict(study(alone, contender("E2FL", FAIR)))


def test_the_count_is_averaged_over_seeds():
    alone = contender("Local", {"A": [80, 80]}, {"A": [80, 80]}, alone=True)
    e2fl = contender("E2FL", {"A": [79, 90]}, {"A": [90, 90]})
    assert "0.5 of 2 clients (mean over 2 seeds) are worse off" in verdict(study(alone, e2fl))


def test_training_alone_may_serve_the_worst_best():
    alone = contender("Local", {"A": 90, "B": 90}, alone=True)
    said = verdict(study(alone, contender("FedAvg", UNFAIR), contender("E2FL", FAIR)))
    assert "Training alone serves the worst group better still, by 4.0 points." in said


def test_one_algorithm_is_held_against_training_alone():
    alone = contender("Local", {"A": 90, "B": 90}, alone=True)
    said = verdict(study(alone, contender("E2FL", FAIR)))
    assert said.startswith("E2FL serves the worst group 4.0 points worse than training alone, and is 3.0 points worse")


def test_training_alone_not_run_is_said():
    said = verdict(study(contender("FedAvg", UNFAIR), contender("E2FL", FAIR)))
    assert "training alone was not run" in said


def test_many_algorithms_name_the_best_of_the_others():
    said = verdict(study(contender("q-FFL", {"A": 90, "B": 70}), contender("FedAvg", UNFAIR), contender("E2FL", FAIR)))
    assert said.startswith("Of 3 algorithms, E2FL serves the worst group best: 12.0 points better than FedAvg")


def test_one_run_is_described_by_itself():
    said = verdict(study(contender("E2FL", FAIR)))
    assert said.startswith("E2FL: clients reach 87.0 % on average; the worst group, B, reaches 86.0 %, 2.0 points less")
    assert "nothing to compare with" in said


def test_groups_served_alike_are_said_so():
    assert "all 2 groups are served alike" in verdict(study(contender("E2FL", {"A": 80, "B": 80})))


def without_groups(made):
    return replace(made, outcomes=tuple(replace(o, group=None, groups={}) for o in made.outcomes))


def test_without_groups_the_worst_tenth_of_clients_speaks():
    wide = without_groups(contender("FedAvg", {"A": [50, *[90] * 19]}))
    narrow = without_groups(contender("E2FL", {"A": [80, *[85] * 19]}))
    said = verdict(study(wide, narrow))
    assert said.startswith("E2FL serves the worst tenth of clients 12.5 points better than FedAvg")
    alone = verdict(study(wide))
    assert "the worst tenth of them reaches 70.0 %" in alone
    assert "group" not in alone


def test_twenty_groups_have_a_worst_tenth_of_two():
    groups = {f"G{place}": 80.0 + place for place in range(20)}
    said = verdict(study(contender("FedAvg", groups), contender("E2FL", dict.fromkeys(groups, 85.0))))
    assert "the worst tenth of groups 4.5 points better" in said


def test_views_do_not_compete():
    view = replace(contender("E2FL (GM)", {"A": 99, "B": 99}), view=True)
    pair = chosen(study(contender("FedAvg", UNFAIR), contender("E2FL", FAIR), view))
    assert (pair.subject.label, pair.rival.label) == ("E2FL", "FedAvg")


def test_seeds_that_are_not_shared_cannot_be_paired():
    first = contender("FedAvg", UNFAIR)
    second = contender("E2FL", FAIR)
    second = replace(second, outcomes=tuple(replace(o, seed=7) for o in second.outcomes))
    assert "They share no seed, so noise cannot be judged." in verdict(study(first, second))


def test_a_protected_attribute_is_told_with_its_direction():
    made = contender("FedAvg", FAIR, protected={"eod": -0.069, "di": -0.04, "spd": -0.2})
    said = verdict(study(made, protected_direction="female minus male"))
    assert "Equal opportunity (female minus male; 0 is even) differs by \N{MINUS SIGN}0.069 with FedAvg." in said


def test_an_undefined_equal_opportunity_is_not_told():
    made = contender("FedAvg", FAIR, protected={"eod": None, "di": -0.04, "spd": -0.2})
    assert "Equal opportunity" not in verdict(study(made))


def test_a_run_that_goes_on_is_not_called_finished():
    said = verdict(study(contender("E2FL", FAIR), unfinished="E2FL, seed 0, is at round 2 of 6"))
    assert said.startswith("Not finished: E2FL, seed 0, is at round 2 of 6.")


@pytest.mark.parametrize("worst", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("mean", [-3.0, 0.0, 3.0])
def test_better_and_worse_follow_the_signs(worst, mean):
    """One algorithm against training alone, so that it may lose in both; few facts, all of them checked."""
    alone = Outcome(0, {"mean": 80.0, "worst10": 70.0}, None, {})
    own = Outcome(0, {"mean": 80.0 + mean, "worst10": 70.0 + worst}, None, {})
    made = [replace(contender(n, FAIR), outcomes=(o,), alone=n == "Local") for n, o in (("Local", alone), ("X", own))]
    first = verdict(study(*made)).split(". ")[0]
    assert ("3.0 points better than" in first) == (worst > 0)
    assert ("3.0 points worse than" in first) == (worst < 0)
    assert ("equally well" in first) == (worst == 0)
    assert ("same accuracy on average" in first) == (mean == 0)
    assert ("at the cost of 3.0 points on average" in first) == (worst > 0 > mean)
    better, worse = "3.0 points better on average" in first, "3.0 points worse on average" in first
    if worst == 0 and mean:
        assert f"on average, X is 3.0 points {'better' if mean > 0 else 'worse'}" in first
    else:
        assert better == (mean > 0)
        assert worse == (mean < 0 and worst <= 0)


def test_what_diverged_is_said_before_anything_else():
    good, bad = contender("E2FL", FAIR), contender("FedAvg", UNFAIR)
    bad = replace(bad, outcomes=tuple(replace(outcome, diverged=3) for outcome in bad.outcomes))
    said = verdict(study(bad, good))
    assert said.startswith("FedAvg diverged: the models of 3 clients give outputs that are no finite numbers")
    assert "E2FL diverged" not in said
    assert "1 client give" in verdict(study(replace(bad, outcomes=(replace(bad.outcomes[0], diverged=1),))))
