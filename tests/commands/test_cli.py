"""The command: what a person types, sees, and gets wrong."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from e2fl.cli import main
from e2fl.runs.store import read_run


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toy.to_toml())
    return "toy.toml"


def no_model(inputs, classes):
    return None


def few_outputs(inputs, classes):
    return nn.Linear(inputs[0], classes - 1, bias=False)


def other_inputs(inputs, classes):
    return nn.Linear(inputs[0] + 1, classes, bias=False)


def test_run_prints_the_table_and_says_where_it_wrote(config, capsys):
    assert main(["run", config]) == 0
    shown = capsys.readouterr()
    assert "written to runs/toy-e2fl-1" in shown.out
    assert "E2FL (GM)" in shown.out
    assert "round 6 of 6" in shown.err
    assert main(["run", config]) == 0
    assert "written to runs/toy-e2fl-2" in capsys.readouterr().out


def test_bytes_of_a_small_model_are_shown(config, capsys):
    assert main(["run", config, "--out", "small"]) == 0
    shown = capsys.readouterr().out
    assert "bytes / client / round" in shown
    assert not any(line.endswith("0.00  0.00") for line in shown.splitlines())


def test_compare_runs_every_algorithm_with_every_seed(config, capsys, tmp_path):
    assert (
        main(
            [
                "compare",
                config,
                "--algorithms",
                "local,fedavg,e2fl",
                "--seeds",
                "0,1",
                "--out",
                "all",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[3:7]] == [
        "Local",
        "FedAvg",
        "E2FL",
        "E2FL",
    ]
    assert sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir()) == [
        f"{name}-seed{seed}" for name in ("e2fl", "fedavg", "local") for seed in (0, 1)
    ]
    assert main(["compare", config, "--algorithms", "fedavg", "--out", "all"]) == 2
    assert (
        main(
            [
                "compare",
                config,
                "--algorithms",
                "local,fedavg,e2fl",
                "--seeds",
                "0,1",
                "--out",
                "all",
                "--resume",
            ]
        )
        == 0
    )


def test_what_is_set_wins_over_the_variant(config, toy, tmp_path):
    variants = {"qffl": {"rounds": 600, "algorithm": {"q": 0.1}}}
    (tmp_path / config).write_text(replace(toy, variants=variants).to_toml())
    changes = ["--set", "rounds=2", "--set", "algorithm.q=5.0", "--set", "seed=3"]
    assert main(["run", config, "--algorithm", "qffl", *changes, "--out", "one"]) == 0
    assert main(["compare", config, "--algorithms", "qffl,fedavg", *changes, "--out", "all"]) == 0
    assert (
        read_run(tmp_path / "one").experiment
        == read_run(tmp_path / "all" / "qffl-seed3").experiment
    )
    assert read_run(tmp_path / "one").experiment.algorithm["q"] == 5
    assert {
        read_run(tmp_path / "all" / f"{name}-seed3").summary["rounds"]
        for name in ("qffl", "fedavg")
    } == {2}
    assert main(["run", config, "--algorithm", "qffl", *changes, "--out", "one", "--resume"]) == 0


def test_a_run_that_diverges_has_an_exit_code_of_its_own_and_says_so(config, tmp_path, capsys):
    options = ["--algorithm", "tests.runs.helpers:Huge", "--out", "run"]
    assert main(["run", config, *options]) == 3
    shown = capsys.readouterr()
    assert "Huge diverged: the models of 8 clients give outputs that are not finite" in shown.out
    assert "Huge diverged" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing"], "no file and no shipped experiment"),
        (["run", "toy.toml", "--set", "roundz=3"], "did you mean 'rounds'"),
        (["run", "toy.toml", "--set", "rounds=0"], "at least 1"),
        (["run", "toy.toml", "--set", "lr=0.1"], "did you mean 'learner.learning_rate'"),
        (["run", "toy.toml", "--set", "learner.lr=0.1"], "did you mean 'learning_rate'"),
        (["run", "toy.toml", "--set", "epochs=3"], "did you mean 'learner.epochs'"),
        (["run", "toy.toml", "--set", "algorithm.grouping=lowest_los"], "mean 'lowest_loss'"),
        (
            ["run", "toy.toml", "--set", "model.name='tests.commands.test_cli:no_model'"],
            "a torch.nn.Module, not None",
        ),
        (
            ["run", "toy.toml", "--set", "model.name='tests.commands.test_cli:few_outputs'"],
            "has 2 outputs, but the data has 3",
        ),
        (
            ["run", "toy.toml", "--set", "model.name='tests.commands.test_cli:other_inputs'"],
            "not accept inputs of shape (16,)",
        ),
        (["run", "toy.toml", "--set", "algorithm.clients_per_round=99"], "only 8 clients"),
        (["run", "toy.toml", "--set", "model.keep=0"], "above 0"),
        (["run", "toy.toml", "--set", "model.keep=1.5"], "at most 1"),
        (["run", "toy.toml", "--set", "algorithm.name=fedagv"], "did you mean 'fedavg'"),
        (["compare", "toy.toml", "--algorithms", "e2fl,fedagv"], "did you mean 'fedavg'"),
        (
            ["compare", "toy.toml", "--algorithms", "e2fl", "--seeds", "a"],
            "integers separated by commas",
        ),
        (["compare", "toy.toml", "--algorithms", ","], "at least one"),
        (["list", "algoritms"], "did you mean 'algorithms'"),
        (["run", "toy.toml", "--set", "model.hidden=[0]"], "at least 1"),
        (["run", "toy.toml", "--set", "device=cudaa"], "cannot be used here"),
        (["run", "toy.toml", "--set", "learner.weight_decay=nan"], "0 or above"),
        (["run", "toy.toml", "--set", "algorithm.name=':x'"], "cannot be imported"),
        (["run", "toy.toml", "--set", "algorithm.name='os:sep'"], "not a class or function"),
        (["run", "toy.toml", "--set", "algorithm.name='e2fl.testing.toy:Toy'"], "not a class"),
        (["run", "toy.toml", "--set", "variants.x=3", "--algorithm", "x"], "must be a section"),
        (
            ["compare", "toy.toml", "--algorithms", "e2fl", "--set", "learner.epochs=0"],
            "at least 1",
        ),
        (
            ["run", "toy.toml", "--algorithm", "ifca", "--set", "algorithm.nonsense=3"],
            "no setting 'nonsense'",
        ),
        (
            ["run", "toy.toml", "--algorithm", "ifca", "--set", "algorithm.name=fedavg"],
            "name it in one place",
        ),
        (
            ["compare", "toy.toml", "--algorithms", "ifca,e2fl", "--set", "algorithm.q=5"],
            "none of ifca, e2fl",
        ),
        (["compare", "toy.toml", "--algorithms", "ifca,e2fl", "--seeds", "1,1"], "every seed once"),
    ],
)
def test_mistakes_are_one_clear_line_and_exit_code_2(config, tmp_path, capsys, arguments, words):
    assert main(arguments) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert words in errors[0]
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_runs_started_at_once_each_get_a_folder(config, tmp_path):
    command = [sys.executable, "-m", "e2fl.cli", "run", config, "--set", "rounds=1"]
    started = [
        subprocess.Popen(
            [*command, "--set", f"seed={seed}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(2)
    ]
    ended = [(process.communicate(timeout=600)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0], ended
    folders = sorted((tmp_path / "runs").iterdir())
    assert [folder.name for folder in folders] == ["toy-e2fl-1", "toy-e2fl-2"]
    assert {read_run(folder).summary["seed"] for folder in folders} == {0, 1}


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m e2fl.cli list datasets | head -c 20; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "advised"), [(["list"], False), (["run", "toy.toml", "--out", "run"], True)]
)
def test_only_what_can_be_resumed_advises_it(config, monkeypatch, capsys, arguments, advised):
    from e2fl.config import listing
    from e2fl.runs import runner

    def interrupt(*rest, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "listing", interrupt)
    monkeypatch.setattr(runner, "run_experiment", interrupt)
    assert main(arguments) == 130
    assert ("--resume" in capsys.readouterr().err) == advised


def test_code_that_a_file_names_is_told_of(config, toy, tmp_path, capsys):
    section = {"name": "tests.runs.helpers:Huge", "clients_per_round": 4}
    (tmp_path / config).write_text(replace(toy, algorithm=section, rounds=1).to_toml())
    assert main(["run", config]) == 3  # it diverges
    assert (
        f"{config} names code that is imported and run: tests.runs.helpers:Huge"
        in capsys.readouterr().err
    )
    assert main(["run", config, "--algorithm", "tests.runs.helpers:Huge"]) == 3
    assert "names code" not in capsys.readouterr().err
    policy = {"name": "tests.test_border:Choosy"}
    (tmp_path / config).write_text(replace(toy, participation=policy, rounds=1).to_toml())
    assert main(["run", config]) == 0
    assert (
        f"{config} names code that is imported and run: tests.test_border:Choosy"
        in capsys.readouterr().err
    )


def test_reading_a_run_imports_nothing_it_names(config, tmp_path, capsys):
    pytest.importorskip("vl_convert")
    assert main(["run", config, "--set", "rounds=1", "--out", "run"]) == 0
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    for old, new in (
        ("e2fl.testing.toy:Toy", "trap:X"),
        ('name = "e2fl"', 'name = "trap:X"'),
        ("mlp", "trap:X"),
    ):
        (tmp_path / "run" / "config.toml").write_text(text.replace(old, new))
        read_run(tmp_path / "run")
        assert main(["report", "run"]) == 0
        assert "trap" not in sys.modules


def test_a_shipped_experiment_can_be_shown_and_run(capsys, tmp_path):
    assert main(["show", "demo"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["name"] == "demo"
    assert main(["show", "dmo"]) == 2
    assert "did you mean 'demo'" in capsys.readouterr().err


def test_every_setting_is_listed_with_default_and_meaning(capsys):
    assert main(["list", "e2fl"]) == 0
    shown = capsys.readouterr().out
    assert "clients_per_round  int" in shown
    assert '"carry_forward"' in shown
    assert shown.count('{ name = "exact" }') == 2
    assert "Its participation" not in shown
    assert main(["list", "e2fl_steady"]) == 0
    assert (
        "Its participation is by_group, unless the experiment names another"
        in capsys.readouterr().out
    )
    assert main(["list", "learner"]) == 0
    shown = capsys.readouterr().out
    assert "learning_rate" in shown
    assert "passes over its own data" in shown
    for name in ("experiment", "mlp", "fair_mnist_rotate", "rank_clustering", "femnist"):
        assert main(["list", name]) == 0
    assert "e2fl show femnist" in capsys.readouterr().out


def test_settings_are_there_as_data_for_the_reference():
    from e2fl.config.listing import entries

    found = {(entry.kind, entry.name): entry for entry in entries()}
    absent = next(one for one in found["algorithms", "e2fl"].settings if one.name == "absent")
    assert absent.default == '"carry_forward"'
    assert "present_only" in absent.meaning
    assert all(
        setting.default and setting.type for entry in found.values() for setting in entry.settings
    )
    undocumented = [
        setting.name
        for setting in found["experiment", "experiment"].settings
        if not setting.meaning
    ]
    assert undocumented == []


def test_missing_data_is_one_clear_line(config, monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert main(["run", config, "--set", "data={name='fair_mnist_rotate', dir='nowhere'}"]) == 2
    assert "train-images-idx3-ubyte.gz" in capsys.readouterr().err


def test_an_algorithm_of_ones_own_is_found_beside_the_configuration(config, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from e2fl.algorithms.fedavg import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class Mine(FedAvg):\n"
        "    extra: float = 1.0\n"
    )
    script = (
        Path(sys.executable).parent / "e2fl"
    )  # the command itself: it does not look in this folder by itself
    if not script.exists():
        pytest.skip("the package is not installed here")
    command = [
        script,
        "run",
        config,
        "--set",
        "algorithm={name='mine:Mine', clients_per_round=4, extra=2.0}",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_list_shows_everything_and_settings_when_asked(capsys):
    assert main(["list"]) == 0
    everything = capsys.readouterr().out
    for word in (
        "algorithms:",
        "groupings:",
        "datasets:",
        "models:",
        "experiments:",
        "e2fl",
        "lenet",
        "demo",
    ):
        assert word in everything
    assert main(["list", "algorithms"]) == 0
    assert "clients_per_round  int" in capsys.readouterr().out


def test_without_a_command_help_is_shown(capsys):
    assert main([]) == 2
    assert "examples:" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_leaves_a_checkpoint_and_says_how_to_go_on(config, tmp_path, how):
    command = [sys.executable, "-m", "e2fl.cli", "run", "toy.toml", "--out", "run"]
    command += ["--set", "rounds=100000", "--set", "checkpoint_seconds=1000.0"]
    history = tmp_path / "run" / "history.jsonl"
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # it may be ignored where tests run unattended
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


@pytest.mark.slow
def test_a_terminal_shows_a_bar(config, tmp_path):
    own, other = pty.openpty()
    fcntl.ioctl(
        other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0)
    )  # 24 rows of 120 characters
    command = [sys.executable, "-m", "e2fl.cli", "run", "toy.toml", "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=other)
    os.close(other)
    shown = b""
    while True:
        try:
            part = os.read(own, 4096)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=600) == 0
    os.close(own)
    assert b"6/6" in shown
    assert b"worst group" in shown
