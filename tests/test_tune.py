"""Tuning: the same budget for every algorithm, chosen on validation data, and the same after an interruption."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.config.experiment import load
from e2fl.errors import ConfigError, RunError
from e2fl.runs.compare import methods
from e2fl.runs.folder import Folder
from e2fl.runs.watcher import Watcher
from e2fl.tuning.page import page
from e2fl.tuning.results import TunedMethod
from e2fl.tuning.search import tune
from e2fl.tuning.space import Choice, Range, fitted, own_settings, space_of
from e2fl.tuning.trials import Objective, Trial, front, objectives_of, pick_of, should_prune

pytest.importorskip("optuna")
ROOT = Path(__file__).parent.parent
FILES = ("tune.csv", "tuned.toml", "tune.html")
MEAN, WORST, BYTES = map(Objective.of, ("group/mean", "group/worst10", "bytes"))


@pytest.fixture
def config(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noisy = e2fl.Experiment(**(toy.to_dict() | {"rounds": 4, "evaluate_every": 1, "data": toy.data | {"noise": 1.5}}))
    (tmp_path / "toy.toml").write_text(noisy.to_toml())
    return "toy.toml"


def command(config, out, *more):
    space = ["--space", "learner.learning_rate=0.003..1:log", "--space", "algorithm.incumbents=0,1,2"]
    names = ["--algorithms", "e2fl,fedavg"]
    return ["tune", config, *names, *space, "--trials", "8", "--out", out, *more]


def rows_of(folder):
    return list(csv.DictReader(Path(folder, "tune.csv").read_text().splitlines()))


def test_ranges_and_choices_are_told_apart():
    assert space_of(["a.b=0.01..1:log", "c=1..5", "d=-1..2.5", "e=0,1,2", "f=[1],[2,3]", "g=1e-3..1e-1:log"]) == [
        Range("a.b", 0.01, 1, log=True),
        Range("c", 1, 5, whole=True),
        Range("d", -1, 2.5),
        Choice("e", (0, 1, 2)),
        Choice("f", ([1], [2, 3])),
        Range("g", 0.001, 0.1, log=True),
    ]


def test_whole_ends_of_a_real_setting_mean_real_numbers(toy):
    from e2fl.config.completion import completed

    rate, epochs = space_of(["learner.learning_rate=1..2", "learner.epochs=1..2"])
    assert not fitted(rate, completed(toy)).whole
    assert fitted(epochs, completed(toy)).whole
    assert fitted(epochs, completed(toy)).size == 2


def test_the_own_settings_of_an_experiment_are_found_in_the_space(toy):
    from e2fl.config.completion import completed

    space = space_of(
        ["learner.learning_rate=0.01..1", "learner.epochs=3..9", "model.hidden=[8],[24]", "model.keep=1,2"]
    )
    assert own_settings(space, completed(toy)) == {"learner.learning_rate": 0.1, "model.hidden": 1}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["rate"], "--space takes a setting and its values"),
        (["rate=1..x"], "KEY=LOW..HIGH:log"),
        (["rate=1..2:linear"], "KEY=LOW..HIGH:log"),
        (["rate=2..1"], "the first number must be below the second"),
        (["rate=0..1:log"], "numbers above 0"),
        (["rate=1,1"], "names a value twice"),
        (["rate=1..2", "rate=3"], "given to --space once"),
        (["rounds=1..9"], "part of the budget"),
        (["seed=1,2"], "use --seeds for it"),
        (["data.validation_share=0.1..0.2"], "use --set for it"),
    ],
)
def test_mistakes_in_a_space_are_explained(texts, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        space_of(texts)


def trial(number, *values, state="complete"):
    return Trial(number, {"x": number}, state, [{1: tuple(map(float, values))}])


def test_the_front_holds_the_trials_that_no_other_dominates():
    trials = {
        1: trial(1, 50, 40, 10),  # best worst group
        2: trial(2, 60, 30, 10),  # best mean
        3: trial(3, 50, 30, 10),  # dominated by both
        4: trial(4, 50, 40, 5),  # like 1 with fewer bytes
        5: trial(5, 60, 30, 10),  # equal to 2: neither dominates the other
        6: trial(6, 99, 99, 1, state="pruned"),
        7: trial(7, math.nan, math.nan, 1, state="diverged"),
    }
    assert front(trials, [MEAN, WORST, BYTES]) == [2, 4, 5]
    assert front({1: trial(1, 50), 2: trial(2, 60), 3: trial(3, 60)}, [MEAN]) == [2, 3]
    assert front({1: trial(1, 50), 2: trial(2, 60)}, [BYTES]) == [1]


def test_the_front_agrees_with_its_definition_on_random_points():
    random = np.random.default_rng(0)
    values = {n: tuple(row) for n, row in enumerate(random.integers(0, 6, (60, 3)).tolist())}
    found = front({n: trial(n, *row) for n, row in values.items()}, [MEAN, WORST, BYTES])
    for n, (a, b, c) in values.items():
        beaten = any(x >= a and y >= b and z <= c and (x, y, z) != (a, b, c) for x, y, z in values.values())
        assert (n in found) != beaten


def test_the_chosen_trial_is_the_best_of_the_front_in_the_picked_objective(toy):
    trials = [trial(1, 60, 30), trial(2, 50, 40), trial(3, 40, 40)]
    chosen = [TunedMethod.of("x", toy, [], trials, [MEAN, WORST], place).chosen.number for place in (0, 1)]
    assert chosen == [1, 2]
    assert TunedMethod.of("x", toy, [], [trial(1, 1, 1, state="pruned")], [MEAN, WORST], 0).chosen is None


def test_a_trial_is_pruned_if_the_medians_dominate_it():
    earlier = [{2: (float(value), float(value), 10.0)} for value in (10, 20, 30, 40, 50)]
    every = [MEAN, WORST, BYTES]
    assert should_prune((20, 20, 10), 2, earlier, every)
    assert should_prune((30, 20, 10), 2, earlier, every)
    assert not should_prune((30, 30, 10), 2, earlier, every)  # as good as the median
    assert not should_prune((20, 31, 10), 2, earlier, every)  # better in one objective
    assert not should_prune((20, 20, 9), 2, earlier, every)  # fewer bytes
    assert should_prune((math.nan, 20, 9), 2, earlier, every)  # diverged
    assert should_prune((20,), 2, [{2: curve[2][:1]} for curve in earlier], [MEAN])
    assert not should_prune((0, 0, 99), 3, earlier, every)  # no earlier trial was measured at this round
    assert not should_prune((0, 0, 99), 2, earlier[:4], every)  # too few


def test_objectives_follow_the_data():
    assert [o.name for o in objectives_of(None, True)] == ["group/mean", "group/worst10", "bytes"]
    assert [o.name for o in objectives_of(None, False)] == ["user/mean", "user/worst10", "bytes"]
    assert pick_of(None, objectives_of(None, True)) == 1
    assert pick_of("bytes", objectives_of(None, True)) == 2
    for text, message in (
        ("group/mean,group/mean", "twice"),
        ("group/worst", "--objectives takes group/mean"),
        ("", "--objectives takes"),
    ):
        with pytest.raises(ConfigError, match=message):
            objectives_of(text, True)
    with pytest.raises(ConfigError, match="declares no groups; use --objectives user/mean"):
        objectives_of("group/mean", False)
    with pytest.raises(ConfigError, match="--pick must be one of the objectives"):
        pick_of("user/mean", objectives_of(None, True))


def test_a_search_tries_as_often_for_each_algorithm_and_tests_the_chosen_settings(config, capsys):
    assert main(command(config, "t", "--seeds", "0,1")) == 0
    said = capsys.readouterr()
    rows = rows_of("t")
    assert [row["algorithm"] for row in rows] == ["e2fl"] * 8 + ["fedavg"] * 8
    assert {row["algorithm.incumbents"] for row in rows[:8]} <= {"0", "1", "2"}
    assert {row["algorithm.incumbents"] for row in rows[8:]} == {""}  # FedAvg has no such setting
    assert len({(row["learner.learning_rate"], row["algorithm.incumbents"]) for row in rows}) == 16
    for first in (rows[0], rows[8]):
        assert float(first["learner.learning_rate"]) == 0.1  # the experiment's own
    assert rows[0]["algorithm.incumbents"] == "0"
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert pruned
    for row in rows:
        folder = Path("t", f"{row['algorithm']}-trial{row['trial']}")
        runs = [Folder(folder / f"seed{seed}") for seed in (0, 1)]
        assert (row["state"] == "complete") == all(run.finished() for run in runs)
        if row["state"] == "complete":
            values = [run.read_summary()["validation"]["group"]["worst10"] for run in runs]
            assert float(row["group/worst10"]) == pytest.approx(np.mean(values), abs=1e-6)
            sent = [run.read_summary()["bytes"] for run in runs]
            assert float(row["bytes"]) == np.mean([each["up_total"] + each["down_total"] for each in sent])
        else:
            assert int(row["rounds"]) < 8
            assert row["group/worst10"] == ""
    for name in ("e2fl", "fedavg"):
        own = [row for row in rows if row["algorithm"] == name and row["state"] == "complete"]
        (chosen,) = [row for row in own if row["chosen"] == "1"]
        assert chosen["front"] == "1"
        assert float(chosen["group/worst10"]) == max(float(row["group/worst10"]) for row in own)
        final = [e2fl.read_run(f"t/final/{name}-seed{seed}") for seed in (0, 1)]
        assert all("validation" not in run.summary for run in final)
        assert final[0].experiment.learner["learning_rate"] == float(chosen["learner.learning_rate"])
        assert f"{np.mean([run.summary['group']['worst10'] for run in final]):.2f} ±" in said.out
    html = Path("t/tune.html").read_text()
    assert html.count("<svg") == 3
    assert html.count('class="chosen"') == 2
    assert "learner.learning_rate: 0.003 to 1, logarithmic; algorithm.incumbents: 0, 1, 2" in html
    assert f"pruned at round {max(json.loads(line)['round'] for line in history(pruned[0]))}" in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")


def history(row):
    folder = Path("t", f"{row['algorithm']}-trial{row['trial']}")
    return sorted(folder.glob("*/history.jsonl"))[-1].read_text().splitlines()


def test_the_settings_that_were_chosen_can_be_compared(config, capsys):
    assert main(command(config, "t", "--trials", "2", "--set", "algorithm.clients_per_round=3", "--no-prune")) == 0
    tuned = load("t/tuned.toml")
    for name, method in methods(tuned, ["e2fl", "fedavg"]).items():
        stored = e2fl.read_run(f"t/final/{name}-seed0").experiment
        for section in ("algorithm", "learner", "model", "data"):
            assert getattr(method, section).items() <= getattr(stored, section).items()
        assert method.algorithm["clients_per_round"] == 3
    assert main(["compare", "t/tuned.toml", "--algorithms", "e2fl,fedavg", "--out", "again"]) == 0
    for name in ("e2fl", "fedavg"):
        one, two = (e2fl.read_run(f"{place}/{name}-seed0") for place in ("t/final", "again"))
        assert one.summary["user"] == two.summary["user"]


def test_a_variant_of_the_experiment_is_tuned_on_top_of_its_settings(config, toy):
    text = (
        Path(config).read_text()
        + '\n[variants.brief.learner]\nepochs = 1\n[variants.brief.algorithm]\nname = "fedavg"\n'
    )
    Path(config).write_text(text)
    space = ["--space", "learner.batch_size=4,8"]
    assert main(["tune", config, "--algorithms", "brief", *space, "--trials", "9", "--out", "t"]) == 0
    assert len(rows_of("t")) == 2  # the space has no more
    variant = tomllib.loads(Path("t/tuned.toml").read_text())["variants"]["brief"]
    assert variant["learner"]["epochs"] == 1
    assert variant["algorithm"]["name"] == "fedavg"


class Interrupted(Watcher):
    """Ctrl-C after so many rounds."""

    def __init__(self, rounds):
        self.left = rounds

    def advance(self, number, measured):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("rounds", [1, 22])
def test_a_search_that_was_interrupted_ends_as_one_that_was_not(config, toy, rounds, tmp_path):
    base = load(config)
    found = methods(base, ["fedavg"])
    space = space_of(["learner.learning_rate=0.003..1:log"])
    whole = tune(found, space, [0], 8, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(found, space, [0], 8, out=tmp_path / "cut", watcher=Interrupted(rounds))
    resumed = tune(found, space, [0], 8, out=tmp_path / "cut", resume=True)
    assert any(trial.state == "pruned" for method in whole.tuned for trial in method.trials)
    assert resumed.to_csv() == whole.to_csv()
    assert resumed.to_toml(base) == whole.to_toml(base)
    assert page(resumed) == page(whole)


@pytest.mark.slow
def test_a_search_that_was_killed_ends_as_one_that_was_not(config):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "e2fl.cli", *command(config, "killed")]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(list(Path("killed").glob("*/trial.json"))) < 7:
        assert process.poll() is None, "the search ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    assert not Path("killed/tune.html").exists()
    assert main(["resume", "killed"]) == 0
    assert main(command(config, "whole")) == 0
    for name in FILES:
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes(), name


def test_a_folder_holds_one_search(config, capsys):
    space = ["--space", "learner.epochs=1,2"]
    words = ["tune", config, "--algorithms", "fedavg", *space, "--out", "t", "--trials"]
    assert main([*words, "1"]) == 0
    assert main([*words, "1"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*words, "2", "--resume"]) == 2
    assert "holds another search" in capsys.readouterr().err


def test_a_damaged_trial_is_refused(config, toy, tmp_path):
    found, space = methods(load(config), ["fedavg"]), space_of(["learner.epochs=1,2"])
    tune(found, space, [0], 1, out=tmp_path / "t")
    path = tmp_path / "t" / "fedavg-trial1" / "trial.json"
    whole = path.read_text()
    path.write_text(whole[:-20])
    with pytest.raises(RunError, match="damaged"):
        tune(found, space, [0], 1, out=tmp_path / "t", resume=True)
    path.write_text(re.sub(r'"learner.epochs": \d', '"learner.epochs": 7', whole))
    with pytest.raises(RunError, match="other settings than those drawn now"):
        tune(found, space, [0], 1, out=tmp_path / "t", resume=True)


def test_a_trial_in_which_every_client_diverges_does_not_end_the_search(config, capsys):
    words = ["tune", config, "--algorithms", "fedavg", "--trials", "5", "--set", "rounds=2"]
    assert main([*words, "--space", "learner.learning_rate=1e38,0.1", "--out", "t"]) == 0
    assert sorted((row["state"], row["chosen"]) for row in rows_of("t")) == [("complete", "1"), ("diverged", "0")]
    assert main([*words, "--space", "learner.learning_rate=1e37,1e38", "--out", "none"]) == 1
    assert "no trial was completed" in capsys.readouterr().out
    assert "no trial was completed" in Path("none/tune.html").read_text()
    assert not Path("none/tuned.toml").exists()


def test_settings_that_do_not_exist_are_found_before_anything_runs(config, capsys):
    for space, message in (
        ("learner.lr=0.1..1", "learning_rate"),
        (
            "algorithm.incumbent=0,1",
            "none of e2fl, fedavg has a setting 'algorithm.incumbent'; did you mean 'incumbents'",
        ),
        ("model.hiden=[8],[9]", "hidden"),
        ("data.nois=1..2", "noise"),
    ):
        words = ["tune", config, "--algorithms", "e2fl,fedavg", "--space", space, "--out", "t"]
        assert main(words) == 2
        assert message in capsys.readouterr().err
        assert not Path("t").exists()
    assert main(command(config, "t", "--objectives", "accuracy")) == 2
    assert "--objectives takes" in capsys.readouterr().err
    assert main(command(config, "t", "--trials", "0")) == 2
    assert "--trials must be at least 1" in capsys.readouterr().err
    assert not Path("t").exists()


def test_a_missing_optuna_is_named_with_the_command_that_installs_it(config):
    words = command(config, "t")
    code = f"import sys; sys.modules['optuna'] = None; from e2fl.cli import main; sys.exit(main({words}))"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "pip install 'e2fl[tune]'" in done.stderr


def test_names_on_the_page_are_escaped(config, tmp_path):
    hostile = "../<script>alert(1)</script>"
    base = e2fl.Experiment(**(load(config).to_dict() | {"name": hostile, "variants": {hostile: {}}}))
    found = {hostile: methods(base, ["e2fl"])["e2fl"]}
    text = page(tune(found, space_of(["learner.epochs=1,2"]), [0], 2, out=tmp_path / "t"))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert {path.parent for path in tmp_path.glob("**/trial.json")} == set((tmp_path / "t").glob("*-trial?"))
