"""The table for a paper: columns, order, names, and what ± is."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.config.sections import completed
from e2fl.data import from_arrays
from e2fl.errors import ConfigError
from e2fl.metrics import COLUMNS
from e2fl.report.from_runs import labels_of, read_runs, study_of
from e2fl.report.page import page
from e2fl.report.table import summary_table
from e2fl.report.verdict import verdict
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import read_run
from e2fl.testing.toy import Toy


@pytest.fixture(scope="module")
def study(runs):
    return study_of(read_runs([runs])[0])


def three(runs, name):
    return [read_run(runs / f"{name}-seed{seed}") for seed in range(3)]


def test_columns_are_those_asked_for_and_the_numbers_those_of_the_runs(runs, tmp_path):
    command = ["report", str(runs), "--out", str(tmp_path / "page.html"), "--export", str(tmp_path)]
    chosen = ["--columns", "clients/mean,group/variance", "--no-views"]
    assert main([*command, *chosen, "--plus-minus", "ci"]) == 0
    rows = list(csv.DictReader((tmp_path / "paper.csv").read_text().splitlines()))
    keys = ["method", "clients/mean", "clients/mean/ci", "group/variance", "group/variance/ci"]
    assert list(rows[0]) == [*keys, "group/variance_chance"]
    assert [row["method"] for row in rows] == ["Local", "FedAvg", "E2FL"]
    means = [run.summary["clients"]["mean"] for run in three(runs, "e2fl")]
    half = 4.302653 * np.std(means, ddof=1) / np.sqrt(3)
    assert float(rows[2]["clients/mean"]) == pytest.approx(np.mean(means), abs=1e-4)
    assert float(rows[2]["clients/mean/ci"]) == pytest.approx(half, abs=1e-3)
    text = (tmp_path / "paper.tex").read_text()
    assert r"half the 95 \% confidence interval of the mean over 3 seeds" in text


def test_plus_minus_is_named_or_left_out_and_views_too(runs, study):
    assert "standard deviation over 3 seeds" in summary_table(study).latex()
    plain = summary_table(study, plus_minus="none")
    one = summary_table(study_of([read_run(runs / "e2fl-seed0")]))
    assert "pm" not in plain.latex() + one.latex()  # of one seed nothing is known about others
    assert plain.csv().startswith("method,group/mean,group/worst10,")
    assert "E2FL (GM)" in summary_table(study).text()
    assert "(GM)" not in summary_table(study, views=False).text()


def test_gains_over_training_alone_are_measures(runs, study):
    local, fedavg = three(runs, "local"), three(runs, "fedavg")
    pairs = list(zip(fedavg, local, strict=True))
    gain = [own.summary["clients"]["mean"] - one.summary["clients"]["mean"] for own, one in pairs]
    name = next(iter(fedavg[0].summary["groups"]))
    by_group = [[run.summary["groups"][name]["accuracy"] for run in pair] for pair in pairs]
    accuracy = [[[row["accuracy"] for row in run.clients] for run in pair] for pair in pairs]
    worse = [100 * np.mean(np.less(own, one)) for own, one in accuracy]
    table = summary_table(study, ["gain/mean", "gain/worse_off", f"groups/{name}/gain"])
    row = list(table.frame["method"]).index("FedAvg")
    assert table.value(row, "gain/mean") == pytest.approx(np.mean(gain))
    assert table.value(row, "gain/worse_off") == pytest.approx(np.mean(worse))
    expected = np.mean([own - one for own, one in by_group])
    assert table.value(row, f"groups/{name}/gain") == pytest.approx(expected)
    assert table.value(list(table.frame["method"]).index("Local"), "gain/mean") is None


def test_a_measure_that_no_run_has_is_named(study):
    with pytest.raises(ConfigError, match="no run has a measure 'protected/eod'"):
        summary_table(study, ["protected/eod"])


def test_namesakes_are_told_apart_by_their_settings_or_their_grouping(toy):
    def label(**changes):
        other = replace(toy, **changes)
        first, second = labels_of([(completed(one).to_dict(), "E2FL") for one in (toy, other)])
        assert first.startswith("E2FL")
        return second

    grouping = toy.algorithm | {"grouping": {"name": "lowest_loss"}}
    assert label(algorithm=grouping) == "E2FL (lowest loss)"
    assert label(algorithm=toy.algorithm | {"ballot": {"name": "buckets"}}) == "E2FL (buckets)"
    assert label(learner=toy.learner | {"epochs": 3}) == "E2FL [learner.epochs=3]"
    same = [(completed(toy).to_dict(), "E2FL")] * 2
    assert labels_of(same) == ["E2FL #1", "E2FL #2"]


def test_runs_in_memory_and_from_files_are_one_method(toy, tmp_path):
    runs = [run_experiment(replace(toy, seed=seed), out=tmp_path / str(seed)) for seed in (0, 1)]
    study = study_of([runs[0], read_run(tmp_path / "1")])
    assert [(method.label, method.seeds) for method in study.main] == [("E2FL", (0, 1))]


@pytest.fixture
def compare(no_plots, toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    words = ["compare", "toy.toml", "--algorithms", "local,fedavg,e2fl", "--set", "rounds=2"]
    return [*words, "--out", "runs"]


def test_a_comparison_prints_plus_minus_and_the_verdict(compare, capsys):
    command = [*compare, "--seeds", "0,1,2", "--columns", "group/mean,bytes/up"]
    assert main(command) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()[3:7]]
    assert [row[0] for row in rows] == ["Local", "FedAvg", "E2FL", "E2FL"]
    folders = {path.name for path in Path("runs").iterdir() if path.is_dir()}
    assert folders == {f"{name}-seed{n}" for name in ("e2fl", "fedavg", "local") for n in range(3)}
    assert main(command) == 2
    assert main([*command, "--resume"]) == 0
    study = study_of(read_runs([Path("runs")])[0])
    assert verdict(study).text in said
    assert "± is the standard deviation over 3 seeds." in said
    fedavg = next(method for method in study.methods if method.label == "FedAvg")
    assert rows[1][-1] == f"{fedavg.mean('bytes/up_per_client_round') / 2**10:.2f}"  # no ±
    assert "KiB / client / round" in said
    values = list(fedavg.by_seed("group/mean").values())
    assert f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in said
    assert "worst" not in said.split("Accuracy in percent")[0]
    table = summary_table(study, ["group/mean", "bytes/up"])
    assert Path("runs/paper.tex").read_text() == table.latex()


def test_a_comparison_of_one_seed_prints_the_plain_table(compare, capsys):
    assert main(compare) == 0
    assert "±" not in capsys.readouterr().out
    header = Path("runs/paper.csv").read_text().splitlines()[0].split(",")
    assert [key for key in header[1:] if not key.endswith("_chance")] == list(COLUMNS["printed"])


@pytest.fixture(scope="module")
def ungrouped():
    """Clients of the toy problem that declare no group."""
    clients = {str(number): Toy().client(number).train for number in range(4)}
    return from_arrays({name: (rows.x, rows.y) for name, rows in clients.items()})


def test_methods_with_found_groups_stand_beside_methods_without(toy, ungrouped):
    clustered = {"name": "lowest_loss", "groups": 2, "clustered": 1}
    finding = {"name": "e2fl", "clients_per_round": 4, "grouping": clustered}
    runs = [
        run_experiment(
            replace(toy, algorithm=algorithm, rounds=2, evaluate_every=1), data=ungrouped
        )
        for algorithm in ({"name": "fedavg", "clients_per_round": 4}, finding)
    ]
    assert runs[1].summary["groups_are"] == "found"
    study = study_of(runs)
    assert study.worst == "clients/worst10"  # FedAvg has no groups
    assert "nothing to compare with" not in page(study)
    assert study.size_of("found 0") > 0


def test_a_single_found_group_is_no_group(toy, ungrouped):
    alone = replace(toy, algorithm={"name": "frl", "clients_per_round": 4}, rounds=1)
    run = run_experiment(alone, data=ungrouped)
    assert run.summary["groups"] == {}
    assert run.summary.get("groups_are") is None
