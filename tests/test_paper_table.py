"""The table for a paper: columns, order, names, and what ± is."""

import csv

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.report.from_runs import study_of
from e2fl.report.paper import PaperTable, _display


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "runs"
    base = {
        "name": "toy",
        "rounds": 2,
        "data": {"name": "e2fl.testing.toy:Toy", "noise": 1.5},
        "model": {"name": "mlp", "hidden": [24]},
        "learner": {"learning_rate": 0.05},
        "algorithm": {"name": "e2fl", "clients_per_round": 4},
    }
    e2fl.compare(base, ["e2fl", "qffl", "fedavg"], seeds=[0, 1, 2], out=out, progress=False)
    return out


def runs_of(folder):
    return [e2fl.read_run(path.parent).record for path in sorted(folder.glob("*/summary.json"))]


def test_columns_and_order_are_those_asked_for_and_the_figures_those_of_the_runs(folder, tmp_path):
    out = tmp_path / "figures"
    command = ["report", str(folder), "--out", str(tmp_path / "page.html"), "--export", str(out)]
    assert (
        main([*command, "--columns", "user/mean,group/variance", "--order", "fedavg,q-FFL", "--plus-minus", "ci"]) == 0
    )
    rows = list(csv.reader((out / "paper.csv").read_text().splitlines()))
    assert rows[0] == ["method", "user/mean", "user/mean/ci", "group/variance", "group/variance/ci"]
    assert [row[0] for row in rows[1:3]] == ["FedAvg", "q-FFL"]
    means = [e2fl.read_run(folder / f"qffl-seed{seed}").summary["user"]["mean"] for seed in (0, 1, 2)]
    assert float(rows[2][1]) == pytest.approx(np.mean(means), abs=1e-4)
    assert float(rows[2][2]) == pytest.approx(4.302653 * np.std(means, ddof=1) / np.sqrt(3), abs=1e-3)
    text = (out / "paper.tex").read_text()
    assert r"half the 95 \% confidence interval of the mean over 3 seeds" in text
    assert r"\begin{table*}" in text
    assert text.index("FedAvg") < text.index("q-FFL") < text.index("E2FL")


def test_plus_minus_is_named_or_left_out(folder):
    study = study_of(runs_of(folder))
    assert "standard deviation over 3 seeds" in PaperTable(study).latex()
    plain = PaperTable(study, plus_minus="none")
    assert "pm" not in plain.latex()
    assert plain.csv().startswith("method,group/mean,group/worst10,group/variance,user/mean,")
    one = study_of([run for run in runs_of(folder) if run.experiment.seed == 0])
    assert "pm" not in PaperTable(one).latex()  # nothing is known about other seeds


def test_the_best_of_a_column_is_bold(folder):
    table = PaperTable(study_of(runs_of(folder)), ["user/mean"], plus_minus="none")
    means = {name: method.mean("user/mean") for name, method in table.rows.items()}
    best = max(means, key=means.get)
    assert rf"\textbf{{{means[best]:.2f}}}" in table.latex()
    assert table.latex().count("textbf") == sum(round(m, 2) == round(means[best], 2) for m in means.values())


def test_titles_span_neighbouring_columns_only(folder):
    text = PaperTable(study_of(runs_of(folder)), ["user/mean", "group/mean", "user/variance", "user/best10"]).latex()
    assert r"& \multicolumn{1}{c}{Clients} & \multicolumn{1}{c}{Groups} & \multicolumn{2}{c}{Clients} \\" in text


def test_unknown_columns_and_methods_are_explained(folder):
    study = study_of(runs_of(folder))
    with pytest.raises(ConfigError, match="no run has a measure 'group/worst'"):
        PaperTable(study, ["group/worst"])
    with pytest.raises(ConfigError, match="no method 'ditto' to order; the runs have"):
        PaperTable(study, order=["ditto"])


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("QFFL", "q-FFL"),
        ("E2FL [algorithm.grouping.name=lowest_loss]", "E2FL (lowest loss)"),
        ("E2FL (GM)", "E2FL (GM)"),
        ("E2FL [learner.epochs=3]", "E2FL [learner.epochs=3]"),
        ("mine & yours", "mine & yours"),
    ],
)
def test_names_are_as_papers_write_them(label, name):
    assert _display(label) == name
