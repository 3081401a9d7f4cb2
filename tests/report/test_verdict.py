"""The verdict and the key figures: what they say is true, whichever method wins, and no more than the numbers do."""

import numpy as np
import pandas as pd
import pytest

from e2fl.report.study import Method
from e2fl.report.verdict import chosen, key_figures, verdict
from tests.report.studies import method, study

FAIR = {"A": 88.0, "B": 86.0}
UNFAIR = {"A": 95.0, "B": 74.0}


def test_the_fairer_one_is_praised_for_the_worst_group_and_its_cost_is_named():
    said = verdict(
        study(method("FedAvg", {"A": 98, "B": 76}), method("E2FL", {"A": 85.8, "B": 88}))
    )
    # worst: 85.8 - 76 = 9.8; mean: 86.9 - 87 = -0.1
    assert said.startswith(
        "E2FL is 9.8 percentage points better than FedAvg for the worst group, "
        "at the cost of 0.1 percentage points on average."
    )


def test_nobody_is_favoured_by_name():
    said = verdict(study(method("E2FL", UNFAIR), method("FedAvg", FAIR)))
    assert said.startswith(
        "FedAvg is 12.0 percentage points better than E2FL for the worst group, "
        "and 2.5 percentage points better on average."
    )


def test_one_seed_may_be_chance():
    said = verdict(study(method("FedAvg", UNFAIR), method("E2FL", FAIR)))
    assert "One run only, so this may be chance. Repeat with three or more seeds." in said


def test_seeds_that_agree_are_more_than_chance():
    fedavg = method("FedAvg", {"A": 95, "B": 74}, {"A": 96, "B": 75}, {"A": 94, "B": 73})
    e2fl = method("E2FL", {"A": 88, "B": 86}, {"A": 89, "B": 87.2}, {"A": 87, "B": 85})
    said = verdict(study(fedavg, e2fl))
    assert "Over 3 seeds, the difference for the worst is statistically significant" in said
    assert "One run" not in said


def test_seeds_that_disagree_may_be_chance():
    fedavg = method("FedAvg", {"A": 80, "B": 70}, {"A": 80, "B": 80})
    e2fl = method("E2FL", {"A": 80, "B": 79}, {"A": 80, "B": 75})
    said = verdict(study(fedavg, e2fl))
    assert "2.0 percentage points better" in said
    assert "the difference for the worst may be chance" in said


def test_a_tie_is_called_a_tie():
    said = verdict(study(method("FedAvg", FAIR), method("E2FL", FAIR)))
    assert "reach the same accuracy for the worst group, with the same accuracy on average." in said
    assert "better" not in said
    assert "worse" not in said


def test_clients_worse_off_than_alone_are_counted():
    alone = method("Local", {"A": [80, 80, 80, 80], "B": [80, 80]}, alone=True)
    e2fl = method("E2FL", {"A": [90, 90, 90, 79], "B": [80, 79.9]})
    fedavg = method("FedAvg", {"A": [95, 95, 95, 95], "B": [60, 60]})
    said = verdict(study(alone, fedavg, e2fl))
    assert "With E2FL, 2 of 6 clients do worse than training alone." in said


def test_nobody_worse_off_is_said_so():
    alone = method("Local", {"A": 70, "B": 70}, alone=True)
    assert "no client does worse" in verdict(study(alone, method("E2FL", FAIR)))


def test_the_count_is_averaged_over_seeds():
    alone = method("Local", {"A": [80, 80]}, {"A": [80, 80]}, alone=True)
    e2fl = method("E2FL", {"A": [79, 90]}, {"A": [90, 90]})
    assert "0.5 of 2 clients (mean over 2 seeds) do worse" in verdict(study(alone, e2fl))


def test_training_alone_may_serve_the_worst_best():
    alone = method("Local", {"A": 90, "B": 90}, alone=True)
    said = verdict(study(alone, method("FedAvg", UNFAIR), method("E2FL", FAIR)))
    assert "Training alone is better still for the worst group, by 4.0 percentage points." in said


