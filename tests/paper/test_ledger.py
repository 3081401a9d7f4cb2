"""The ledger: it refuses damage, merges only rounds that agree, and can be repeated."""

import json
import re
import shlex
from itertools import pairwise

import pytest

from e2fl.config.experiment import load
from e2fl.errors import RunError
from paper.ledger import LEDGER, frame, merged, read_ledger, write_ledger
from paper.running import method_of, overrides_of, settings_of
from tests.paper.conftest import ORIGIN, make_run

FILES = sorted(path.stem for path in LEDGER.glob("*.jsonl"))


def test_a_ledger_is_read_as_it_was_written(ledger, tmp_path):
    write_ledger(ledger, tmp_path)
    assert len(FILES) == 10
    for name in FILES:
        file = f"{name}.jsonl"
        assert (tmp_path / file).read_bytes() == (LEDGER / file).read_bytes()


@pytest.mark.parametrize(("old", "new"), [("}\n", ""), ('"seed":0,', ""), ("{", "[")])
def test_a_damaged_line_is_named(old, new, tmp_path):
    write_ledger([make_run()], tmp_path)
    path = tmp_path / "demo.jsonl"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(RunError, match=r"line 1 of .*demo\.jsonl"):
        read_ledger(tmp_path)


def test_rounds_of_two_runs_are_merged_if_those_they_share_agree():
    short, long = make_run(rounds=[(1, 50.0), (2, 60.0)]), make_run(rounds=[(2, 60.0), (4, 70.0)])
    for runs in ([short, long], [long, short]):
        (run,) = merged(runs)
        assert [item["round"] for item in run.rounds] == [1, 2, 4]
    other = make_run(rounds=[(1, 50.0), (2, 60.1)])
    assert merged([other, long]) == [long]


def test_of_runs_without_a_shared_or_equal_round_the_farthest_or_newest_engine_stays():
    first, second, old, new = (
        make_run(rounds=rounds, origin=ORIGIN | {"engine": engine})
        for rounds, engine in (
            ([(1, 50.0)], 1),
            ([(2, 60.0)], 1),
            ([(1, 50.0), (2, 60.0)], 1),
            ([(2, 61.0)], 2),
        )
    )
    assert len(merged([first, second])[0].rounds) == 2
    assert merged([old, new]) == merged([new, old]) == merged([first, new]) == [new]


def test_groups_and_clusters_are_not_mixed_up():
    run = make_run(rounds=[(1, 50.0), (2, 50.0)])
    declared, found = run.rounds
    declared |= {"group": {"mean": 40.0}, "views": {"global": {"group": {"mean": 30.0}}}}
    found |= {"group": {"mean": 40.0}, "groups_are": "found"}
    rows = frame([run])
    assert rows["group/mean"].notna().tolist() == [True, False]
    assert rows["clusters/mean"].notna().tolist() == [False, True]
    assert rows["views/global/group/mean"].iloc[0] == 30.0


@pytest.mark.parametrize("experiment", FILES)
def test_every_run_says_where_it_comes_from_and_can_be_repeated(experiment, ledger):
    seen = {}
    for run in (run for run in ledger if run.experiment == experiment):
        assert re.fullmatch(r"[0-9a-f]{40}", run.origin["commit"])
        assert set(run.origin) == {"command", "commit", "machine", "version", "engine"}
        words = shlex.split(run.origin["command"])
        changes = [word for before, word in pairwise(words) if before == "--set"]
        kept = [word for word in changes if not word.startswith(("seed=", "evaluate_every="))]
        key = (run.method, *kept)
        if key not in seen:  # seeds of one method differ in the seed only
            again = load(words[2], changes, algorithm=words[4])
            assert method_of(again) == run.method == words[4]
            assert again.seed == run.seed
            overrides = overrides_of(again, experiment, run.method)
            seen[key] = overrides, settings_of(again), again.rounds
        overrides, settings, rounds = seen[key]
        assert (overrides, rounds) == (run.overrides, run.planned)
        shared = settings.keys() & run.settings.keys()  # others came, or went, after the run
        assert all(settings[name] == run.settings[name] for name in shared)


def test_no_line_holds_a_path_of_a_machine():
    path = re.compile(r"(?<![\w.:/<])(?:~?/[\w.~-]+(?:/[\w.~-]+)+|[A-Za-z]:\\)")
    for name in FILES:
        for text in (LEDGER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            assert not path.search(text)
            assert "data.dir" not in json.loads(text)["settings"]
