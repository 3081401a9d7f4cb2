"""The table for a paper: columns, order, names, and what ± is."""

import csv
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.metrics import COLUMNS
from e2fl.report.from_runs import labels_of, study_of
from e2fl.report.methods import summary_table
from e2fl.report.verdict import verdict


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
        main(
            [
                *command,
                "--columns",
                "clients/mean,group/variance",
                "--order",
                "fedavg,q-FFL",
                "--plus-minus",
                "ci",
            ]
        )
        == 0
    )
    rows = list(csv.reader((out / "paper.csv").read_text().splitlines()))
    assert rows[0] == [
        "method",
        "clients/mean",
        "clients/mean/ci",
        "group/variance",
        "group/variance/ci",
        "group/variance_chance",
    ]
    assert [row[0] for row in rows[1:3]] == ["FedAvg", "q-FFL"]
    means = [
        e2fl.read_run(folder / f"qffl-seed{seed}").summary["clients"]["mean"] for seed in (0, 1, 2)
    ]
    assert float(rows[2][1]) == pytest.approx(np.mean(means), abs=1e-4)
    assert float(rows[2][2]) == pytest.approx(
        4.302653 * np.std(means, ddof=1) / np.sqrt(3), abs=1e-3
    )
    text = (out / "paper.tex").read_text()
    assert r"half the 95 \% confidence interval of the mean over 3 seeds" in text
    assert r"\begin{table*}" in text
    assert text.index("FedAvg") < text.index("q-FFL") < text.index("E2FL")


def test_plus_minus_is_named_or_left_out(folder):
    study = study_of(runs_of(folder))
    assert "standard deviation over 3 seeds" in summary_table(study).latex()
    plain = summary_table(study, plus_minus="none")
    assert "pm" not in plain.latex()
    assert plain.csv().startswith("method,group/mean,group/worst10,")
    one = study_of([run for run in runs_of(folder) if run.experiment.seed == 0])
    assert "pm" not in summary_table(one).latex()  # nothing is known about other seeds


def test_the_best_of_a_column_is_bold(folder):
    study = study_of(runs_of(folder))
    text = summary_table(study, ["clients/mean"], plus_minus="none").latex()
    means = [round(method.mean("clients/mean"), 2) for method in study.methods]
    assert rf"\textbf{{{max(means):.2f}}}" in text
    assert text.count("textbf") == means.count(max(means))


def test_views_can_be_left_out(folder):
    study = study_of(runs_of(folder))
    assert "E2FL (GM)" in summary_table(study).text()
    assert "(GM)" not in summary_table(study, views=False).text()


def test_titles_span_neighbouring_columns_only(folder):
    text = summary_table(
        study_of(runs_of(folder)),
        ["clients/mean", "group/mean", "clients/variance", "clients/best10"],
    ).latex()
    assert (
        r"& \multicolumn{1}{c}{Clients} & \multicolumn{1}{c}{Groups} & \multicolumn{2}{c}{Clients} \\"
        in text
    )


def test_unknown_columns_and_methods_are_explained(folder):
    study = study_of(runs_of(folder))
    with pytest.raises(
        ConfigError, match="there is no measure 'group/worst'; did you mean 'group/worst10'"
    ):
        summary_table(study, ["group/worst"])
    with pytest.raises(ConfigError, match="no run has a measure 'protected/eod'"):
        summary_table(study, ["protected/eod"])
    with pytest.raises(ConfigError, match="no method 'ditto'; the methods are"):
        summary_table(study, order=["ditto"])


def test_methods_that_differ_in_their_grouping_are_named_by_it(toy):
    other = replace(toy, algorithm=toy.algorithm | {"grouping": {"name": "lowest_loss"}})
    assert labels_of([toy, other]) == ["E2FL", "E2FL (lowest loss)"]
    longer = replace(toy, learner=toy.learner | {"epochs": 3})
    assert labels_of([toy, longer])[1] == "E2FL [learner.epochs=3]"


def test_bytes_have_a_unit_that_fits_and_no_plus_minus(folder):
    table = summary_table(study_of(runs_of(folder)), ["clients/mean", "bytes/up"])
    sent = e2fl.read_run(folder / "fedavg-seed0").summary["bytes"]["up_per_client_round"] / 2**10
    row = next(line for line in table.text().splitlines() if line.startswith("FedAvg"))
    assert row.split()[-1] == f"{sent:.2f}"
    assert "KiB / client / round" in table.latex()


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.changed([]).to_toml())
    return [
        "compare",
        "toy.toml",
        "--algorithms",
        "local,fedavg,e2fl",
        "--set",
        "rounds=2",
        "--out",
        "runs",
    ]


def test_a_comparison_of_several_seeds_prints_plus_minus_and_the_verdict(config, capsys):
    assert (
        main(
            [
                *config,
                "--seeds",
                "0,1,2",
                "--order",
                "e2fl,local",
                "--columns",
                "group/mean,bytes/up",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    study = study_of(runs_of(Path("runs")))
    assert verdict(study) in said
    assert "± is the standard deviation over 3 seeds." in said
    values = list(
        next(m for m in study.methods if m.label == "FedAvg").by_seed("group/mean").values()
    )
    assert f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in said
    assert said.index("\nE2FL ") < said.index("\nLocal") < said.index("\nFedAvg")
    assert "worst" not in said.split("Accuracy in percent")[0]
    assert (
        Path("runs/paper.tex").read_text()
        == summary_table(study, ["group/mean", "bytes/up"], ["e2fl", "local"]).latex()
    )


def test_a_comparison_of_one_seed_prints_the_plain_table(config, capsys):
    assert main(config) == 0
    said = capsys.readouterr().out
    assert "±" not in said
    assert "MiB / client / round" in said or "KiB / client / round" in said
    header = Path("runs/paper.csv").read_text().splitlines()[0].split(",")
    assert [key for key in header[1:] if not key.endswith("_chance")] == list(COLUMNS["printed"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "group/worst"], "there is no measure 'group/worst'"),
        (
            ["--order", "qffl"],
            "there is no method 'qffl'; the methods are Local, FedAvg, E2FL",
        ),
    ],
)
def test_mistakes_in_the_table_are_found_before_training(config, words, message, capsys):
    assert main([*config, *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_view_can_be_ordered(config, capsys):
    assert main([*config, "--order", "E2FL (GM)"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[3].startswith("E2FL (GM)")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("columns", [(), COLUMNS["seeds"]])
def test_the_table_fits_a_page_of_two_columns(folder, columns, tmp_path):
    document = (
        r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx}\begin{document}Text."
        + summary_table(study_of(runs_of(folder)), columns).latex()
        + r"\end{document}"
    )
    (tmp_path / "paper.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout
