"""Beside a run: the live page, and trackers that see the same numbers under the same names."""

import io
import json
import sys
import types
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from e2fl.cli import main
from e2fl.errors import ConfigError
from e2fl.runs import progress
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Folder
from e2fl.runs.trackers import flat, tracker
from e2fl.runs.watcher import Watcher, Watchers


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    return "toy.toml"


def lines(folder):
    return {line["round"]: line for line in Folder(folder).read_history()}


def test_names_are_the_paths_of_numbers():
    line = {
        "round": 3,
        "clients": {"mean": 1.5},
        "groups": {"a<b": {"accuracy": 2}},
        "group": None,
        "metadata": {"groups_seen": [1]},
        "faults": {"late": 2},
        "asked": 4,
    }
    assert flat(line) == {"clients/mean": 1.5, "groups/a_b/accuracy": 2.0, "asked": 4.0}


def test_a_run_leaves_a_page_and_its_command(config, tmp_path, capsys):
    pytest.importorskip("vl_convert")
    assert main(["run", config, "--out", "a b"]) == 0
    assert "open a b/report.html" in capsys.readouterr().out
    assert (tmp_path / "a b" / "command.txt").read_text() == "e2fl run toy.toml --out 'a b'\n"
    assert "e2fl run toy.toml --out &#39;a b&#39;" in (tmp_path / "a b" / "report.html").read_text()


def test_a_live_page_follows_and_comes_to_rest(config, toy, tmp_path, monkeypatch):
    pytest.importorskip("vl_convert")
    from e2fl.report import live

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
    pytest.importorskip("vl_convert")
    from e2fl.report import live

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


def test_tensorboard_sees_the_history(config, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["run", config, "--out", "out", "--track", "tensorboard"]) == 0
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard" / "e2fl-seed0"))
    events.Reload()
    history = lines(tmp_path / "out")
    assert sorted(events.Tags()["scalars"]) == sorted(flat(history[6]))
    found = {event.step: event.value for event in events.Scalars("group/worst10")}
    assert found == pytest.approx(
        {number: line["group"]["worst10"] for number, line in history.items()}, rel=1e-6
    )


@pytest.mark.slow
def test_mlflow_sees_the_history_in_a_local_store(config, tmp_path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    words = ["compare", config, "--algorithms", "fedavg,e2fl", "--out", "out"]
    assert main([*words, "--track", "mlflow"]) == 0
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/out/mlflow.db")
    (experiment,) = (found for found in client.search_experiments() if found.name == "toy")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"fedavg-seed0", "e2fl-seed0"}
    run = runs["e2fl-seed0"]
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.clients_per_round"] == "4"
    summary = json.loads((tmp_path / "out" / "e2fl-seed0" / "summary.json").read_text())
    assert run.data.metrics["clients/mean"] == pytest.approx(summary["clients"]["mean"])
    history = lines(tmp_path / "out" / "e2fl-seed0")
    found = {
        metric.step: metric.value
        for metric in client.get_metric_history(run.info.run_id, "clients/variance")
    }
    assert found == pytest.approx(
        {number: line["clients"]["variance"] for number, line in history.items()}
    )


def test_an_unknown_tracker_is_refused_before_the_run(config, tmp_path, capsys):
    with pytest.raises(ConfigError, match="did you mean 'mlflow'"):
        tracker("mlfow", tmp_path)
    assert main(["run", config, "--out", "out", "--track", "comet"]) == 2
    assert "known: mlflow, tensorboard, wandb" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Told(Watcher):
    def __init__(self):
        self.heard = []

    def prepare(self, what):
        self.heard.append(what)


def test_compiling_is_told_only_when_something_is_compiled(toy):
    import numba

    run_experiment(replace(toy, rounds=1))  # everything is compiled and in the cache now
    watcher = Told()
    run_experiment(replace(toy, rounds=1), watcher=watcher)
    assert watcher.heard == []

    def fresh(number):
        return number + 1

    loop = numba.njit(fresh)  # not cached: compiled in every process
    with progress.compiling(watcher.prepare):
        assert loop(1) == 2
        assert loop(2) == 3
    assert watcher.heard == ["fresh"]


@pytest.mark.parametrize("slow", [True, False])
def test_plain_lines_tell_the_turn_the_seed_and_the_time_left(toy, monkeypatch, slow):
    clock = count(step=10.0 if slow else 0.001)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    watcher = progress.Progress(io.StringIO())
    watcher.announce(4, 18)
    run_experiment(replace(toy, seed=3), watcher=watcher)
    lines = watcher.stream.getvalue().splitlines()
    assert lines[0] == "run 4 of 18, e2fl, seed 3: round 1 of 6"
    # Issue 25, item 17: no estimate of "about 0 s".
    assert any("in all, at the pace of the first rounds" in line for line in lines) == slow
    assert any("round 4 of 6" in line and "left" in line for line in lines) == slow
    assert "left" not in lines[-1]
    durations = [progress.duration(seconds) for seconds in (40, 720, 12000)]
    assert durations == ["40 s", "12 min", "3 h 20 min"]


def test_a_notebook_gets_a_bar_without_ipywidgets(monkeypatch, toy):
    """A notebook is a kernel whose output is no terminal."""
    assert progress.tqdm is tqdm  # a bar of text
    made = []

    class Bar:
        def __init__(self, **settings):
            made.append(settings)
            self.updates = 0

        def update(self, by):
            self.updates += by

        def set_postfix_str(self, text):
            made.append(text)

        def close(self):
            made.append(self.updates)

    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr("e2fl.runs.progress.tqdm", Bar)
    run_experiment(toy, watcher=progress.NotebookProgress(io.StringIO()))
    assert made[0]["total"] == 6
    assert made[-1] == 6
    assert any("clients" in str(text) for text in made[1:-1])
