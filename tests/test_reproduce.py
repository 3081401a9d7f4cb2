"""The ledger: what is collected, how a run is repeated from it, and what is run because it is missing."""

import json
import re
import shlex
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from e2fl.cli import main
from e2fl.config.completion import completed
from e2fl.config.experiment import load, shipped, with_seed
from e2fl.errors import RunError
from e2fl.reproduce import studies
from e2fl.reproduce.collecting import Origin, collect, command, place, recipe_of, without_paths
from e2fl.reproduce.ledger import Entry, read_entries, read_entry, settings_key
from e2fl.reproduce.running import Pace, Runner, estimate, listing, missing, resumable
from e2fl.reproduce.studies import STUDIES, Part, Study, paper, wanted
from e2fl.runs import checkpoint
from e2fl.runs.folder import MANIFEST
from e2fl.runs.runner import Watcher, run_experiment
from e2fl.simulation.simulator import SimulatedFederation

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})
VARIANTS = [(name, variant) for name in shipped() for variant in sorted({"e2fl", "fedavg", *load(name).variants})]
# A folder of a user or a system, and nothing of an address or of an arithmetic slash.
MACHINE = re.compile(r"(?<![\w:/.])(?:/(?:root|home|work|tmp|Users|mnt|opt|var|srv|usr|etc)\b|~/|[A-Z]:\\)")


class Interrupt(Watcher):
    """Interrupts after a round."""

    def __init__(self, number):
        self.number = number

    def advance(self, number, measured):
        if number > self.number:
            raise KeyboardInterrupt


def finished(toy, folder, **changes):
    run_experiment(replace(toy, **changes), out=folder)
    return folder


def begun(toy, folder, number):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(toy, out=folder, watcher=Interrupt(number))
    return folder


def test_a_finished_run_is_collected_without_models_and_clients(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("e2fl.version.commit", lambda: "")
    finished(toy, tmp_path / "runs" / "e2fl-seed0")
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    names = {path.name for path in target.iterdir()}
    assert names == {"config.toml", "history.jsonl", "groups.csv", "record.json", "summary.json"}
    entry = read_entry(target)
    assert [line["round"] for line in entry.history] == [2, 4, 6]
    assert entry.record["commit"] == "c0ffee"
    assert entry.record["machine"] == {"instructions": "AVX2", "cores": 4}
    assert (entry.record["rounds"], entry.record["of"], entry.record["finished"]) == (6, 6, True)
    last = entry.history[-1]["groups"]
    shown = {row["group"]: row["accuracy"] for row in entry.groups if row["view"] == "own"}
    assert shown == {name: found["accuracy"] for name, found in last.items()}


def test_an_interrupted_run_is_collected_with_its_history_and_replaced_when_it_gets_farther(toy, tmp_path):
    runs, ledger = tmp_path / "runs", tmp_path / "ledger"
    begun(toy, runs / "one", 4)
    (target,) = collect(runs, ledger, ORIGIN)
    assert not (target / "summary.json").exists()
    assert read_entry(target).rounds == 4
    assert collect(runs, ledger, ORIGIN) == []
    begun(toy, tmp_path / "shorter" / "one", 2)
    assert collect(tmp_path / "shorter", ledger, ORIGIN) == []
    assert read_entry(target).rounds == 4
    run_experiment(toy, out=runs / "one", resume=True)
    assert collect(runs, ledger, ORIGIN) == [target]
    assert read_entry(target).finished
    assert read_entry(target).rounds == 6


def test_the_collector_names_the_commit_of_a_run_that_does_not_know_it(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("e2fl.version.commit", lambda: "")
    folder = finished(toy, tmp_path / "runs" / "one")
    (folder / "record.json").write_text(json.dumps({"commit": None}))  # as a program installed from a wheel writes it
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    assert read_entry(target).record["commit"] == ORIGIN.commit


def test_what_a_run_says_of_its_origin_counts_more_than_what_the_collector_says(toy, tmp_path):
    folder = finished(toy, tmp_path / "runs" / "one")
    own = {"commit": "beef", "machine": {"instructions": "AVX512", "cores": 64}, "version": "0.0.9"}
    (folder / "record.json").write_text(json.dumps(own))
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    assert read_entry(target).record["commit"] == "beef"
    assert read_entry(target).record["machine"]["cores"] == 64
    assert read_entry(target).record["version"] == read_entry(target).summary["version"]


def test_a_ledger_collected_into_itself_follows_the_shipped_experiments(tmp_path):
    config = load("table1", ["data.samples_per_client=60"], algorithm="fedavg")
    history = json.dumps({"round": 1, "user": {"mean": 1.0}}) + "\n"
    old = tmp_path / "ledger" / "table1" / "as-it-was" / "fedavg" / "seed-0"
    old.mkdir(parents=True)
    (old / "config.toml").write_text(config.to_toml())
    (old / "history.jsonl").write_text(history)
    (old / "record.json").write_text(json.dumps({"commit": "beef", "command": "e2fl run old"}))
    (new,) = collect(tmp_path / "ledger", tmp_path / "ledger", ORIGIN)
    assert new == tmp_path / "ledger" / "table1" / "data.samples_per_client=60" / "fedavg" / "seed-0"
    assert not old.exists()
    assert read_entry(new).record["commit"] == "beef"
    assert "data.samples_per_client=60" in read_entry(new).record["command"]
    assert collect(tmp_path / "ledger", tmp_path / "ledger", ORIGIN) == []


def test_a_damaged_folder_is_named(tmp_path):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    for text in ("no = [toml", 'name = "x"\n[algorithm]\nname = "e2fl"', "algorithm = 3\ndata = 4"):
        (folder / "config.toml").write_text(text)
        with pytest.raises(RunError, match="runs/one is not the folder of a run"):
            collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)


def test_runs_that_differ_in_a_setting_have_folders_of_their_own(toy):
    one, other = (Entry(replace(toy, learner={"learning_rate": rate}).to_dict(), ()) for rate in (0.1, 0.2))
    assert place(one) != place(other)
    assert place(Entry(with_seed(toy, 3).to_dict(), ())).name == "seed-3"
    small = load("table1", ["data.samples_per_client=60", "rounds=9"], algorithm="fedavg")
    assert place(Entry(small.to_dict(), ())) == Path("table1/data.samples_per_client=60/fedavg/seed-0")
    assert place(Entry(load("table1", algorithm="qffl").to_dict(), ())) == Path("table1/as-shipped/qffl/seed-0")


def test_no_path_of_the_machine_gets_into_the_ledger(toy, tmp_path):
    folder = finished(toy, tmp_path / "runs" / "one")
    config = (folder / "config.toml").read_text().replace("[data]", '[data]\ndir = "/home/ada/data"')
    (folder / "config.toml").write_text(config)
    summary = json.loads((folder / "summary.json").read_text())
    summary["data"] = {"source": "/home/ada/data/femnist.npz", "page": "https://example.org/a/b", "ratio": "1/2/3"}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / MANIFEST).unlink()
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    for path in target.iterdir():
        assert not MACHINE.search(path.read_text()), path.name
        assert "ada" not in path.read_text()
    kept = read_entry(target).summary["data"]
    assert kept == {"source": "femnist.npz", "page": "https://example.org/a/b", "ratio": "1/2/3"}
    assert without_paths(r"see C:\Users\ada\x.csv") == "see x.csv"


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_the_command_of_the_ledger_makes_the_same_configuration(name, variant):
    asked = ["rounds=7", "seed=3", "model.name=lenet_small", "learner.learning_rate=0.5"]
    config = load(name, asked, algorithm=variant).to_dict()
    words = shlex.split(command(config))
    assert words[:4] == ["e2fl", "run", name, "--algorithm"]
    changes = [word for before, word in pairwise(words) if before == "--set"]
    again = load(words[2], changes, algorithm=words[4])
    assert settings_key(again.to_dict()) == settings_key(config)
    assert (again.rounds, again.seed, again.evaluate_every) == (7, 3, load(name, algorithm=variant).evaluate_every)


def test_a_label_that_no_variant_has_is_part_of_the_command():
    config = load("femnist", ["algorithm.label=mine", "algorithm.absent=present_only"], algorithm="e2fl").to_dict()
    recipe = recipe_of(config)
    assert recipe.variant == "e2fl"
    assert recipe.changes == {"algorithm.absent": "present_only", "algorithm.label": "mine"}


def test_group_figures_are_over_the_clusters_where_clients_declare_no_groups(toy, tmp_path):
    folder = finished(toy, tmp_path / "runs" / "one")
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for line in lines:
        for part in (line, *line["views"].values()):
            part["groups"], part["group"] = {}, None
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / MANIFEST).unlink()
    clients = "client,group,n,accuracy,loss,served_as\na,,9,80,1,0\nb,,9,90,2,0\nc,,9,50,3,1\n"
    (folder / "clients.csv").write_text(clients)
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    rows = [(row["view"], row["group"], row["clients"], row["accuracy"]) for row in read_entry(target).groups]
    assert rows == [("found", "0", 2, 85.0), ("found", "1", 1, 50.0)]


@pytest.fixture
def study(toy, tmp_path, monkeypatch):
    """A study of two methods and two seeds, from an experiment in a file."""
    config = tmp_path / "toy.toml"
    config.write_text(toy.to_toml())
    made = Study("toy", "A toy", str(config), (Part(("e2fl", "fedavg"), seeds=(0, 1)),))
    monkeypatch.setitem(studies.STUDIES, "toy", made)
    return made


