"""What chance alone explains is shown, and is not called a result."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from e2fl.metrics.chance import chance, chance_draws
from e2fl.report.export import export
from e2fl.report.figures import key_figures
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.report.page import page
from e2fl.report.sections.outcome import main_table
from e2fl.report.verdict import verdict
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from tests.report.studies import method, study

HOSPITALS = 40
ROWS = 13


def hospitals(label, rate, seed):
    """Forty hospitals in two groups, all served alike, each tested on thirteen rows."""
    right = np.random.default_rng(seed).binomial(ROWS, rate, HOSPITALS)
    accuracy = (100 * right / ROWS).tolist()
    return method(label, {"A": accuracy[:20], "B": accuracy[20:]}, test_rows=ROWS)


def test_chance_gives_the_variance_of_a_binomial():
    accuracy, n = np.full(400, 80.0), np.full(400, 25)
    draws = chance_draws(accuracy, n, np.arange(400), np.arange(400) % 4)
    expected = chance(draws)
    assert expected["clients/variance"].value == pytest.approx(1e4 * 0.8 * 0.2 / 25, rel=0.02)
    assert expected["group/variance"].value == pytest.approx(
        1e4 * 0.8 * 0.2 / (25 * 100) * 3 / 4, rel=0.1
    )
    assert expected["clients/worst10"].explains(expected["clients/worst10"].value)
    assert not expected["clients/worst10"].explains(expected["clients/worst10"].limit - 1)
    assert not expected["clients/variance"].explains(expected["clients/variance"].limit + 1)


def test_chance_explains_clients_served_alike_in_95_of_100_tables():
    explained = [hospitals("X", 0.8, seed).by_chance("clients/variance") for seed in range(60)]
    assert np.mean(explained) >= 0.85


def test_what_chance_gives_stands_beside_every_spread():
    made = study(hospitals("FedAvg", 0.8, 1), hospitals("E2FL", 0.82, 2))
    table = main_table(made)
    for level in ("group", "clients"):
        for kind in ("worst10", "best10", "std", "variance"):
            assert table.value(0, f"{level}/{kind}_chance") is not None
    sampling = 1e4 * 0.8 * 0.2 / ROWS  # 123 percentage points squared
    assert table.value(0, "clients/variance_chance") == pytest.approx(sampling, rel=0.25)
    assert "What chance alone gives" in printed(made)
    assert "chance" in page(made)


def test_nothing_is_bold_and_nobody_is_better_where_chance_explains_every_spread():
    made = study(hospitals("FedAvg", 0.8, 1), hospitals("E2FL", 0.8, 2))
    marked = {key for _, key in main_table(made).bold}
    assert not {key for key in marked if key.endswith(("worst10", "best10", "std", "variance"))}
    said = verdict(made)
    assert said.startswith("Chance alone explains the worst group of every method")
    best = {figure.title: figure.value for figure in key_figures(made)}
    assert best["Best for the worst group"] == "not known"


def test_a_spread_beyond_chance_is_marked_and_judged():
    unfair = method("FedAvg", {"A": [95.0] * 20, "B": [60.0] * 20}, test_rows=ROWS)
    made = study(unfair, hospitals("E2FL", 0.8, 2))
    assert any(key == "group/variance" for _, key in main_table(made).bold)
    assert verdict(made).startswith("E2FL is")


def test_one_method_alone_says_what_chance_gives():
    assert "Chance alone explains this" in verdict(study(hospitals("E2FL", 0.8, 3)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from e2fl.config.experiment import from_dict

    toy = from_dict(
        {
            "name": "toy",
            "rounds": 2,
            "data": {"name": "e2fl.testing.toy:Toy"},
            "model": {"name": "mlp", "hidden": [24]},
            "algorithm": {"name": "e2fl", "clients_per_round": 4},
        }
    )
    return run_experiment(toy, out=tmp_path_factory.mktemp("runs") / "run")


def test_few_test_rows_are_warned_of(run):
    assert any("test rows" in warning for warning in study_of([run]).warnings)
    assert "test rows" in printed(study_of([run]))
    many = [row | {"n": 50} for row in run.clients]
    assert not study_of([replace(run, clients=many)]).warnings


@pytest.mark.parametrize(("stability", "warned"), [(0.51, True), (0.7, False)])
def test_groups_that_may_be_noise_are_warned_of_in_terminal_and_page(run, stability, warned):
    summary = run.summary | {"metadata": {"clustering": {"stability": stability}}}
    made = study_of([replace(run, summary=summary)])
    for text in (printed(made), page(made)):
        assert ("the groups agree to 0.51 only" in text) == warned


def test_settings_in_which_methods_differ_are_named(run):
    other = run.experiment.variant("fedavg")
    slower = replace(other, learner=run.experiment.learner | {"learning_rate": 0.5})
    summary = run.summary | {"algorithm": "fedavg"}
    made = study_of([run, replace(run, config=slower.to_dict(), summary=summary)])
    assert any(words.startswith("learner.learning_rate: ") for words in made.settings)
    assert "FedAvg 0.5" in "; ".join(made.settings)
    assert "FedAvg 0.5" in printed(made)
    assert "FedAvg 0.5" in page(made)
    assert not study_of([run]).settings


def test_a_link_in_a_run_folder_puts_no_other_file_into_the_page(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("do not show")
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    for name in ("data.svg", "command.txt"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
    (folder / "data.json").write_text(json.dumps({"clients": 8}))
    made = study_of([read_run(folder)])
    assert made.data_picture is None
    assert "do not show" not in page(made)


def test_figures_are_pdf_and_the_rest_of_the_page_is_folded(tmp_path):
    made = study(method("FedAvg", {"A": 90, "B": 80}), method("E2FL", {"A": 85, "B": 84}))
    files = {path.name for path in export(made, tmp_path)}
    assert "group-accuracy.pdf" in files
    assert (tmp_path / "group-accuracy.pdf").read_bytes().startswith(b"%PDF")
    text = page(made)
    for key in ("tradeoff", "made", "definitions"):
        assert f'id="fold-{key}"' in text
    for key in ("outcome", "groups", "clients"):
        assert f'id="{key}"' in text
        assert f'id="fold-{key}"' not in text
