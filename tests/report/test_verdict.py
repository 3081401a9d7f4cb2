"""The verdict and the key figures: true whichever method wins, and no more than the numbers say."""

from dataclasses import replace

import pandas as pd
import pytest

from e2fl.report.study import Method
from e2fl.report.verdict import verdict
from tests.report.studies import method, study

FAIR = {"A": 88.0, "B": 86.0}
UNFAIR = {"A": 95.0, "B": 74.0}
THREE = [{"A": 95, "B": 74}, {"A": 96, "B": 75}, {"A": 94, "B": 73}]


def local(*by_seed):
    return method("Local", *by_seed, alone=True)


def fedavg(*by_seed, **more):
    return method("FedAvg", *(by_seed or (UNFAIR,)), **more)


def e2fl(*by_seed, **more):
    return method("E2FL", *(by_seed or (FAIR,)), **more)


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        (  # nobody is favoured by name
            [e2fl(UNFAIR), fedavg(FAIR)],
            "FedAvg is 12.0 percentage points better than E2FL for the worst group, "
            "and 2.5 percentage points better on average.",
        ),
        (  # Local is not counted; q-FFL is best on average, FedAvg second for the worst group
            [local({"A": 60, "B": 60}), method("q-FFL", {"A": 99, "B": 72}), fedavg(), e2fl()],
            "Of the 3 methods that train together, E2FL is best for the worst group: "
            "12.0 percentage points better than FedAvg, the second best for it",
        ),
        (  # those with malicious clients are not compared, and not counted
            [fedavg(), e2fl(), replace(e2fl(), label="E2FL under scale", attacked=True)],
            "E2FL is 12.0 percentage points better than FedAvg for the worst group, "
            "and 2.5 percentage points better on average.",
        ),
        (
            [e2fl()],
            "E2FL: clients reach 87.0 % on average; the worst group (B) reaches 86.0 %, "
            "the best 88.0 %. There is nothing to compare with",
        ),
        ([e2fl({"A": 80, "B": 80, "C": 80})], "All 3 groups have the same accuracy."),
        (
            [
                fedavg({f"G{k}": 80.0 + k for k in range(20)}),
                e2fl({f"G{k}": 85.0 for k in range(20)}),
            ],
            "E2FL is 4.5 percentage points better than FedAvg for the worst tenth of groups",
        ),
        (
            [
                fedavg({"A": [50, *[90] * 19]}, grouped=False),
                e2fl({"A": [80, *[85] * 19]}, grouped=False),
            ],
            "E2FL is 12.5 percentage points better than FedAvg for the worst tenth of clients",
        ),
        ([fedavg(diverged=3), e2fl()], "FedAvg diverged: the models of 3 clients have losses"),
        ([fedavg(), e2fl()], "One run only, so this may be chance. Repeat with three or more"),
        ([fedavg(), e2fl()], "Training alone was not run"),
        (
            [fedavg(*THREE), e2fl({"A": 88, "B": 86}, {"A": 89, "B": 87.2}, {"A": 87, "B": 85})],
            "Over 3 seeds, the difference for the worst is statistically significant",
        ),
        (
            [
                fedavg({"A": 80, "B": 70}, {"A": 80, "B": 80}),
                e2fl({"A": 80, "B": 79}, {"A": 80, "B": 75}),
            ],
            "Over 2 seeds, the difference for the worst may be chance",
        ),
        ([fedavg(), e2fl(FAIR, first_seed=7)], "They share no seed, so this may be chance."),
        (
            [local({"A": [80] * 4, "B": [80, 80]}), e2fl({"A": [90, 90, 90, 79], "B": [80, 79.9]})],
            "With E2FL, 33.3 % of clients do worse than training alone.",
        ),
        ([local({"A": 70, "B": 70}), e2fl()], "With E2FL, no client does worse"),
        ([local({"A": 99, "B": 99}), e2fl()], "With E2FL, all clients do worse"),
        (
            [local({"A": 90, "B": 90}), fedavg(), e2fl()],
            "Training alone is better still for the worst group, by 4.0 percentage points.",
        ),
    ],
)
def test_the_verdict_says_who_is_best_what_may_be_chance_and_who_is_worse_off(methods, sentence):
    assert sentence in verdict(study(*methods)).text