def test_one_algorithm_is_held_against_training_alone():
    alone = method("Local", {"A": 90, "B": 90}, alone=True)
    said = verdict(study(alone, method("E2FL", FAIR)))
    assert said.startswith(
        "E2FL is 4.0 percentage points worse than training alone for the worst group, and 3.0 percentage points worse"
    )


def test_training_alone_not_run_is_said():
    said = verdict(study(method("FedAvg", UNFAIR), method("E2FL", FAIR)))
    assert "Training alone was not run" in said


def test_many_algorithms_are_held_against_the_second_best_for_the_worst_group():
    """Local is not counted; q-FFL is best on average, but FedAvg is second for the worst group."""
    said = verdict(
        study(
            method("Local", {"A": 60, "B": 60}, alone=True),
            method("q-FFL", {"A": 99, "B": 72}),
            method("FedAvg", UNFAIR),
            method("E2FL", FAIR),
        )
    )
    assert said.startswith(
        "Of the 3 methods that train together, E2FL is best for the worst group: "
        "12.0 percentage points better than FedAvg, the second best for it"
    )


def test_one_run_is_described_by_itself():
    said = verdict(study(method("E2FL", FAIR)))
    assert said.startswith(
        "E2FL: clients reach 87.0 % on average; the worst group (B) reaches 86.0 %, 2.0 percentage points less"
    )
    assert "nothing to compare with" in said


def test_groups_with_the_same_accuracy_are_not_called_served_alike():
    made = method("E2FL", {"A": 80, "B": 80}, protected={"eod": -0.7, "di": 0.0, "spd": 0.0})
    said = verdict(study(made, protected_groups=("Female", "Male")))
    assert "Both groups have the same accuracy." in said
    assert "alike" not in said
    assert "E2FL finds 70.0 percentage points fewer of Female than of Male." in said
    assert "All 3 groups have the same accuracy." in verdict(
        study(method("E2FL", {"A": 80, "B": 80, "C": 80}))
    )


def test_without_groups_the_worst_tenth_of_clients_speaks():
    wide = method("FedAvg", {"A": [50, *[90] * 19]}, grouped=False)
    narrow = method("E2FL", {"A": [80, *[85] * 19]}, grouped=False)
    said = verdict(study(wide, narrow))
    assert said.startswith(
        "E2FL is 12.5 percentage points better than FedAvg for the worst tenth of clients"
    )
    alone = verdict(study(wide))
    assert "the worst tenth of clients reaches 70.0 %" in alone
    assert "group" not in alone


def test_twenty_groups_have_a_worst_tenth_of_two():
    groups = {f"G{place}": 80.0 + place for place in range(20)}
    said = verdict(study(method("FedAvg", groups), method("E2FL", dict.fromkeys(groups, 85.0))))
    assert "4.5 percentage points better than FedAvg for the worst tenth of groups" in said


def test_views_do_not_compete():
    view = method("E2FL (GM)", {"A": 99, "B": 99}, view=True)
    pair = chosen(study(method("FedAvg", UNFAIR), method("E2FL", FAIR), view))
    assert (pair.subject.label, pair.baseline.label) == ("E2FL", "FedAvg")


def test_seeds_that_are_not_shared_cannot_be_paired():
    first = method("FedAvg", UNFAIR)
    second = method("E2FL", FAIR, first_seed=7)
    assert "They share no seed, so this may be chance." in verdict(study(first, second))


def test_a_protected_attribute_is_told_as_who_is_missed():
    made = method("FedAvg", FAIR, protected={"eod": -0.069, "di": -0.04, "spd": -0.2})
    said = verdict(study(made, protected_groups=("female", "male")))
    assert (
        "Of the examples that are truly positive, FedAvg finds 6.9 percentage points fewer of female than of"
        in said
    )


def test_an_undefined_equal_opportunity_is_said_to_be_undefined():
    made = method("FedAvg", FAIR, protected={"eod": None, "di": -0.04, "spd": -0.2})
    said = verdict(study(made, protected_groups=("female", "male")))
    assert "equal opportunity is undefined: a group has no positive test examples" in said


def test_a_run_in_progress_is_not_called_finished():
    said = verdict(study(method("E2FL", FAIR), unfinished="E2FL, seed 0, is at round 2 of 6"))
    assert said.startswith("Not finished: E2FL, seed 0, is at round 2 of 6.")


