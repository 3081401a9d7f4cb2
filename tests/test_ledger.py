"""The ledger of this repository: every run in it can be repeated, and says nothing of the machine it ran on."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from e2fl.config.experiment import load
from e2fl.reproduce.ledger import read_entry, settings_key
from tests.test_reproduce import MACHINE

RESULTS = Path(__file__).parent.parent / "results"
ENTRIES = {
    experiment.name: sorted(path.parent for path in experiment.rglob("config.toml"))
    for experiment in sorted(RESULTS.iterdir())
    if experiment.is_dir()
}


@pytest.mark.parametrize("experiment", ENTRIES)
def test_every_entry_says_where_it_comes_from_and_can_be_repeated(experiment):
    for folder in ENTRIES[experiment]:
        entry = read_entry(folder)
        assert re.fullmatch(r"[0-9a-f]{40}", entry.record["commit"]), folder
        assert entry.record["rounds"] == entry.rounds > 0, folder
        assert entry.record["finished"] == entry.finished, folder
        assert set(entry.record["machine"]) == {"instructions", "cores"}, folder
        words = shlex.split(entry.record["command"])
        changes = [word for before, word in pairwise(words) if before == "--set"]
        again = load(words[2], changes, algorithm=words[4])
        assert settings_key(again.to_dict()) == entry.settings, folder
        assert (again.rounds, again.seed) == (entry.config["rounds"], entry.seed), folder


@pytest.mark.parametrize("experiment", ENTRIES)
def test_every_entry_is_small_text_without_paths_of_a_machine(experiment):
    for folder in ENTRIES[experiment]:
        for path in folder.iterdir():
            text = path.read_text(encoding="utf-8")
            assert len(text) < 400_000, path
            assert not MACHINE.search(text), path
        assert "dir" not in read_entry(folder).config["data"], folder


def test_the_ledger_has_entries():
    assert sum(map(len, ENTRIES.values())) > 100
