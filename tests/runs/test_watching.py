"""Beside a run: the live page, and trackers that see the same numbers under the same names."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2fl import simulation
from e2fl.cli import main
from e2fl.report import live
from e2fl.runs import progress
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Folder
from e2fl.runs.trackers import flat
from e2fl.runs.watcher import Watcher, Watchers
from tests.runs.helpers import Noting

pytestmark = pytest.mark.usefixtures("no_plots")


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    return "toy.toml"


def test_a_live_page_follows_and_comes_to_rest(config, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "PAUSE", 0.0)
    page = tmp_path / "out" / "report.html"
    seen = []

    class Reader(Watcher):
        def begin(self, experiment, first, last):
            seen.append(page.read_text())

        def advance(self, number, measured):
            seen.append(page.read_text())

    run_experiment(
        toy, out=tmp_path / "out", watcher=Watchers(live.Live(tmp_path / "out", page), Reader())
    )
    assert "not over yet" in seen[0]
    assert 'http-equiv="refresh"' in seen[0]
    assert "is at round 2 of 6" in seen[2]
    assert 'data-reload="5"' in seen[2]
    assert "is at round 6 of 6" in seen[6]
    assert main(["run", config, "--out", "watched", "--watch"]) == 0
    text = (tmp_path / "watched" / "report.html").read_text()
    assert 'data-reload="0"' in text
    assert "Not finished" not in text


def test_a_stopped_run_leaves_a_page_that_rests(config, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "PAUSE", 0.0)
    advance = live.Live.advance

    def stop(self, number, measured):
        advance(self, number, measured)
        if number == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(live.Live, "advance", stop)
    assert main(["run", config, "--out", "out", "--watch"]) == 130
    text = (tmp_path / "out" / "report.html").read_text()
    assert 'data-reload="0"' in text
    assert "is at round 4 of 6" in text


TOOLS = """
import json, os
def note(*words): print(json.dumps(words), file=open("noted.jsonl", "a"))
class Tool:
    def log(self, values, step): note(values, step)
    def close(self): note("closed")
    finish = close
log_metrics, end_run = Tool().log, Tool().close
def init(dir, project, name, config): return note(name, os.environ["WANDB_MODE"]) or Tool()
def set_tracking_uri(uri): note(uri)
def set_experiment(name): note(name)
def start_run(run_name): note(run_name)
def log_params(settings): assert settings["algorithm.name"] == "e2fl"
"""


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_trackers_see_the_history(config, tmp_path, monkeypatch, name):
    """The tool is a module with the functions that a tracker calls."""
    (tmp_path / f"{name}.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert main(["run", config, "--out", "out", "--track", name]) == 0
    noted = [json.loads(line) for line in Path("noted.jsonl").read_text().splitlines()]
    if name == "wandb":
        assert noted[0] == ["e2fl-seed0", "offline"]
    else:
        assert noted[:3] == [[f"sqlite:///{tmp_path}/out/mlflow.db"], ["toy"], ["e2fl-seed0"]]
    logged = {words[1]: words[0] for words in noted if isinstance(words[0], dict)}
    history = {line["round"]: line for line in Folder(Path("out")).read_history()}
    assert logged.keys() == history.keys()
    assert logged[6] == flat(history[6])
    assert logged[4]["group/worst10"] == history[4]["group"]["worst10"]
    assert noted[-1] == ["closed"]
    line = {"round": 3, "groups": {"a<b": {"accuracy": 2}}, "faults": {"late": 2}, "group": None}
    assert flat(line) == {"round": 3.0, "groups/a_b/accuracy": 2.0, "faults/late": 2.0}


def test_tensorboard_sees_the_history(config, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["run", config, "--out", "out", "--track", "tensorboard"]) == 0
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard" / "e2fl-seed0"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("group/worst10")}
    history = Folder(tmp_path / "out").read_history()
    expected = {line["round"]: line["group"]["worst10"] for line in history}
    assert found == pytest.approx(expected, rel=1e-6)


def test_an_unknown_tracker_is_refused_before_the_run(config, capsys):
    assert main(["run", config, "--out", "out", "--track", "mlfow"]) == 2
    assert "did you mean 'mlflow'" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("slow", [True, False])
def test_compiling_is_told_only_when_it_takes_long(toy, monkeypatch, slow):
    def timer(seconds, call, given):
        return SimpleNamespace(start=lambda: slow and call(*given), cancel=lambda: None)

    monkeypatch.setattr(simulation, "threading", SimpleNamespace(Timer=timer))
    noting = Noting()
    run_experiment(replace(toy, rounds=1), watcher=noting)
    assert noting.warnings == slow * [simulation.COMPILING]


@pytest.mark.parametrize("slow", [True, False])
def test_plain_lines_tell_the_turn_the_seed_and_the_time_left(toy, monkeypatch, slow):
    clock = count(step=10.0 if slow else 0.001)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    watcher = progress.Progress(io.StringIO())
    watcher.announce(4, 18)
    run_experiment(replace(toy, seed=3), watcher=watcher)
    lines = watcher.stream.getvalue().splitlines()
    assert lines[0] == "run 4 of 18, e2fl, seed 3: round 1 of 6"
    # No estimate of "about 0 s".
    told = [line.split(": ")[1].split(",")[0] for line in lines if "left" in line]
    assert told == (["round 2 of 6", "round 3 of 6", "round 4 of 6"] if slow else [])


@pytest.mark.slow
def test_weights_and_biases_stores_the_history_offline(config, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_ERROR_REPORTING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = ["-m", "e2fl", "run", config, "--out", "run", "--track", "wandb"]
    subprocess.run([sys.executable, *words], check=True, timeout=600, capture_output=True)
    (path,) = Path("run/wandb").glob("offline-run-*/*.wandb")
    worst = [line["group"]["worst10"] for line in Folder(Path("run")).read_history()]
    assert len(worst) == 3
    for value in worst:
        stored = re.escape(str(value).removesuffix(".0").encode())
        assert re.search(rb"\x12\rgroup/worst10[^a-z]+" + stored + rb"\n", path.read_bytes())