def test_what_is_missing_is_run_and_nothing_twice(study, tmp_path):
    told = []
    todo = missing(wanted(study), [])
    assert [(item.wanted.seed, item.wanted.method) for item in todo] == [
        (0, "e2fl"),
        (0, "fedavg"),
        (1, "e2fl"),
        (1, "fedavg"),
    ]
    assert Runner(tmp_path / "out", ORIGIN, budget=None, tell=told.append).run(todo)
    entries = read_entries(tmp_path / "out")
    assert len(entries) == 4
    assert all(entry.finished and entry.record["commit"] == "c0ffee" for entry in entries)
    assert missing(wanted(study), entries) == []
    assert re.search(r"e2fl: 10 rounds of \d+\.\d\d s", told[0])
    assert "together about" in told[0]


def test_a_run_stopped_at_the_budget_is_resumed_to_the_same_result(study, toy, tmp_path):
    out = tmp_path / "out"
    runner = Runner(out, ORIGIN, budget=None, tell=lambda text: None)
    todo = missing(wanted(study, seeds=[0], methods=["e2fl"]), [])
    runner.measure(todo)  # stops after the first rounds
    (folder,) = [path.parent for path in out.rglob("config.toml")]
    assert not (folder / "summary.json").exists()
    told = []
    assert not Runner(out, ORIGIN, budget=0, tell=told.append).run(todo)
    assert "budget" in told[-1]
    assert Runner(out, ORIGIN, budget=None, tell=told.append).run(todo)
    whole = finished(load(study.experiment, algorithm="e2fl"), tmp_path / "whole")
    assert (folder / "history.jsonl").read_bytes() == (whole / "history.jsonl").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize("grouping", ["known", "rank_clustering"])
def test_a_budget_shorter_than_a_round_reaches_the_end_in_several_calls(study, toy, tmp_path, monkeypatch, grouping):
    groups = {"groups": 2} if grouping == "rank_clustering" else {}
    slow = replace(toy, rounds=3, algorithm=toy.algorithm | {"grouping": {"name": grouping} | groups})
    Path(study.experiment).write_text(slow.to_toml())
    train = SimulatedFederation.train

    def sleep_and_train(self, request):
        time.sleep(0.12)  # longer than the budget
        return train(self, request)

    monkeypatch.setattr(SimulatedFederation, "train", sleep_and_train)
    out = tmp_path / "out"
    todo = missing(wanted(study, seeds=[0], methods=["e2fl"]), [])
    reached = []
    while not list(out.rglob("summary.json")):
        Runner(out, ORIGIN, budget=0.1 / 60, tell=lambda text: None).run(todo)
        (checkpoints,) = out.rglob("checkpoint")
        reached.append(checkpoint.rounds(checkpoints)[0])
        assert len(reached) < 9
    assert reached == ([1, 2, 3] if grouping == "known" else [0, 1, 2, 3])
    whole = finished(load(study.experiment, algorithm="e2fl"), tmp_path / "whole")
    assert (checkpoints.parent / "history.jsonl").read_bytes() == (whole / "history.jsonl").read_bytes()


def test_more_rounds_later_are_as_if_they_had_been_asked_for_at_once(study, tmp_path):
    out = tmp_path / "out"
    for rounds, begun in ((4, 0), (6, 4)):
        entries = read_entries(out) if out.exists() else []
        todo = missing(wanted(study, [f"rounds={rounds}"], seeds=[0], methods=["e2fl"]), entries)
        assert [item.reached for item in todo] == [begun]
        assert Runner(out, ORIGIN, budget=None, tell=lambda text: None).run(todo)
    (folder,) = [path.parent for path in out.rglob("config.toml")]
    whole = finished(load(study.experiment, algorithm="e2fl"), tmp_path / "whole")
    assert (folder / "history.jsonl").read_bytes() == (whole / "history.jsonl").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_default_counts_the_same_written_out_or_left_out():
    short = load("table1", algorithm="fedavg")
    assert settings_key(short.to_dict()) == settings_key(completed(short).to_dict())
    assert settings_key(short.to_dict()) != settings_key(load("table1", algorithm="qffl").to_dict())


def test_code_that_a_file_names_is_not_imported_to_read_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    config = load("table1").to_dict() | {"data": {"name": "trap:Data"}}
    assert recipe_of(config) is None
    assert place(Entry(config, ())).parts[0] == "table1"


def test_a_run_of_the_ledger_that_is_too_short_is_missing_and_a_longer_one_is_not(study, tmp_path):
    run = wanted(study, seeds=[0], methods=["e2fl"])[0]
    config = completed(run.experiment).to_dict()
    line = {"round": 4, "user": {"mean": 1.0}}
    assert [item.reached for item in missing([run], [Entry(config, (line,))])] == [4]
    assert missing([run], [Entry(config | {"rounds": 99}, (line | {"round": 6}, line | {"round": 9}))]) == []
    assert [item.reached for item in missing([run], [Entry(config | {"seed": 5}, (line | {"round": 9},))])] == [0]


