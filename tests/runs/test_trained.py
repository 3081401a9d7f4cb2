"""Predicting with a finished run, and exporting its models."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import e2fl
from e2fl.cli import main
from e2fl.config.experiment import from_dict
from e2fl.data.encoding import Encoding
from e2fl.runs.trained import TrainedRun
from e2fl.testing.toy import Toy

X = np.zeros((1, 16), np.float32)
OWN, WORDS = "tests.runs.test_trained:marked", ["touch", "executed"]


@pytest.fixture
def stored(toy, tmp_path):
    return e2fl.run(toy, rounds=6, out=tmp_path / "run", progress=False)


def own_accuracy(run, client):
    (row,) = [row for row in run.record.clients if row["client"] == str(client)]
    return row["accuracy"]


def test_predictions_of_a_group_are_as_accurate_as_the_run_measured(stored):
    data = Toy()
    for number in (0, 1):
        test = data.client(number).test
        found = stored.predict(test.x, group=data.group_name(number % 2))
        assert 100 * np.mean(found.classes == test.y) == pytest.approx(own_accuracy(stored, number))
        assert found.model == f"group{number % 2}"
        assert found.probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    with pytest.raises(e2fl.RunError, match="choose one with --group: G1, G2, global"):
        stored.predict(X)
    with pytest.raises(
        e2fl.RunError, match="no group 'north'; choose one with --group: G1, G2, global"
    ):
        stored.predict(X, group="north")


def test_a_run_with_one_model_needs_no_group(toy, tmp_path):
    run = e2fl.run(toy, algorithm="fedavg", rounds=4, out=tmp_path / "run", progress=False)
    test = Toy().client(0).test
    found = e2fl.read_run(tmp_path / "run").predict(test.x)
    assert 100 * np.mean(found.classes == test.y) == pytest.approx(own_accuracy(run, 0))


def test_rows_with_groups_of_their_own_use_the_model_of_their_group(toy, tmp_path):
    run = e2fl.run(toy, data={"inside": True}, rounds=4, out=tmp_path / "run", progress=False)
    test = Toy(inside=True).client(0).test
    found = TrainedRun(tmp_path / "run").predict(test, None)
    right = sum(row["accuracy"] * row["n"] for row in run.record.clients if row["client"] == "0")
    assert 100 * np.sum(found.classes == test.y) == pytest.approx(right)


def test_what_cannot_be_predicted_is_one_clear_error(stored, toy, tmp_path, capsys):
    for x, words in (
        (np.zeros((2, 3), np.float32), r"shape \(3,\); the run has \(16,\)"),
        (np.zeros((2, 16), np.int64), "must be floating-point"),
        (np.full((2, 16), np.nan), "row 1 has an input that is missing or not finite"),
        (np.zeros((0, 16)), "no rows"),
    ):
        with pytest.raises(e2fl.DataError, match=words):
            stored.predict(x, group="global")
    np.save(tmp_path / "x.npy", np.array([object()]), allow_pickle=True)
    assert main(["predict", str(stored.folder), str(tmp_path / "x.npy"), "--group", "G1"]) == 2
    error = capsys.readouterr().err
    assert "not an array of numbers" in error
    assert "pickle" not in error
    path = stored.folder / "model.safetensors"
    *whole, last = path.read_bytes()
    path.write_bytes(bytes([*whole, last ^ 1]))
    with pytest.raises(e2fl.RunError, match="checksum"):
        stored.predict(X, group="global")
    with pytest.warns(e2fl.E2flWarning):
        run = e2fl.run(toy, rounds=1, progress=False)
    with pytest.raises(e2fl.RunError, match="not stored"):
        run.predict(X)


def marked(inputs, classes):
    """A model that leaves a mark when it is made."""
    Path("executed").touch()
    return nn.Sequential(nn.Linear(16, 3, bias=False))


@pytest.mark.parametrize("name", ["subprocess:run", "os:system", OWN])
def test_reading_a_run_executes_nothing_that_its_files_name(stored, tmp_path, monkeypatch, name):
    """A folder of data files ran a shell command through predict and export."""
    monkeypatch.chdir(tmp_path)
    folder, summary = stored.folder, stored.summary
    values = stored.experiment.to_dict() | {"model": {"name": name}}
    (folder / "config.toml").write_text(from_dict(values).to_toml())
    np.save("x.npy", X)
    for change in () if name == OWN else ({"shape": [-16]}, {"classes": 2.5}, {"shape": WORDS}):
        inputs = summary["inputs"] | change
        (folder / "summary.json").write_text(json.dumps(summary | {"inputs": inputs}))
        with pytest.raises(e2fl.RunError, match=r"summary\.json"):
            stored.predict(X, group="G1")
    read = e2fl.read_run(folder)
    for act in (
        lambda: read.predict(X, group="G1"),
        lambda: read.network(group="G1"),
        lambda: e2fl.assign(folder, Toy().client(0).train, group=0),
    ):
        with pytest.raises(e2fl.RunError):
            act()
    assert main(["predict", str(folder), "x.npy", "--group", "G1"]) == 2
    assert main(["export", str(folder), "--group", "G1", "--out", "m.pt2"]) == 2
    assert main(["report", str(folder), "--out", "page.html"]) == 0
    assert not Path("executed").exists()
    with pytest.raises(e2fl.E2flError):  # not even trust makes a model of a shell
        read.predict(X, group="G1", trust=True)
    assert Path("executed").exists() == (name == OWN)


@pytest.mark.parametrize("name", ["north.safetensors", "north.pt2"])
def test_an_exported_model_gives_the_same_logits_without_e2fl(stored, tmp_path, name):
    assert main(["export", str(stored.folder), "--group", "G2", "--out", str(tmp_path / name)]) == 0
    x = torch.from_numpy(Toy().client(1).test.x)
    expected = stored.network(group="G2")(x)
    if name.endswith("pt2"):
        np.save(tmp_path / "x.npy", x.numpy())
        code = (
            "import sys, numpy, torch; net = torch.export.load('north.pt2').module();"
            "numpy.save('y.npy', net(torch.from_numpy(numpy.load('x.npy'))).detach().numpy()); "
            "assert 'e2fl' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=600)
        assert np.allclose(np.load(tmp_path / "y.npy"), expected.detach().numpy(), atol=1e-6)
    else:
        network = stored.experiment.build.model_for((16,), 3).network
        network.load_state_dict(load_file(tmp_path / name))
        assert torch.equal(network(x), expected)
    card = (tmp_path / f"{name}.md").read_text()  # each format has a card of its own
    assert ("torch.export.load" if name.endswith("pt2") else "load_file") in card
    assert "the model of group G2" in card
    for group, values in stored.summary["groups"].items():
        assert f"| {group} | {values['clients']} | {values['accuracy']:.2f} |" in card
    assert "not measured" in card


def test_the_card_shows_the_measures_of_the_global_model_itself(stored, tmp_path, capsys):
    words = ["export", str(stored.folder), "--group", "global", "--out"]
    assert main([*words, str(tmp_path / "all.safetensors")]) == 0
    card = (tmp_path / "all.safetensors.md").read_text()
    assert f"{stored.summary['views']['global']['group']['mean']:.2f}" in card
    assert "not measured" not in card
    assert main([*words, str(tmp_path / "model.bin")]) == 2
    assert ".safetensors or .pt2" in capsys.readouterr().err


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["hospital,region,finding,a,b"]
    for row in range(240):
        ill = row % 2
        a, b = rng.normal(2 if ill else -2, 0.5, size=2).round(3)
        region = "north" if row % 6 < 2 else "south"
        rows.append(f"H{row % 6},{region},{['-none', 'ill'][ill]},{a},{b}")
    Path("table.csv").write_text("\n".join(rows))
    roles = {"client": "hospital", "label": "finding", "group": "region"}
    settings = {
        "name": "hospitals",
        "rounds": 5,
        "data": {"name": "table", "path": "table.csv", **roles},
        "model": {"name": "mlp", "hidden": [16]},
        "learner": {"learning_rate": 0.1},
        "algorithm": {"name": "e2fl", "clients_per_round": 6},
    }
    e2fl.run(settings, out="run", progress=False)
    Path("new.csv").write_text("a,b\n2,2.1\n-2,-1.9\n1.8,2.2\n")
    Path("table.csv").unlink()  # a run needs nobody's training table
    return tmp_path


def test_the_rows_of_a_table_are_predicted_by_name(hospitals, capsys):
    assert main(["predict", "run", "new.csv", "--group", "north", "--out", "said.csv"]) == 0
    assert "predicted 3 rows with the model group0; written to said.csv" in capsys.readouterr().out
    rows = list(csv.DictReader(Path("said.csv").read_text().splitlines()))
    # A spreadsheet must not run a label.
    assert [row["prediction"] for row in rows] == ["ill", "'-none", "ill"]
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)
    assert main(["predict", "run", "new.csv", "--group", "south"]) == 0
    assert capsys.readouterr().out.startswith("row,prediction,probability\n1,ill,")


def test_the_card_holds_the_encoding_of_columns_and_the_classes(hospitals):
    assert main(["export", "run", "--group", "north", "--out", "north.safetensors"]) == 0
    card = Path("north.safetensors.md").read_text()
    assert "| a | number | (x - " in card
    assert "Classes: -none, ill" in card
    (stored,) = [line for line in card.splitlines() if line.startswith('{"columns"')]
    encoding = Encoding.from_json(json.loads(stored))
    assert encoding == Encoding.from_json(json.loads(Path("run/encoding.json").read_text()))
    assert encoding.encode("new.csv").x.shape == (3, 2)


def test_the_algorithm_can_find_the_group(toy, tmp_path):
    grouping = {"name": "one_shot", "groups": 2}
    algorithm = {"name": "e2fl", "clients_per_round": 8, "grouping": grouping}
    out = tmp_path / "run"
    e2fl.run(toy, data={"styles": True}, algorithm=algorithm, rounds=8, out=out, progress=False)
    test = Toy(styles=True).client(0).test
    np.save(tmp_path / "x.npy", test.x)
    words = ["predict", str(out), str(tmp_path / "x.npy"), "--out", str(tmp_path / "said.csv")]
    assert main([*words, "--group", "1"]) == 0
    assert main([*words, "--find-group"]) == 0
    said = [int(row["prediction"]) for row in csv.DictReader((tmp_path / "said.csv").open())]
    assert np.mean(np.array(said) == test.y) > 0.5
