"""The command: what a person types, sees, and gets wrong."""

import argparse
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace

import pytest

from e2fl.cli import main
from e2fl.commands.training import folder_for
from e2fl.config.listing import entries, stored

pytestmark = pytest.mark.usefixtures("no_plots")
OWN = "tests.commands.test_cli"


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    return "toy.toml"


def no_model(inputs, classes):
    return None


def test_run_prints_the_table_and_says_where_it_wrote(config, capsys):
    assert main(["run", config]) == 0
    shown = capsys.readouterr()
    for words in ("written to runs/toy-e2fl-1", "E2FL (GM)", "bytes / client / round"):
        assert words in shown.out
    assert "round 6 of 6" in shown.err
    # Of several processes that start at once, each gets a folder of its own.
    options = argparse.Namespace(out=None, resume=False)
    with folder_for(options, "toy-e2fl") as second, folder_for(options, "toy-e2fl") as third:
        assert [second.name, third.name] == ["toy-e2fl-2", "toy-e2fl-3"]


def test_a_comparison_goes_on_without_a_method_that_cannot_start(config, tmp_path, capsys):
    words = ["compare", config, "--algorithms", "ifca,fedavg", "--set", "algorithm.groups=99"]
    words += ["--set", "rounds=1", "--out", "both"]
    assert main(words) == 2
    named = "Failed: ifca, seed 0: algorithm.groups is 99"
    assert f"Warning: {named}" in capsys.readouterr().out
    assert named in (tmp_path / "both" / "report.html").read_text()
    assert main([*words, "--resume"]) == 2


RUN, COMPARE = ["run", "toy.toml"], ["compare", "toy.toml", "--algorithms"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing"], "no file and no shipped experiment"),
        ([*RUN, "--set", "lr=0.1"], "did you mean 'learner.learning_rate'"),
        ([*RUN, "--set", f"model.name='{OWN}:no_model'"], "a torch.nn.Module, not None"),
        ([*RUN, "--set", "model.hidden=[10000000, 10000000]"], "not enough memory"),
        ([*RUN, "--set", "device=cudaa"], "cannot be used here"),
        ([*RUN, "--set", "variants.x=3", "--algorithm", "x"], "must be a section"),
        ([*RUN, "--set", "data={name='fair_mnist_rotate', dir='nowhere'}"], "idx3-ubyte.gz"),
        ([*COMPARE, "e2fl", "--seeds", "a"], "--seeds takes integers"),
        ([*COMPARE, "e2fl", "--seeds", ","], "at least one seed"),
        ([*RUN, "--resume"], "--out DIR"),
        ([*COMPARE, "ifca,e2fl", "--seeds", "1,1"], "every seed once"),
        (["list", "algoritms"], "did you mean 'algorithms'"),
        (["show", "dmo"], "did you mean 'demo'"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(
    config, tmp_path, capsys, monkeypatch, arguments, words
):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert main(arguments) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert words in error
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m e2fl list datasets | head -c 20; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "advised"), [(["list"], False), (["run", "toy.toml", "--out", "run"], True)]
)
def test_only_what_can_be_resumed_advises_it(config, monkeypatch, capsys, arguments, advised):
    from e2fl.commands import training
    from e2fl.config import listing

    def interrupt(*rest, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "listing", interrupt)
    monkeypatch.setattr(training, "run_experiment", interrupt)
    assert main(arguments) == 130
    assert ("--resume" in capsys.readouterr().err) == advised


def test_code_that_a_file_names_is_told_of(config, toy, tmp_path, capsys):
    """Training that diverges has an exit code of its own, so that scripts notice it."""
    told = f"{config} names code that is imported and run: "
    huge, policy = "tests.runs.helpers:Huge", "tests.algorithms.test_validate:Choosy"
    (tmp_path / config).write_text(replace(toy, algorithm={"name": huge}, rounds=1).to_toml())
    assert main(["run", config]) == 3
    shown = capsys.readouterr()
    assert told + huge in shown.err
    assert "Huge diverged: the models of 8 clients have losses that are absurd" in shown.out
    assert main(["compare", config, "--algorithms", f"fedavg,{huge}"]) == 3
    assert "names code" not in capsys.readouterr().err
    (tmp_path / config).write_text(replace(toy, participation={"name": policy}).to_toml())
    assert main(["run", config]) == 0
    assert told + policy in capsys.readouterr().err


def test_code_is_found_in_the_folder_in_which_the_command_is_called(config, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    own = "from e2fl.algorithms.fedavg import FedAvg as Mine\n"
    (tmp_path / "mine_of_the_command.py").write_text(own)
    name = "algorithm={name='mine_of_the_command:Mine', clients_per_round=4}"
    assert main(["run", config, "--set", name, "--set", "rounds=1"]) == 0


def test_warnings_are_messages_without_code(config, tmp_path):
    rows = [f"{row % 4},{row + 1000},{row % 2}" for row in range(80)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,patient,ill", *rows]))
    settings = 'name = "table", path = "rows.csv", client = "site", label = "ill"'
    rest = 'algorithm = { name = "fedavg" }\nmodel = { name = "mlp" }\n'
    (tmp_path / "own.toml").write_text(f"{rest}data = {{ {settings} }}")
    words = [sys.executable, "-m", "e2fl", "data", "show", "own.toml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.stderr.startswith("e2fl: warning: ")
    assert "construct(" not in done.stderr


def test_everything_is_listed_with_default_and_meaning(capsys):
    def shown(*words):
        assert main(list(words)) == (0 if words else 2)
        return capsys.readouterr().out

    assert "examples:" in shown()

    for word in ("algorithms:", "datasets:", "models:", "experiments:", "e2fl", "lenet", "demo"):
        assert word in shown("list")
    assert "clients_per_round  int" in shown("list", "algorithms")
    e2fl = shown("list", "e2fl")
    assert '"carry_forward"' in e2fl
    assert e2fl.count('{ name = "exact" }') == 2
    assert "Its participation" not in e2fl
    assert "Its participation is by_group, unless" in shown("list", "e2fl_steady")
    assert "passes over its own data" in shown("list", "learner")
    assert "e2fl show femnist" in shown("list", "femnist")
    assert tomllib.loads(shown("show", "demo"))["name"] == "demo"
    assert stored() == entries(), "run `python -m e2fl.config.listing`, or `make format`"
    known = {(entry.kind, entry.name): entry for entry in stored()}
    assert all(setting.type and setting.default for e in known.values() for setting in e.settings)
    assert all(setting.meaning for setting in known["experiment", "experiment"].settings)
    assert all(entry.summary.endswith(".") for entry in known.values())  # whole sentences


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_leaves_a_checkpoint_and_says_how_to_go_on(config, tmp_path, how):
    command = [sys.executable, "-m", "e2fl", "run", "toy.toml", "--out", "run"]
    command += ["--set", "rounds=100000", "--set", "checkpoint_seconds=1000.0"]
    history = tmp_path / "run" / "history.jsonl"
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # It may be ignored where tests run unattended.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            deadline = time.monotonic() + 600
            while not (history.exists() and history.stat().st_size):
                assert process.poll() is None, "the run ended too early"
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(how)
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "--resume" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert list((tmp_path / "run" / "checkpoint").glob("round-*"))
