"""The ledger: it refuses damage, merges only rounds that agree, and can be repeated."""

import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise

import pytest

from e2fl.config.experiment import load
from e2fl.errors import RunError
from paper.ledger import LEDGER, merged, read_ledger, write_ledger
from paper.recipes import method_of, overrides_of, settings_of
from tests.paper.conftest import line, make_run

FILES = sorted(path.stem for path in LEDGER.glob("*.jsonl"))


def test_a_ledger_is_read_as_it_was_written(ledger, tmp_path):
    write_ledger(ledger, tmp_path)
    assert read_ledger(tmp_path) == ledger
    for name in FILES:
        file = f"{name}.jsonl"
        assert (tmp_path / file).read_bytes() == (LEDGER / file).read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"round":2', '"round":1'),
        lambda text: text.replace('"mean":50.0', '"mean":"50"'),
        lambda text: text.replace('"seed":0,', ""),
        lambda text: text.replace('"overrides":{}', '"overrides":[]'),
        lambda text: text.replace('"demo"', '"adult"'),
        lambda text: text + text,
        lambda text: text.replace("{", "[", 1),
    ],
    ids=["cut", "rounds", "figure", "field", "kind", "file", "twice", "json"],
)
def test_a_damaged_line_is_refused(damage, tmp_path):
    write_ledger([make_run(rounds=[(1, 50.0), (2, 60.0)])], tmp_path)
    path = tmp_path / "demo.jsonl"
    assert len(read_ledger(tmp_path)) == 1
    path.write_text(damage(path.read_text()))
    with pytest.raises(RunError, match=r"demo\.jsonl"):
        read_ledger(tmp_path)


def test_rounds_of_two_runs_are_merged():
    short, long = make_run(rounds=[(1, 50.0), (2, 60.0)]), make_run(rounds=[(2, 60.0), (4, 70.0)])
    for runs in ([short, long], [long, short]):
        (run,) = merged(runs)
        assert [item["round"] for item in run.rounds] == [1, 2, 4]


def test_rounds_are_not_merged_if_a_shared_one_disagrees():
    short, long = make_run(rounds=[(1, 50.0), (2, 60.1)]), make_run(rounds=[(2, 60.0), (4, 70.0)])
    (run,) = merged([short, long])
    assert run == long


@pytest.mark.parametrize("made", [{"machine": {"instructions": "NEON"}}, {"engine": 2}])
def test_without_a_shared_round_machine_and_engine_must_be_the_same(made):
    first, second = make_run(rounds=[(1, 50.0)]), make_run(rounds=[(2, 60.0)])
    other = replace(second, origin=second.origin | made)
    assert len(merged([first, second])[0].rounds) == 2
    assert merged([first, other]) == [other]


def test_groups_and_clusters_are_not_mixed_up():
    found = line(1, 50.0, group={"mean": 40.0}, groups_are="found", views={"global": {}})
    run = make_run(rounds=(), method="q2")
    run = replace(run, rounds=(found,))
    assert run.value("group/mean", 1) is None
    assert run.value("clusters/mean", 1) == 40.0
    assert run.value("views/global/group/mean", 1) is None


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
        assert seen[key] == (run.overrides, run.settings, run.planned)


def test_no_line_holds_a_path_of_a_machine():
    path = re.compile(r"(?<![\w.:/<])(?:~?/[\w.~-]+(?:/[\w.~-]+)+|[A-Za-z]:\\)")
    for name in FILES:
        for text in (LEDGER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            assert not path.search(text)
            assert "data.dir" not in json.loads(text)["settings"]
