"""Collecting: damaged and changed runs are refused, and nothing is written then."""

import json
import tomllib

import pytest
import tomli_w

from e2fl.errors import RunError
from e2fl.runs.runner import run_experiment
from paper.collecting import Origin, collect
from paper.ledger import read_ledger
from paper.recipes import planned_runs
from tests.paper.conftest import TINY

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "fedavg"
    (_, experiment), *_ = planned_runs("table1", TINY, [0], ["fedavg"])
    run_experiment(experiment, out=folder)
    return folder


@pytest.fixture
def run(made, tmp_path):
    copy = tmp_path / "runs" / "fedavg"
    copy.mkdir(parents=True)
    for path in made.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


def test_a_run_is_collected_once(run, tmp_path):
    ledger = tmp_path / "ledger"
    changed, left_out = collect(run.parent, ledger, ORIGIN)
    assert (len(changed), left_out) == (1, [])
    (line,) = read_ledger(ledger)
    assert line.origin["command"].startswith("e2fl run table1 --algorithm fedavg --set ")
    assert line.reached == 3
    assert collect(run.parent, ledger, ORIGIN) == ([], [])


def test_a_changed_history_is_refused_and_nothing_is_written(run, tmp_path):
    path = run / "history.jsonl"
    *lines, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines) + last.replace("mean", "median", 1))
    with pytest.raises(RunError, match=r"history\.jsonl"):
        collect(run.parent, tmp_path / "ledger", ORIGIN)
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("name", ["history.jsonl", "config.toml", "summary.json"])
def test_a_cut_file_is_refused(run, tmp_path, name):
    (run / name).write_bytes((run / name).read_bytes()[:40])
    with pytest.raises(RunError):
        collect(run.parent, tmp_path / "ledger", ORIGIN)


def test_a_run_in_progress_is_collected_without_half_a_line(run, tmp_path):
    for name in ("summary.json", "manifest.json"):
        (run / name).unlink(missing_ok=True)
    text = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(text[: text.rindex("\n", 0, -1) + 30])
    collect(run.parent, tmp_path / "ledger", ORIGIN)
    (line,) = read_ledger(tmp_path / "ledger")
    assert (line.reached, line.finished) == (2, False)
    assert line.value("bytes/up_per_client_round", 2) > 0


@pytest.mark.parametrize(
    ("section", "value"), [("name", "mine"), ("model", {"name": "subprocess:run"})]
)
def test_other_experiments_are_left_out_and_nothing_they_name_is_imported(
    run, tmp_path, section, value
):
    config = tomllib.loads((run / "config.toml").read_text())
    (run / "config.toml").write_text(tomli_w.dumps(config | {section: value}))
    changed, left_out = collect(run.parent, tmp_path / "ledger", ORIGIN)
    assert (changed, left_out) == ([], [run])


def test_figures_that_are_not_numbers_are_refused(run, tmp_path):
    (run / "manifest.json").unlink(missing_ok=True)
    lines = [json.loads(text) for text in (run / "history.jsonl").read_text().splitlines()]
    lines[0]["clients"]["mean"] = "high"
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunError, match="numbers"):
        collect(run.parent, tmp_path / "ledger", ORIGIN)