def test_a_run_of_the_ledger_cannot_be_resumed_because_it_has_no_checkpoint(study, tmp_path):
    run = wanted(study, seeds=[0], methods=["e2fl"])[0]
    entry = Entry(completed(run.experiment).to_dict(), ({"round": 4, "user": {"mean": 1.0}},))
    assert [item.reached for item in resumable(missing([run], [entry]), tmp_path / "out")] == [0]


def test_runs_of_one_method_with_other_settings_are_told_apart():
    todo = missing(wanted(STUDIES["table4"], seeds=[0], methods=["fedavg"]), [])
    assert listing(todo).splitlines() == [
        "  fedavg (data.alpha=5000): seeds 0, to round 20",
        "  fedavg (data.alpha=1): seeds 0, to round 20",
    ]


def test_a_method_that_ends_early_by_itself_is_not_missing(study):
    run = wanted(study, seeds=[0], methods=["e2fl"])[0]
    line = {"round": 4, "user": {"mean": 1.0}}
    config = completed(run.experiment).to_dict()
    assert missing([run], [Entry(config, (line,), summary={"rounds": 4})]) == []


def test_the_estimate_counts_only_rounds_that_are_left(study):
    todo = missing(wanted(study, seeds=[0], methods=["e2fl"]), [])
    todo = [replace(item, reached=2) for item in todo]
    text = estimate(todo, {"e2fl": Pace(30.0, 6)})
    assert "4 rounds of 30.00 s, about 2 min" in text
    assert "seed 0 from round 2" in listing(todo)


def test_the_command_shows_what_is_missing_and_runs_nothing_when_asked_to(study, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "toy", "--dry-run", "--seeds", "0"]) == 3
    shown = capsys.readouterr().out
    assert "A toy: 2 runs, 0 of them finished" in shown
    assert "fedavg: seeds 0, to round 6" in shown
    assert not (tmp_path / "runs").exists()


def test_the_command_collects_and_says_how_many(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("e2fl.version.commit", lambda: "")
    finished(toy, tmp_path / "mine" / "one")
    assert main(["reproduce", "--collect", "mine", "--ledger", "results", "--commit", "abc"]) == 0
    assert "1 runs new or changed in results" in capsys.readouterr().out
    assert read_entries(Path("results"))[0].record["commit"] == "abc"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to do"),
        (["table9"], "no table or figure 'table9'"),
        (["table1", "--methods", "fedagv"], "did you mean 'fedavg'"),
        (["table1", "--seeds", "a"], "--seeds takes integers"),
        (["table1", "--seeds", ""], "--seeds names no seed"),
        (["table1", "--methods", ","], "--methods names no method"),
        (["table1", "--dry-run", "--budget", "nan"], "--budget takes minutes"),
        (["table1", "--dry-run", "--budget=-1"], "--budget takes minutes"),
        (["table1", "--dry-run", "--set", "seed=3"], "--seeds"),
        (["table1", "--dry-run", "--set", "algorithm.incumbentz=3"], "did you mean 'incumbents'"),
        (["table1", "--dry-run", "--set", "algorithm.incumbents=-3"], "incumbents"),
        (["table1", "--dry-run", "--set", "learner.rate=3"], "no setting 'rate'"),
        (["table1", "--dry-run", "--set", "data.samples=3"], "no setting 'samples'"),
        (["table1", "--dry-run", "--set", "model.keep=much"], "model.keep"),
        (["table1", "--dry-run", "--set", "participation.name=nobody"], "nobody"),
        (["--write-docs", "--ledger", "nowhere"], "there is no ledger"),
        (["--collect", "nowhere"], "holds no run"),
    ],
)
def test_mistakes_are_explained(words, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_run_of_a_study_is_a_run_of_a_shipped_experiment(name):
    for run in wanted(STUDIES[name]):
        run.experiment.build_algorithm()
        assert run.experiment.label == run.method


def test_the_studies_are_the_papers_tables_with_its_rounds_and_seeds():
    assert {run.experiment.rounds for run in wanted(STUDIES["table1"]) if run.method != "qffl"} == {paper()["rounds"]}
    assert {run.experiment.rounds for run in wanted(STUDIES["table1"], methods=["qffl"])} == {paper()["rounds_qffl"]}
    assert sorted({run.seed for run in wanted(STUDIES["table1"])}) == list(range(paper()["seeds"]))
    tens = wanted(STUDIES["table5"], methods=["conv2_random"])
    assert len(tens) == paper()["runs_table5"]
    assert {run.experiment.data["alpha"] for run in wanted(STUDIES["table4"])} == {5000, 1}
