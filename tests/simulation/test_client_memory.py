"""What clients keep between rounds: models, tensors, numbers and texts."""

import math

import numpy as np
import pytest
import torch

from e2fl.errors import ConfigError, RunError
from e2fl.simulation.client_memory import Memories, newest_versions, versions
from e2fl.testing.contract import same

KEPT = {
    "times": 3,
    "large": 2**70,
    "best": 0.1 + 0.2,
    "lost": math.inf,
    "seen": True,
    "phase": "warm é",
    "direction": torch.tensor([1.5, -2.0]),
    "own": {"w": torch.ones(2, 2)},
}


@pytest.fixture(params=[True, False], ids=["on disk", "in memory"])
def memories(request, tmp_path):
    return Memories(tmp_path / "clients" if request.param else None)


def test_a_client_keeps_numbers_texts_and_tensors_exactly(memories):
    memories.store(4, 1, KEPT | {"loss": np.float64(0.25)})
    kept = (Memories(memories.folder) if memories.folder else memories).load(4, before=2)
    assert same(kept, KEPT | {"loss": 0.25})
    kinds = {name: type(value) for name, value in kept.items()}
    assert kinds == {name: type(value) for name, value in KEPT.items()} | {"loss": float}


def test_memories_come_back_by_the_round_before(memories):
    assert memories.load(4, before=1) == {}
    memories.store(4, 1, {"count": 7})
    memories.store(4, 3, {"own": {"w": torch.zeros(2)}})
    assert torch.equal(memories.load(4, before=9)["own"]["w"], torch.zeros(2))
    if memories.folder:
        assert Memories(memories.folder).load(4, before=3) == {"count": 7}
        assert newest_versions(memories.folder, 2) == {4: 1}
        memories.rewind(2)
        assert memories.load(4, before=9) == {"count": 7}


def test_memories_older_than_any_checkpoint_and_empty_ones_leave_no_file(tmp_path):
    memories = Memories(tmp_path)
    for number in (1, 2, 5):
        memories.store(0, number, {"own": {"w": torch.ones(1)}})
    memories.store(1, 1, {})
    memories.forget(before=4)
    assert versions(tmp_path) == {0: [2, 5]}
    assert memories.load(0, before=5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("rows", [1, 2], r"client\.memory\['rows'\] is list; it must be a model"),
        ("loss", np.float32(0.5), "is float32"),
        ("grid", np.zeros(3), "is ndarray"),
        ("nothing", None, "is NoneType"),
        ("mixed", {"w": torch.ones(1), "n": 3}, "is dict"),
        ("a/b", 1, "names are strings without '/'"),
        (3, 1, "names are strings"),
    ],
)
def test_what_a_client_cannot_keep_is_refused_by_name(memories, name, value, words):
    with pytest.raises(ConfigError, match=words):
        memories.store(0, 1, {name: value})


def test_numbers_that_were_changed_on_disk_are_refused(tmp_path):
    Memories(tmp_path).store(0, 1, {"count": 7, "own": {"w": torch.ones(2)}})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b": 7", b": 8"))
    with pytest.raises(RunError, match="checksum"):
        Memories(tmp_path).load(0, before=2)