@pytest.mark.parametrize(
    ("eod", "sentence"),
    [
        (-0.7, "E2FL finds 70.0 percentage points fewer of female than of male."),
        (0.069, "E2FL finds 6.9 percentage points more of female than of male."),
        (0.0, "E2FL finds the same share of positive examples of female and of male."),
        (None, "With E2FL, equal opportunity is undefined: a group has no positive"),
    ],
)
def test_a_protected_attribute_is_told_as_who_is_missed(eod, sentence):
    made = e2fl({"female": 80, "male": 80}, protected={"eod": eod, "di": -0.04, "spd": -0.2})
    said = verdict(study(made)).text
    assert "Both groups have the same accuracy." in said
    assert sentence in said


def test_views_do_not_compete_and_a_run_in_progress_is_not_called_finished():
    view = method("E2FL (GM)", {"A": 99, "B": 99}, view=True)
    made = study(fedavg(), e2fl(), view, unfinished="E2FL, seed 0, is at round 2 of 6")
    assert [one.label for one in made.pair] == ["E2FL", "FedAvg"]
    assert verdict(made).text.startswith("Not finished: E2FL, seed 0, is at round 2 of 6.")


@pytest.mark.parametrize("worst", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("mean", [-3.0, 0.0, 3.0])
def test_better_and_worse_follow_the_signs(worst, mean):
    """One algorithm against training alone, so that it may lose in both."""
    values = {"Local": (80.0, 70.0), "X": (80.0 + mean, 70.0 + worst)}
    keys = ("clients/mean", "clients/worst10")
    made = [
        Method(
            label,
            pd.DataFrame([{"seed": 0, "round": 1} | dict(zip(keys, own, strict=True))]),
            alone=label == "Local",
        )
        for label, own in values.items()
    ]
    first = verdict(study(*made)).text.split(". ")[0]
    pp = "3.0 percentage points"
    assert (f"{pp} better than" in first) == (worst > 0)
    assert (f"{pp} worse than" in first) == (worst < 0)
    assert ("reach the same accuracy for" in first) == (worst == 0)
    assert ("with the same accuracy on average" in first) == (mean == 0)
    assert (f"at the cost of {pp} on average" in first) == (worst > 0 > mean)
    if worst == 0 and mean:
        assert f"on average, X is {pp} {'better' if mean > 0 else 'worse'}" in first
    else:
        assert (f"{pp} better on average" in first) == (mean > 0)
        assert (f"{pp} worse on average" in first) == (mean < 0 and worst <= 0)


def figures(*methods, **more):
    return {figure.title: figure for figure in verdict(study(*methods, **more)).figures}


def test_the_key_figures_stand_beside_those_of_the_second_best():
    shown = figures(local({"A": 80.0, "B": 80.0}), fedavg(), e2fl())
    values = {title: figure.value for title, figure in shown.items()}
    assert values == {
        "Worst group": "86.0 % (B)",
        "Gap between groups": "2.0 points",
        "Mean of clients": "87.0 %",
        "Worse off than training alone": "0.0 %",
    }
    assert "with E2FL; 21.0 with FedAvg" in shown["Gap between groups"].detail
    assert "Worst found group" in figures(e2fl(), groups_found=True)


@pytest.mark.parametrize(
    ("by_seed", "value", "detail"),
    [
        ([{"A": 80, "B": 80}], "80.0 %", "Chance alone explains this"),
        ([{"A": [90.0, 91.0], "B": [70.0, 75.0]}], "72.5 % (B)", "Too few clients (2) to judge"),
        ([{"A": 90, "B": 70}], "70.0 % (B)", "More than chance"),
        ([{"A": 70, "B": 80}, {"A": 80, "B": 75}], "72.5 %", "More than chance"),
        ([{"A": 70, "B": 80}, {"A": 71, "B": 80}], "70.5 % (A)", "More than chance"),
    ],
)
def test_the_worst_group_is_named_and_judged(by_seed, value, detail):
    worst = figures(e2fl(*by_seed))["Worst group"]
    assert worst.value == value
    assert detail in worst.detail
