"""Runs that are continued, shared or damaged: what the ledger keeps of them, and when they count as complete."""

from dataclasses import replace

import pytest

from e2fl import version
from e2fl.config.experiment import load
from e2fl.errors import ConfigError, RunError
from e2fl.reproduce.collecting import Origin, collect
from e2fl.reproduce.ledger import Entry, read_entries, read_entry, settings_key
from e2fl.reproduce.running import Runner, missing
from e2fl.reproduce.studies import STUDIES, Part, PlannedRun, Study, wanted
from e2fl.runs.runner import run_experiment
from tests.test_reproduce import Interrupt

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})


def begun(experiment, folder, number, **more):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=folder, watcher=Interrupt(number), **more)


def rounds_of(folder):
    return [line["round"] for line in read_entry(folder).history]


def test_a_run_that_is_being_continued_is_not_finished_in_the_ledger(toy, tmp_path):
    runs, ledger = tmp_path / "runs", tmp_path / "ledger"
    run_experiment(replace(toy, rounds=4), out=runs / "a")
    (target,) = collect(runs, ledger, ORIGIN)
    begun(replace(toy, rounds=20), runs / "a", 8, resume=True)
    assert collect(runs, ledger, ORIGIN) == [target]
    entry = read_entry(target)
    assert (entry.rounds, entry.finished, entry.record["finished"]) == (8, False, False)
    assert [item.reached for item in missing([PlannedRun("e2fl", replace(toy, rounds=20))], [entry])] == [8]


def test_the_summary_of_fewer_rounds_does_not_make_a_run_complete(toy, tmp_path):
    run_experiment(replace(toy, rounds=4), out=tmp_path / "a")
    entry = read_entry(tmp_path / "a")
    longer = replace(entry, config=entry.config | {"rounds": 20}, history=(*entry.history, {"round": 8}))
    assert missing([PlannedRun("e2fl", replace(toy, rounds=20))], [longer])


def test_a_run_with_a_last_round_of_its_own_is_complete_for_its_rounds_only(toy, tmp_path):
    voting = replace(toy, rounds=4, algorithm=toy.algorithm | {"final_full_vote": True})
    run_experiment(voting, out=tmp_path / "a")
    entry = read_entry(tmp_path / "a")
    assert entry.rounds == 5
    assert missing([PlannedRun("e2fl", voting)], [entry]) == []
    for rounds in (2, 5, 100):
        assert missing([PlannedRun("e2fl", replace(voting, rounds=rounds))], [entry])


def test_runs_below_the_ledger_are_never_deleted(toy, tmp_path):
    run_experiment(replace(toy, rounds=2), out=tmp_path / "runs" / "a")
    begun(toy, tmp_path / "runs" / "b", 1)
    for runs in (tmp_path / "runs", tmp_path):
        collect(runs, tmp_path, ORIGIN)
        assert (tmp_path / "runs" / "a" / "model.safetensors").is_file()
        assert (tmp_path / "runs" / "b" / "checkpoint").is_dir()


def test_an_entry_collected_from_another_folder_of_the_ledger_stays(toy, tmp_path):
    run_experiment(replace(toy, rounds=2), out=tmp_path / "runs" / "a")
    collect(tmp_path / "runs", tmp_path / "ledger" / "old", ORIGIN)
    collect(tmp_path / "ledger" / "old", tmp_path / "ledger", ORIGIN)
    assert len(read_entries(tmp_path / "ledger")) == 2


@pytest.mark.parametrize(
    ("rounds", "kept"), [(6, [1, 2, 3, 4, 5, 6]), (7, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 2, 3, 4, 5, 6])]
)
def test_no_evaluated_round_is_lost_to_a_run_with_fewer_evaluations(toy, tmp_path, rounds, kept):
    run_experiment(replace(toy, evaluate_every=1), out=tmp_path / "fine" / "a")
    run_experiment(replace(toy, rounds=rounds, evaluate_every=9), out=tmp_path / "coarse" / "a")
    for order in (("fine", "coarse"), ("coarse", "fine")):
        ledger = tmp_path / "-".join(order)
        for runs in order:
            collect(tmp_path / runs, ledger, ORIGIN)
        (entry,) = read_entries(ledger)
        assert rounds_of(entry.folder) == kept
        assert all(collect(tmp_path / runs, ledger, ORIGIN) == [] for runs in order)


def test_rounds_of_another_kind_of_machine_are_added_only_if_a_shared_round_is_equal(toy):
    def entry(machine, *means, cores=2):
        lines = [{"round": number, "user": {"mean": mean}} for number, mean in means]
        return Entry(toy.to_dict(), tuple(lines), record={"machine": {"instructions": machine, "cores": cores}})

    def merged(one, other):
        return [line["round"] for line in one.with_lines_of(other).history]

    long = entry("AVX512", (4, 80.0), (6, 90.0))
    assert merged(long, entry("AVX512", (2, 70.0))) == [2, 4, 6]
    assert merged(long, entry("AVX512", (2, 70.0), cores=64)) == [2, 4, 6]
    assert merged(long, entry("AVX2", (2, 70.0))) == [4, 6]
    assert merged(long, entry("AVX2", (2, 70.0), (4, 80.1))) == [4, 6]
    assert merged(long, entry("AVX2", (2, 70.0), (4, 80.0))) == [2, 4, 6]


