"""Sweeps: chosen on validation data, tested once, and the same after an interruption."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.errors import ConfigError, RunError
from e2fl.runs.folder import Folder
from e2fl.sweeps.grid import axes_of, points_of
from e2fl.sweeps.page import page
from e2fl.sweeps.results import Pick, choose
from e2fl.sweeps.running import sweep

ROOT = Path(__file__).parent.parent
GRID = ["learner.learning_rate=0.01,0.1", "model.keep=0.3,0.5,0.7"]


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.changed([]).to_toml())
    return "toy.toml"


def small(toy, **changes):
    return e2fl.Experiment(**(toy.to_dict() | {"rounds": 2} | changes))


def test_validation_is_measured_beside_test_data_and_changes_nothing_else(toy, tmp_path):
    shared = toy.to_dict() | {"data": {"name": "e2fl.testing.toy:Toy", "noise": 1.5, "validation_share": 0.25}}
    run = e2fl.run(shared, out=tmp_path / "run", progress=False)
    for line in [*run.record.history, run.summary]:
        found = line["validation"]
        assert set(found["user"]) == {"mean", "worst10", "best10", "variance"}
        assert {name: group["clients"] for name, group in found["groups"].items()} == {"G1": 4, "G2": 4}
        assert found["user"] != line["user"]
    assert run.result.validation.own.user == run.summary["validation"]["user"]
    assert run.evaluations[-1].to_json() == run.record.history[-1]
    assert "validation/group/worst10" in run.history.columns
    data = run.experiment.build_data()
    client = data.client(0)
    said = run.predict(client.validation.x, group="G1")
    alone = [100 * np.mean(run.predict(data.client(n).validation.x, group=f"G{n % 2 + 1}").classes
                           == data.client(n).validation.y) for n in range(8)]  # fmt: skip
    assert len(said.classes) == 12
    assert run.summary["validation"]["user"]["mean"] == pytest.approx(np.mean(alone))


def test_runs_without_validation_rows_have_no_such_key(toy):
    with pytest.warns(e2fl.E2flWarning):
        run = e2fl.run(toy, rounds=1, progress=False)
    assert "validation" not in run.summary
    assert all("validation" not in line for line in run.record.history)


def test_a_grid_has_every_combination_in_order():
    points = points_of(axes_of(["a.b=1,2", "c=x,[3,4],'p,q'"]))
    assert [point.values for point in points] == [
        ("1", "x"), ("1", "[3, 4]"), ("1", "p,q"), ("2", "x"), ("2", "[3, 4]"), ("2", "p,q"),
    ]  # fmt: skip
    assert [change.value for change in points[4].changes] == [2, [3, 4]]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["rate"], "such as learner.epochs=1,2"),
        (["rate="], "such as learner.epochs=1,2"),
        (["rate=1,,2"], "empty or not closed"),
        (["rate=[1,2"], "empty or not closed"),
        (["rate=1,1"], "names a value twice"),
        (["rate=1", "rate=2"], "once"),
        (["seed=1,2"], "--seeds"),
        ([f"a{n}=1,2,3,4,5,6,7,8,9,10" for n in range(5)], "at most 10,000"),
    ],
)
def test_mistakes_in_a_grid_are_explained(texts, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        points_of(axes_of(texts))


def summaries(*values, **more):
    return [
        {"label": "x", "seed": 0, "validation": {"user": {"worst10": value, "variance": value}} | more}
        for value in values
    ]


def test_the_point_with_the_best_mean_over_seeds_is_chosen_the_first_among_equals():
    one, two, three = points_of(axes_of(["a=1,2,3"]))
    found = {one: summaries(10, 50), two: summaries(40, 40), three: summaries(30, 50)}
    assert choose(found, Pick.of("user/worst10")) is two
    assert choose(found, Pick.of("user/variance")) is one  # the lowest


def test_a_point_that_diverged_is_never_chosen():
    one, two = points_of(axes_of(["a=1,2"]))
    assert choose({one: summaries(90, diverged=1), two: summaries(10)}, Pick.of("user/worst10")) is two
    assert choose({one: summaries(None), two: summaries(10)}, Pick.of("user/worst10")) is two
    assert choose({one: summaries(None), two: summaries(9, diverged=2)}, Pick.of("user/worst10")) is None


def test_a_sweep_chooses_on_validation_and_tests_the_chosen_point_on_all_rows(config, capsys):
    command = ["sweep", config, "--set", "rounds=2", "--seeds", "0,1", "--out", "s", "--pick", "user/mean"]
    assert main([*command, *(word for text in GRID for word in ("--grid", text))]) == 0
    said = capsys.readouterr()
    assert "sets no data.validation_share; 0.2 of each client's training rows" in said.err
    rows = list(csv.DictReader(Path("s/sweep.csv").read_text().splitlines()))
    assert len(rows) == 6
    means = []
    for row in rows:
        runs = [Folder(Path(f"s/point{row['point']}-seed{seed}")) for seed in (0, 1)]
        for run in runs:
            stored = run.read_experiment()
            assert stored.data["validation_share"] == 0.2
            assert stored.learner["learning_rate"] == float(row["learner.learning_rate"])
        means.append(np.mean([run.read_summary()["validation"]["user"]["mean"] for run in runs]))
        assert float(row["validation/user/mean"]) == pytest.approx(means[-1], abs=1e-6)
    best = int(np.argmax(means))
    assert [row["chosen"] for row in rows] == ["1" if place == best else "0" for place in range(6)]
    final = [Folder(Path(f"s/final-seed{seed}")) for seed in (0, 1)]
    assert all("validation" not in run.read_summary() for run in final)
    assert final[0].read_experiment().model["keep"] == float(rows[best]["model.keep"])
    tested = np.mean([run.read_summary()["user"]["mean"] for run in final])
    html = Path("s/sweep.html").read_text()
    assert f"{tested:.2f} ±" in html
    assert f"{tested:.2f} ±" in said.out
    assert f"point {best + 1} (" in said.out
    assert html.count("<td style=") == 6
    assert html.count('class="chosen"') == 2  # a cell of the map, a row of the table
    assert "http" not in html.replace("http-equiv", "")


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_point_at_which_every_client_diverges_does_not_end_the_sweep(config, jobs, capsys):
    command = ["sweep", config, "--algorithm", "fedavg", "--set", "rounds=2", "--jobs", jobs]
    assert main([*command, "--grid", "learner.learning_rate=1e38,0.1", "--out", "s"]) == 0
    said = capsys.readouterr()
    assert "chosen: point 2" in said.out
    assert [row["diverged"] for row in csv.DictReader(Path("s/sweep.csv").read_text().splitlines())] == ["1", "0"]
    assert "diverged" in Path("s/sweep.html").read_text()
    assert main([*command, "--grid", "learner.learning_rate=1e38", "--out", "t"]) == 1
    assert "none was chosen" in capsys.readouterr().out


def test_a_setting_that_does_not_exist_is_found_before_anything_runs(config, capsys):
    assert main(["sweep", config, "--grid", "learner.lr=0.1,0.2", "--out", "s"]) == 2
    assert "learning_rate" in capsys.readouterr().err
    assert not Path("s").exists()
    assert main(["sweep", config, "--grid", "learner.epochs=1", "--out", "s", "--pick", "worst"]) == 2
    assert "--pick takes group/mean" in capsys.readouterr().err
    assert not Path("s").exists()


def test_a_folder_holds_one_sweep(toy, tmp_path):
    axes = axes_of(["learner.epochs=1,2"])
    sweep(small(toy), axes, [0], out=tmp_path / "s")
    with pytest.raises(RunError, match="already exists"):
        sweep(small(toy), axes, [0], out=tmp_path / "s")
    with pytest.raises(RunError, match="holds another sweep"):
        sweep(small(toy, rounds=3), axes, [0], out=tmp_path / "s", resume=True)


def test_names_on_the_page_are_escaped(toy, tmp_path):
    hostile = "<script>alert(1)</script>"
    base = small(toy, name=hostile, algorithm=toy.algorithm | {"label": hostile})
    result = sweep(base, axes_of(["learner.epochs=1"]), [0], out=tmp_path / "s")
    assert "<script" not in page(result)
    assert "&lt;script&gt;" in page(result)


def contents(folder):
    return [(folder / name).read_bytes() for name in ("sweep.csv", "sweep.html")]


def start(folder, *more):
    grid = ["--grid", "learner.learning_rate=0.01,0.03,0.1,0.3", "--grid", "model.keep=0.3,0.5,0.7"]
    command = [
        sys.executable,
        "-m",
        "e2fl.cli",
        "sweep",
        "toy.toml",
        *grid,
        "--seeds",
        "0",
        "--out",
        str(folder),
        *more,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "jobs"), [(signal.SIGKILL, 1), (signal.SIGKILL, 2), (signal.SIGTERM, 2)])
def test_a_sweep_of_12_points_killed_in_the_middle_and_resumed_ends_with_the_same_page(config, ending, jobs, capfd):
    process = start("killed", "--jobs", str(jobs))
    deadline = time.monotonic() + 300
    while len(list(Path("killed").glob("point*/summary.json"))) < 4:
        assert process.poll() is None, "the sweep ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(ending)
    process.wait(timeout=600)
    done = len(list(Path("killed").glob("point*/summary.json")))
    assert done < 12
    assert not Path("killed/sweep.html").exists()
    for _ in range(60):  # processes of a killed sweep stop by themselves
        if main(["resume", "killed"]) == 0:
            break
        time.sleep(1)
    assert main(["sweep", config, "--out", "whole", *json_grid("killed"), "--seeds", "0"]) == 0
    assert contents(Path("killed")) == contents(Path("whole"))


def json_grid(folder):
    grid = json.loads((Path(folder) / "sweep.json").read_text())["grid"]
    return [word for name, values in grid.items() for word in ("--grid", f"{name}={','.join(map(str, values))}")]
