"""An own measure: one function of labels and outputs, in tables, on the page, in --columns."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.evaluation import Tally, total
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.report.page import page
from e2fl.report.table import summary_table
from e2fl.runs.runner import run_experiment

MINE = """
from e2fl.metrics import own_measure

@own_measure(title="Cost", unit="EUR", better="less", digits=1)
def cost(y_true, outputs):
    return 100.0 * (outputs.argmax(axis=1) != y_true).mean()
"""
COST = "measures/cost/clients/mean"


def hits(y_true, outputs):
    return float((outputs.argmax(axis=1) == y_true).mean())


def not_a_number(y_true, outputs):
    return "many"


@pytest.fixture
def own(toy, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "mine_measures", raising=False)  # of the test before
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "mine_measures.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return replace(toy, rounds=2, measures=("mine_measures.py:cost",))


def test_a_measure_that_a_configuration_names_is_measured_like_accuracy(own, tmp_path, monkeypatch):
    run = run_experiment(own, out=tmp_path / "run")
    plain = run_experiment(replace(own, measures=()))
    accuracy, cost = run.summary["clients"], run.summary["measures"]["cost"]
    assert cost["clients"]["mean"] == pytest.approx(100 - accuracy["mean"])
    assert cost["clients"]["high10"] == pytest.approx(100 - accuracy["worst10"])
    assert cost["group"]["variance"] == pytest.approx(run.summary["group"]["variance"])
    for name, group in run.summary["groups"].items():
        assert cost["groups"][name] == pytest.approx(100 - group["accuracy"])
    assert plain.summary["clients"] == accuracy  # a measure changes nothing else
    assert plain.summary["loss"] == run.summary["loss"]
    # It stands in tables and on the page without its code.
    (tmp_path / "mine_measures.py").write_text("raise SystemExit('imported')")
    monkeypatch.delitem(sys.modules, "mine_measures")
    study = study_of([e2fl.read_run(tmp_path / "run").record])
    for text in (printed(study), page(study)):
        assert "Cost over clients" in text
        assert "Cost over groups" in text
    value = json.loads((tmp_path / "run" / "summary.json").read_text())["measures"]["cost"]
    table = summary_table(study, [COST])
    assert (table.value(0, COST), table.columns[1].digits) == (value["clients"]["mean"], 1)
    with pytest.raises(ConfigError, match="no measure"):
        summary_table(study, ["measures/auc/clients/mean"])


def test_a_misspelt_path_is_found_before_training(own, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(own.to_toml())
    words = ["compare", "own.toml", "--algorithms", "fedavg,e2fl", "--out", "runs"]
    assert main([*words, "--columns", "measures/cost/clients/maen"]) == 2
    assert "no measure" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_function_is_passed_in_python(toy):
    with pytest.warns(e2fl.E2flWarning, match="nothing is stored"):
        run = e2fl.run(toy, rounds=2, measures=[hits], progress=False)
    mean = run.summary["measures"]["hits"]["clients"]["mean"]
    assert mean == pytest.approx(run.summary["clients"]["mean"] / 100)
    assert run.history["measures/hits/clients/mean"].iloc[-1] == mean


def test_what_is_not_defined_for_some_rows_is_left_out():
    parts = [Tally(n=10, own={"auc": 0.5}), Tally(n=30, own={"auc": 0.9}), Tally(n=5)]
    assert total(parts).own["auc"] == pytest.approx((10 * 0.5 + 30 * 0.9) / 40)
    undefined = [Tally(n=10, own={"auc": np.nan}), Tally(n=30, own={"auc": 0.9})]
    assert total(undefined).own["auc"] == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["auc", "nowhere:auc", "json:dumps", f"{__name__}:not_a_number"])
def test_what_is_no_measure_is_refused(toy, name):
    with pytest.raises(ConfigError, match="measure"):
        run_experiment(replace(toy, rounds=1, measures=(name,)))
