"""The missing runs of a study: where they are resumed from, what is kept, and runs that cannot be continued."""

import math
from types import SimpleNamespace

import pytest

from e2fl.errors import StorageError
from e2fl.reproduce import running
from e2fl.reproduce.collecting import Origin
from e2fl.reproduce.ledger import read_entries, read_entry
from e2fl.reproduce.running import Runner, folder_of, listing, missing, resumable
from e2fl.reproduce.studies import Part, Study, wanted
from e2fl.runs import checkpoint
from tests.test_reproduce import Interrupt

ORIGIN = Origin("c0ffee", {"instructions": "AVX2", "cores": 4})


@pytest.fixture
def study(toy, tmp_path):
    config = tmp_path / "toy.toml"
    config.write_text(toy.to_toml())
    return Study("toy", "A toy", str(config), (Part(("fedavg", "ditto"), seeds=(0, 1)),))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def todo(study, *changes, methods=("fedavg",), seeds=(0,)):
    return missing(wanted(study, changes, list(seeds), list(methods)), [])


def runner(out, told=None, origin=ORIGIN, watcher=None):
    return Runner(out, origin, budget=None, tell=(lambda text: None) if told is None else told.append, watcher=watcher)


def begin(study, out, number, *changes):
    """Interrupt a run in the round after this one."""
    with pytest.raises(KeyboardInterrupt):
        runner(out, watcher=Interrupt(number)).run(todo(study, *changes))
    return folder_of(todo(study, *changes)[0].wanted, out)


def test_a_run_stopped_again_and_again_is_resumed_to_the_same_result(study, out, tmp_path):
    assert runner(tmp_path / "whole").run(todo(study))
    for number in range(2, 6):
        begin(study, out, number)
    assert runner(out).run(todo(study))
    parts, whole = (folder_of(todo(study)[0].wanted, place) for place in (out, tmp_path / "whole"))
    for name in ("history.jsonl", "clients.csv", "model.safetensors"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_is_not_continued_on_another_kind_of_machine(study, out):
    folder, told = begin(study, out, 3), []
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    other = Origin("c0ffee", {"instructions": "AVX512", "cores": 4})
    assert not runner(out, told, other).run(todo(study))
    assert "begun on another kind of machine (AVX2, here AVX512)" in told[-1]
    assert "--out" in told[-1]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_resumed_run_keeps_the_record_of_its_first_rounds(study, out):
    folder = begin(study, out, 3)
    before = (folder / "record.json").read_bytes()
    assert runner(out, origin=Origin("another", ORIGIN.machine | {"cores": 64})).run(todo(study))
    assert (folder / "record.json").read_bytes() == before
    assert read_entry(folder).record["commit"] == "c0ffee"


def test_the_record_of_a_run_is_complete_or_absent(study, out, monkeypatch):
    def full(path, text):
        raise StorageError("the disk is full")

    monkeypatch.setattr(running, "write_text", full)
    with pytest.raises(StorageError):  # no other run is tried
        runner(out).run(todo(study, seeds=(0, 1)))
    assert not list(out.rglob("record.json"))
    assert len(list(out.rglob("config.toml"))) == 1


def test_the_pace_is_that_of_a_round_without_evaluation(toy, tmp_path, monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: now.seconds))

    def pace(*rounds):
        clock = running._Clock(tmp_path, ORIGIN, math.inf)
        clock.begin(toy, 1, 9)
        for number, (seconds, measured) in enumerate(rounds, start=1):
            now.seconds += seconds
            clock.advance(number, measured)
        return clock.pace.seconds

    assert pace((3.0, None), (9.0, {})) == 3.0
    assert pace((9.0, {}), (3.0, None)) == 3.0
    assert pace((9.0, {}), (8.0, {})) == 8.0
    assert pace() == 0.0


def test_a_run_is_resumed_from_its_newest_checkpoint_evaluated_or_not(study, out):
    begin(study, out, 3, "evaluate_every=9")
    (item,) = resumable(todo(study, "evaluate_every=9"), out)
    assert (item.reached, item.prepared) == (3, True)
    assert "(resumed: seed 0 from round 3)" in listing([item])


def test_the_estimate_leaves_out_rounds_that_are_done(study, out):
    begin(study, out, 3)
    told = []
    assert runner(out, told).run(todo(study, seeds=(0, 1)))
    assert "fedavg: 7 rounds of" in told[0]  # one of the first seed, after two more to time them, and all of the second


def test_a_method_whose_clients_models_were_dropped_gets_a_folder_for_more_rounds(study, out):
    for rounds in (2, 4):
        assert runner(out).run(todo(study, f"rounds={rounds}", methods=["ditto"]))
    names = sorted(path.parent.name for path in out.rglob("summary.json"))
    assert names == ["seed-0", "seed-0-rounds-4"]
    assert missing(wanted(study, ["rounds=4"], [0], ["ditto"]), read_entries(out)) == []


def test_a_run_past_the_last_round_without_an_evaluation_stays_as_it_is(study, out):
    folder = begin(study, out, 5, "rounds=40", "evaluate_every=20")
    assert runner(out).run(todo(study, "rounds=3"))
    assert checkpoint.rounds(folder / "checkpoint")[0] == 5
    assert (folder.with_name("seed-0-rounds-3") / "summary.json").is_file()


def test_one_run_that_cannot_be_continued_does_not_end_the_study(study, out):
    folder, told = begin(study, out, 3), []
    for path in (folder / "checkpoint").glob("round-*/checkpoint.json"):
        path.write_text("damaged")
    assert not runner(out, told).run(todo(study, seeds=(0, 1)))
    assert [path.parent.name for path in out.rglob("summary.json")] == ["seed-1"]
    assert told[-1].startswith(f"not run: fedavg, seed 0: {folder} cannot be resumed")


def test_a_run_that_has_begun_keeps_its_evaluations_and_says_so_once(study, out):
    begin(study, out, 3, "rounds=12", "evaluate_every=6")
    told = []
    assert runner(out, told).run(todo(study, "rounds=12", "evaluate_every=2"))
    (said,) = [text for text in told if "evaluate_every" in text]
    assert said.endswith("keeps evaluate_every=6, as it was begun, not 2")
    (entry,) = read_entries(out)
    assert [line["round"] for line in entry.history] == [6, 12]