@pytest.mark.parametrize("worst", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("mean", [-3.0, 0.0, 3.0])
def test_better_and_worse_follow_the_signs(worst, mean):
    """One algorithm against training alone, so that it may lose in both; few facts, all of them checked."""
    values = {"Local": (80.0, 70.0), "X": (80.0 + mean, 70.0 + worst)}
    made = [
        Method(
            label,
            pd.DataFrame(
                [{"seed": 0, "round": 1, "clients/mean": average, "clients/worst10": lowest}]
            ),
            alone=label == "Local",
        )
        for label, (average, lowest) in values.items()
    ]
    first = verdict(study(*made)).split(". ")[0]
    pp = "3.0 percentage points"
    assert (f"{pp} better than" in first) == (worst > 0)
    assert (f"{pp} worse than" in first) == (worst < 0)
    assert ("reach the same accuracy for" in first) == (worst == 0)
    assert ("with the same accuracy on average" in first) == (mean == 0)
    assert (f"at the cost of {pp} on average" in first) == (worst > 0 > mean)
    better, worse = f"{pp} better on average" in first, f"{pp} worse on average" in first
    if worst == 0 and mean:
        assert f"on average, X is {pp} {'better' if mean > 0 else 'worse'}" in first
    else:
        assert better == (mean > 0)
        assert worse == (mean < 0 and worst <= 0)


def test_what_diverged_is_said_before_anything_else():
    good, bad = method("E2FL", FAIR), method("FedAvg", UNFAIR, diverged=3)
    said = verdict(study(bad, good))
    assert said.startswith(
        "FedAvg diverged: the models of 3 clients give outputs that are not finite"
    )
    assert "E2FL diverged" not in said
    assert "1 client give" in verdict(study(method("FedAvg", UNFAIR, diverged=1)))


def figures(*methods, **more):
    return {figure.title: figure for figure in key_figures(study(*methods, **more))}


def test_the_key_figures_name_the_worst_group_the_gap_the_best_method_and_who_is_worse_off():
    alone = method("Local", {"A": [80.0] * 10, "B": [80.0] * 10}, alone=True)
    found = figures(alone, method("FedAvg", UNFAIR), method("E2FL", FAIR))
    assert found["Worst group"].value == "B: 86.0 %"
    assert found["Gap between best and worst group"].value == "2.0"
    assert "21.0 with FedAvg" in found["Gap between best and worst group"].detail
    assert found["Best for the worst group"].value == "E2FL"
    assert "One run only" in found["Best for the worst group"].detail
    assert found["Worse off than training on their own"].value == "0 of 20 clients"


def test_no_group_is_called_the_worst_where_all_are_the_same():
    found = figures(method("E2FL", {"A": 80, "B": 80}))["Worst group"]
    assert (found.value, found.detail) == ("80.0 %", "All groups have this accuracy with E2FL.")


def test_few_clients_are_too_few_to_judge():
    found = figures(method("E2FL", {"A": [90.0, 91.0], "B": [70.0, 75.0]}))
    assert "Too few clients (2) to judge" in found["Worst group"].detail


def test_groups_of_one_distribution_may_differ_by_chance():
    rng = np.random.default_rng(1)
    groups = {f"G{k}": (80 + 8 * rng.standard_normal(6)).tolist() for k in range(9)}
    assert "by chance" in figures(method("E2FL", groups))["Worst group"].detail
    groups["G3"] = [value - 40 for value in groups["G3"]]
    detail = figures(method("E2FL", groups))["Worst group"].detail
    assert "Lower than the other groups, statistically significant" in detail
    assert "95 % interval" in detail


def test_a_worst_group_that_changes_with_the_seed_is_said_so():
    found = figures(method("E2FL", {"A": 70, "B": 80}, {"A": 80, "B": 75}))["Worst group"]
    assert found.value == "72.5 %"
    assert "another group in each seed" in found.detail


def test_found_groups_are_called_so():
    assert "Worst found group" in figures(method("E2FL", FAIR), groups_found=True)