def test_rounds_of_an_unknown_machine_are_added_only_if_a_shared_round_is_equal(toy):
    def merged(one, other):
        return [line["round"] for line in one.with_lines_of(other).history]

    def entry(*means, **record):
        return Entry(toy.to_dict(), tuple({"round": n, "user": {"mean": mean}} for n, mean in means), record=record)

    long = entry((4, 80.0), (6, 90.0), machine={"instructions": "AVX512", "cores": 2})
    assert merged(long, entry((2, 70.0))) == [4, 6]
    assert merged(entry((4, 80.0)), entry((2, 70.0))) == [4]
    assert merged(long, entry((2, 70.0), (4, 80.0))) == [2, 4, 6]
    assert merged(long, entry((2, 70.0), (4, 85.0))) == [4, 6]
    same = entry((2, 70.0), (4, 85.0), machine={"instructions": "AVX512", "cores": 2})
    assert merged(long, same) == [4, 6]  # another result of the same run, whatever the reason


@pytest.fixture
def studies(toy, tmp_path):
    """Two studies that share a run and differ in rounds and evaluations."""
    config = tmp_path / "toy.toml"
    config.write_text(toy.to_toml())
    cheap = Part(("e2fl",), seeds=(0,), changes=("rounds=3", "evaluate_every=1"))
    return Study("cheap", "Cheap", str(config), (cheap,)), Study(
        "whole", "Whole", str(config), (Part(("e2fl",), (0,)),)
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_studies_that_evaluate_other_rounds_share_their_runs(studies, tmp_path, backwards):
    out = tmp_path / "out"
    order = studies[::-1] if backwards else studies
    for study in order:
        todo = missing(wanted(study), read_entries(out))
        assert len(todo) == 1
        assert Runner(out, ORIGIN, budget=None, tell=lambda text: None).run(todo)
    assert all(missing(wanted(study), read_entries(out)) == [] for study in studies)
    collect(out, tmp_path / "ledger", ORIGIN)
    (entry,) = read_entries(tmp_path / "ledger")
    assert [line["round"] for line in entry.history] == ([1, 2, 3, 4, 6] if backwards else [1, 2, 3, 4, 5, 6])


def test_a_folder_with_other_settings_is_not_continued(studies, tmp_path):
    todo = missing(wanted(studies[0]), [])
    told = []
    runner = Runner(tmp_path / "out", ORIGIN, budget=None, tell=told.append)
    runner.run(todo)
    (path,) = (tmp_path / "out").rglob("config.toml")
    path.write_text(path.read_text().replace("learning_rate = 0.1", "learning_rate = 0.2"))
    assert not runner.run(todo)
    assert told[-1].startswith("not run: e2fl")
    assert "other settings" in told[-1]


def test_a_setting_is_changed_in_the_methods_that_have_it():
    runs = wanted(STUDIES["table1"], ["algorithm.incumbents=2"], [0], ["e2fl", "fedavg"])
    assert [run.experiment.algorithm.get("incumbents") for run in runs] == [2, None]
    with pytest.raises(ConfigError, match="none of fedavg has a setting"):
        wanted(STUDIES["table1"], ["algorithm.incumbents=2"], [0], ["fedavg"])


def test_no_run_is_planned_twice():
    assert len(wanted(STUDIES["table1"], seeds=[0, 0], methods=["e2fl"])) == 1
    assert len(wanted(STUDIES["table4"], ["data.alpha=1"], [0], ["e2fl"])) == 1  # its parts differ in alpha only


def test_a_run_is_collected_with_its_own_commit(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(version, "commit", lambda: "beef-dirty")
    run_experiment(replace(toy, rounds=2), out=tmp_path / "runs" / "a")
    (target,) = collect(tmp_path / "runs", tmp_path / "ledger", ORIGIN)
    assert read_entry(target).record["commit"] == "beef-dirty"


def test_the_origin_says_that_the_code_was_modified(monkeypatch):
    monkeypatch.setattr("e2fl.reproduce.collecting.commit", lambda: "beef-dirty")
    assert Origin.here().commit == "beef-dirty"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("history.jsonl", '{"user": {}}\n'),
        ("history.jsonl", '{"user": {}, "round": "6"}\n'),
        ("history.jsonl", '["user"]\n'),
        ("history.jsonl", '{"user":' + "[" * 100_000 + "\n"),
        ("summary.json", '{"bytes": null}'),
        ("record.json", '{"machine": "x"}'),
        ("config.toml", 'seed = "a"\n'),
        ("config.toml", "rounds = 1.5\n"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_the_folder(toy, tmp_path, name, text):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    plain = toy.to_toml()
    (folder / "config.toml").write_text(plain)
    if name == "config.toml":
        key = text.partition(" ")[0]
        text += "\n".join(line for line in plain.splitlines() if not line.startswith(f"{key} ="))
    (folder / name).write_text(text)
    with pytest.raises(RunError, match="runs/one is not the folder of a run"):
        read_entry(folder)


def test_whole_numbers_count_the_same_as_integers():
    one, other = (load("adult", [f"data.alpha={alpha}"]).to_dict() for alpha in ("1", "1.0"))
    assert settings_key(one) == settings_key(other)
    assert settings_key(one) != settings_key(load("adult", ["data.alpha=1.5"]).to_dict())
