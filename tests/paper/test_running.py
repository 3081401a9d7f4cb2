"""Studies: what they need, running it up to a budget, continuing it, and collecting it."""

import json
import shutil
import tomllib
from dataclasses import replace

import pytest
import tomli_w

from e2fl.cli import main
from e2fl.errors import ConfigError, RunError
from paper.ledger import frame, read_ledger
from paper.running import collect, folder_of, origin_here, planned_runs, read_runs, run_missing
from paper.studies import DECLARED, complete, missing, needed, state
from tests.paper.conftest import TINY, make_run


def tiny(methods=("fedavg",), seeds=(0,), changes=()):
    return planned_runs("table1", [*TINY, *changes], seeds, methods)


@pytest.mark.parametrize("name", DECLARED)
def test_the_declared_runs_are_those_of_the_configuration(name):
    assert [run for run, _ in planned_runs(name)] == needed(name)


def test_the_first_seed_of_every_method_comes_first():
    runs = needed("table1")
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len(runs) == len({run.identity for run in runs}) == 45


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"study": "table9"}, "table9"),
        ({"methods": ["fedavgg"]}, "fedavg"),
        ({"changes": ["seed=3"]}, "seeds"),
        ({"changes": ["algorithm.nothing=3"]}, "nothing"),
    ],
)
def test_a_wrong_plan_is_explained(arguments, word):
    with pytest.raises(ConfigError, match=word):
        planned_runs(**{"study": "table1"} | arguments)


def test_a_run_is_missing_until_it_has_its_last_round():
    planned = replace(needed("states")[0], experiment="demo", method="e2fl", rounds=60)
    short, whole = make_run(rounds=[(20, 1.0)], finished=False), make_run(rounds=[(60, 1.0)])
    assert missing([planned], [])[0].reached == 0
    assert missing([planned], [short])[0].reached == 20
    assert str(missing([planned], [short])[0]) == "e2fl: seed 0, to round 60, has 20"
    assert missing([planned], [whole]) == []
    assert complete(make_run("local", rounds=[(10, 1.0)]), 3000)  # it has ended by itself
    assert not complete(make_run(rounds=[(70, 1.0)]), 80)


def test_the_state_counts_every_study(ledger):
    rows = {title: (planned, lacking) for title, planned, lacking in state(ledger)}
    assert rows["Table 4: Adult"] == (30, [])
    assert len(rows) == len(DECLARED)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a study with one run of three rounds."""
    out = tmp_path_factory.mktemp("runs")
    assert run_missing(tiny(), out)
    return out


@pytest.fixture
def out(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture
def folder(out):
    return folder_of(tiny()[0][0], out)


def test_a_run_begun_with_another_engine_is_not_continued(out, folder, capsys):
    path = folder / "origin.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"engine": 0}))
    assert not run_missing(tiny(changes=["rounds=6"]), out)
    assert "engine 0" in capsys.readouterr().err


def test_more_rounds_continue_a_run_and_fewer_have_a_folder_of_their_own(out, folder):
    more, fewer = tiny(changes=["rounds=5"]), tiny(changes=["rounds=2"])
    assert folder_of(more[0][0], out) == folder
    assert folder_of(fewer[0][0], out).name.endswith("-rounds-2")
    assert run_missing(more, out)
    assert read_runs(out)[0].reached == 5


def test_the_engine_of_a_plain_run_is_that_of_its_summary(out, folder, tmp_path):
    (folder / "origin.json").unlink()
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps(summary | {"environment": {"engine": "7"}}))
    assert read_runs(out)[0].origin["engine"] == 7


def cut(raw):
    return raw[:40]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("summary.json", cut),
        ("history.jsonl", lambda raw: raw.replace(b"mean", b"median")),
    ],
)
def test_a_damaged_run_is_refused_and_nothing_is_written(out, folder, tmp_path, name, change):
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(RunError):
        collect(out, tmp_path / "ledger", origin_here())
    assert not (tmp_path / "ledger").exists()


def test_a_run_in_progress_is_collected_without_half_a_line(out, folder, tmp_path):
    (folder / "summary.json").unlink()
    text = (folder / "history.jsonl").read_text()
    (folder / "history.jsonl").write_text(text[: text.rindex("\n", 0, -1) + 30])
    collect(out, tmp_path / "ledger", origin_here())
    (run,) = read_ledger(tmp_path / "ledger")
    assert (run.reached, run.finished) == (2, False)
    assert frame([run])["bytes/up_per_client_round"].iloc[-1] > 0


@pytest.mark.parametrize(
    ("section", "value"), [("name", "mine"), ("model", {"name": "subprocess:run"})]
)
def test_other_experiments_are_left_out_and_nothing_they_name_is_imported(
    out, folder, tmp_path, section, value
):
    config = tomllib.loads((folder / "config.toml").read_text())
    (folder / "config.toml").write_text(tomli_w.dumps(config | {section: value}))
    assert collect(out, tmp_path / "ledger", origin_here()) == ([], [folder])


def test_the_command_lists_runs_runs_them_and_collects(tmp_path, capsys):
    settings = [word for change in TINY for word in ("--set", change)]
    (tmp_path / "ledger").mkdir()
    places = ["--out", str(tmp_path / "out"), "--ledger", str(tmp_path / "ledger")]
    words = ["reproduce", "table1", "--seeds", "0", "--methods", "fedavg", *settings, *places]
    assert main([*words, "--dry-run"]) == 3
    assert "fedavg: seed 0, to round 3" in capsys.readouterr().out
    assert main([*words, "--budget", "0"]) == 3
    assert main(words) == 0
    assert "data.clients=10" in capsys.readouterr().out  # the setting above the table
    for name, keys in (("origin.json", ()), ("summary.json", ("environment",))):
        path = next((tmp_path / "out").rglob(name))
        stored = inner = json.loads(path.read_text())
        for key in keys:
            inner = inner[key]
        inner["commit"] = None  # as an installed package writes it
        path.write_text(json.dumps(stored))
    collecting = ["reproduce", "--collect", str(tmp_path / "out"), *words[-2:]]
    for count in (1, 0):
        assert main([*collecting, "--commit", "abc"]) == 0
        assert f"{count} runs new or changed" in capsys.readouterr().out
    assert '"commit":"abc"' in (tmp_path / "ledger" / "table1.jsonl").read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "nothing to do"),
        (["table1", "--budget", "nan"], "budget"),
        (["table1", "--seeds", ""], "seeds"),
        (["--collect", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_command_is_explained(arguments, word, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert word in capsys.readouterr().err
