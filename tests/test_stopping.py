"""A run that is stopped at any moment, again and again, and resumed equals one that was never stopped."""

import json
from dataclasses import replace

import pytest

from e2fl import version
from e2fl.runs import checkpoint
from e2fl.runs.folder import Folder
from e2fl.runs.resume import digest_of_history
from e2fl.runs.runner import Watcher, Watchers, run_experiment
from tests.test_resuming import Begin, rewrite
from tests.test_runner import StopAfter, contents


class StopAtOnce(Watcher):
    """Stands for Ctrl-C before the first round that is run again."""

    def begin(self, experiment, first, last):
        raise KeyboardInterrupt


def stop(experiment, folder, watcher=None, **more):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, out=folder, watcher=watcher, **more)


class PauseAfter(StopAfter):
    """Stops a run between two rounds."""

    def advance(self, number, measured):
        pass

    def pause(self, number):
        super().advance(number, None)


@pytest.mark.parametrize("number", [1, 2, 5, 6])
def test_a_stop_between_rounds_costs_no_round(toy, tmp_path, number):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    run_experiment(experiment, out=tmp_path / "whole")
    stop(experiment, tmp_path / "parts", Watchers(PauseAfter(number), Watcher()))
    stop(experiment, tmp_path / "parts", StopAtOnce(), resume=True)
    begin = Begin()
    run_experiment(experiment, out=tmp_path / "parts", resume=True, watcher=begin)
    assert begin.first == min(number + 1, experiment.rounds)  # the last round is always left to repeat
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_every_watcher_sees_every_round_of_a_run_that_was_stopped(toy, tmp_path):
    class Seen(Watcher):
        def __init__(self):
            self.rounds = []

        def advance(self, number, measured):
            self.rounds.append((number, measured))

    parts, whole = Seen(), Seen()
    run_experiment(toy, watcher=whole)
    stop(toy, tmp_path / "run", Watchers(StopAfter(4), parts))
    run_experiment(toy, out=tmp_path / "run", resume=True, watcher=parts)
    assert parts.rounds == whole.rounds


@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_a_run_stopped_twice_equals_one_never_stopped(toy, tmp_path, number):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    run_experiment(experiment, out=tmp_path / "whole")
    stop(experiment, tmp_path / "parts", StopAfter(number))
    stop(experiment, tmp_path / "parts", StopAtOnce(), resume=True)
    begin = Begin()
    run_experiment(experiment, out=tmp_path / "parts", resume=True, watcher=begin)
    assert begin.first == number  # a watcher after the one that was stopped may not have seen it
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["append_history", "append_times"])
@pytest.mark.parametrize("late", [False, True])
def test_an_interruption_while_the_history_is_written_costs_only_that_round(toy, tmp_path, monkeypatch, name, late):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    run_experiment(experiment, out=tmp_path / "whole")
    write = getattr(Folder, name)

    def interrupted(self, *args):
        fourth = (args[0]["round"] if name == "append_history" else args[0]) == 4
        if late or not fourth:
            write(self, *args)
        if fourth:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, name, interrupted)
        stop(experiment, tmp_path / "parts")
    assert checkpoint.rounds(tmp_path / "parts" / "checkpoint") == [3, 0]
    stop(experiment, tmp_path / "parts", StopAtOnce(), resume=True)
    run_experiment(experiment, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_checkpoint_that_counts_a_later_line_is_mended_when_it_is_resumed(toy, tmp_path, monkeypatch):
    experiment = replace(toy, checkpoint_seconds=1000.0)
    run_experiment(experiment, out=tmp_path / "whole")
    stop(experiment, tmp_path / "parts", StopAfter(3))
    whole = (tmp_path / "whole" / "history.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "parts" / "history.jsonl").write_bytes(b"".join(whole[:2]))
    counted = digest_of_history(Folder(tmp_path / "parts"), 4)
    rewrite(tmp_path / "parts", lambda extra: extra.update(history=counted))
    stop(experiment, tmp_path / "parts", StopAtOnce(), resume=True)
    run_experiment(experiment, out=tmp_path / "parts", resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_the_commit_of_a_run_is_that_of_its_start(toy, tmp_path, monkeypatch):
    class Commit(Watcher):
        def advance(self, number, measured):
            monkeypatch.setattr(version, "commit", lambda: "another")

    monkeypatch.setattr(version, "commit", lambda: "beef")
    run_experiment(toy, out=tmp_path / "run", watcher=Commit())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["environment"]["commit"] == "beef"
