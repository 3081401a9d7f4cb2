"""What chance alone explains is shown, and is not called a result; doubts are said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from e2fl.metrics.intervals import chance_draws
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.report.page import page
from e2fl.report.sections import main_table
from e2fl.report.study import Method
from e2fl.report.verdict import verdict
from e2fl.runs.store import read_run
from tests.report.studies import method, parts_of, row_of, study

HOSPITALS = 40
ROWS = 13
SAMPLING = 1e4 * 0.8 * 0.2 / ROWS  # 123 percentage points squared


def hospitals(label, rate, seed):
    """Forty hospitals in two groups, all served alike, each tested on thirteen rows."""
    right = np.random.default_rng(seed).binomial(ROWS, rate, HOSPITALS)
    accuracy = (100 * right / ROWS).tolist()
    return method(label, {"A": accuracy[:20], "B": accuracy[20:]}, test_rows=ROWS)


def test_chance_gives_the_variance_of_a_binomial():
    accuracy, n = np.full(400, 80.0), np.full(400, ROWS)
    draws = chance_draws(accuracy, n, np.arange(400), np.arange(400) % 4)
    assert draws["clients/variance"].mean() == pytest.approx(SAMPLING, rel=0.02)
    assert draws["group/variance"].mean() == pytest.approx(SAMPLING / 100 * 3 / 4, rel=0.1)
    assert np.all(draws["clients/worst10"] <= draws["clients/best10"])


def test_clients_that_share_model_and_test_rows_are_one_draw():
    """A hundred clients of a group that are tested on the same rows tell no more than one."""
    frame = parts_of({"A": 80.0, "B": 80.0}, clients_each=100, test_rows=ROWS).assign(seed=0)
    shared = frame.assign(loss=np.repeat([0.5, 0.7], 100))
    own = frame.assign(loss=np.linspace(0.5, 0.7, 200))
    for parts, draws in ((shared, 1), (own, 100), (shared.assign(loss=np.nan), 100)):
        made = Method("E2FL", pd.DataFrame([row_of(frame)]), parts)
        assert made.chance["group/variance"] == pytest.approx(SAMPLING / draws / 2, rel=0.15)
    # Many rows that all give one accuracy are the same rows, also without a loss.
    many = parts_of({"A": 80.0, "B": 80.0}, clients_each=100, test_rows=200).assign(seed=0)
    views = [many.assign(loss=loss) for loss in (0.5, np.nan)]
    known, seen = (Method("GM", pd.DataFrame([row_of(many)]), parts).chance for parts in views)
    assert known == seen


def test_chance_explains_clients_served_alike_in_95_of_100_tables():
    alike = [hospitals("X", 0.8, seed) for seed in range(60)]
    for path in ("clients/variance", "clients/worst10", "group/worst10"):
        assert np.mean([one.by_chance(path) for one in alike]) >= 0.85


def nodes(*deviations, rows=400, rate=0.8):
    """Three groups of one client each, so many standard errors above or below the rate."""
    error = 100 * np.sqrt(rate * (1 - rate) / rows)
    parts = {f"G{place}": 100 * rate + error * value for place, value in enumerate(deviations)}
    frame = parts_of(parts, clients_each=1, test_rows=rows)
    return Method("E2FL", pd.DataFrame([row_of(frame)]), frame.assign(seed=0))


def test_few_groups_are_tested_by_how_far_they_lie_apart():
    """The lowest of three is ordinary (p = 0.06), the groups together are not (p = 0.01)."""
    assert "More than chance" in verdict(study(nodes(-2.05, -0.1, 2.15))).figures[0].detail
    assert "Chance alone explains" in verdict(study(nodes(-1.2, 0.2, 1.0))).figures[0].detail
    rng = np.random.default_rng(0)
    alike = [nodes(*rng.normal(0, 1, 3)).by_chance("group/worst10") for _ in range(200)]
    assert 0.91 <= np.mean(alike) <= 0.99


def test_what_chance_gives_stands_beside_every_spread():
    made = study(hospitals("FedAvg", 0.8, 1), hospitals("E2FL", 0.82, 2))
    table = main_table(made)
    for level in ("group", "clients"):
        for kind in ("worst10", "best10", "std", "variance"):
            assert table.value(0, f"{level}/{kind}_chance") > 0
    assert table.value(0, "clients/variance_chance") == pytest.approx(SAMPLING, rel=0.25)
    assert "What chance alone gives" in printed(made)
    assert ">chance 1" in page(made)


def test_no_cell_is_bold_and_no_method_is_better_where_chance_explains_every_spread():
    made = study(hospitals("FedAvg", 0.8, 1), hospitals("E2FL", 0.8, 2))
    marked = {key for _, key in main_table(made).bold}
    assert not {key for key in marked if key.endswith(("worst10", "best10", "std", "variance"))}
    assert verdict(made).text.startswith("Chance alone explains the worst group of every method")
    assert "Chance alone explains this" in verdict(study(hospitals("E2FL", 0.8, 3))).text
    alone = replace(hospitals("Local", 0.85, 4), alone=True)
    several = study(alone, hospitals("FedAvg", 0.8, 1), hospitals("E2FL", 0.8, 2))
    assert alone.mean("group/worst10") > several.subject.mean("group/worst10") + 1
    assert verdict(several).text.startswith("Chance alone explains the worst group of every method")
    assert "better still" not in verdict(several).text


def test_methods_that_differ_beyond_chance_are_told_apart_though_each_serves_all_alike():
    made = study(hospitals("FedAvg", 0.5, 1), hospitals("E2FL", 0.95, 2))
    assert all(method.by_chance("group/worst10") for method in made.main)
    assert verdict(made).text.startswith("E2FL is ")


def test_a_spread_beyond_chance_is_marked_and_judged():
    unfair = method("FedAvg", {"A": [95.0] * 20, "B": [60.0] * 20}, test_rows=ROWS)
    made = study(unfair, hospitals("E2FL", 0.8, 2))
    assert any(key == "group/variance" for _, key in main_table(made).bold)
    assert verdict(made).text.startswith("E2FL is")


def test_few_test_rows_are_warned_of(runs):
    run = read_run(runs / "e2fl-seed0")
    assert "test rows" in printed(study_of([run]))
    many = [row | {"n": 50} for row in run.clients]
    assert not study_of([replace(run, clients=many)]).warnings


@pytest.mark.parametrize(
    ("clustering", "words"),
    [
        ({"stability": 0.51, "blur": 0.1, "cloud": 0.4}, "the groups agree to 0.51 only"),
        ({"stability": 0.78, "blur": 0.3, "cloud": 0.4}, "0.75 times"),
        ({"stability": 0.7, "blur": 0.1, "cloud": 0.4}, None),
        ({"cost": 1.0, "steps": 1, "stability": 1.0}, None),  # a single group has no blur
        ({"own": 2.0}, None),
    ],
)
def test_groups_that_may_be_noise_are_warned_of_in_terminal_and_page(runs, clustering, words):
    run = read_run(runs / "e2fl-seed0")
    made = study_of([replace(run, summary=run.summary | {"metadata": {"clustering": clustering}})])
    for text in (printed(made), page(made)):
        assert ("may be noise" in text) == (words is not None)
        assert words is None or words in text


def test_settings_in_which_methods_differ_are_named(runs):
    e2fl, fedavg = (read_run(runs / f"{name}-seed0") for name in ("e2fl", "fedavg"))
    slower = fedavg.config | {"learner": fedavg.config["learner"] | {"learning_rate": 0.5}}
    made = study_of([e2fl, replace(fedavg, config=slower)])
    assert made.settings == ("learner.learning_rate: FedAvg 0.5, E2FL 0.1",)
    for text in (printed(made), page(made)):
        assert "FedAvg 0.5" in text
    assert not study_of([e2fl, fedavg]).settings


def test_runs_of_different_data_are_shown_without_a_verdict(runs):
    alone, fedavg, e2fl = (read_run(runs / f"{n}-seed0") for n in ("local", "fedavg", "e2fl"))
    other = replace(e2fl, config=e2fl.config | {"data": e2fl.config["data"] | {"noise": 3.0}})
    made = study_of([alone, fedavg, other])
    assert verdict(made).text == "No verdict: the runs have different data. " + (
        "Compare runs of the same data."
    )
    assert not verdict(made).figures
    assert not main_table(made).bold
    assert not any("gain/mean" in method.final for method in made.methods)
    assert "the runs have different data" in page(made)


def test_a_table_is_the_same_data_wherever_it_lies(runs):
    def run(name, path, digest):
        one = read_run(runs / f"{name}-seed0")
        config = one.config | {"data": {"name": "table", "path": path, "client": "site"}}
        return replace(one, config=config, summary=one.summary | {"data": {"sha256": digest}})

    assert study_of([run("fedavg", "a.csv", "1"), run("e2fl", "/b/a.csv", "1")]).same_data
    assert not study_of([run("fedavg", "a.csv", "1"), run("e2fl", "a.csv", "2")]).same_data
