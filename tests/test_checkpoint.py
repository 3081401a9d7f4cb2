"""Checkpoints and memories: what was saved comes back, in its own types, or is refused."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from e2fl.errors import RunError
from e2fl.runs.checkpoint import KEPT, Checkpoint, latest, load, oldest, save
from e2fl.simulation.client_memory import Memories


@dataclass(frozen=True)
class Inner:
    place: int
    name: str | None


@dataclass(frozen=True)
class State:
    params: dict[str, torch.Tensor]
    ranks: dict[int, dict[str, NDArray[np.int32]]]
    several: tuple[Inner, ...]
    share: float
    ready: bool
    missing: Inner | None
    mask: NDArray[np.bool_]


def a_state():
    return State(
        {"a": torch.arange(3.0)},
        {3: {"layer": np.array([2, 0, 1], dtype=np.int32)}},
        (Inner(1, None), Inner(2, "two")),
        0.1,
        True,
        None,
        np.array([True, False]),
    )


def test_a_state_comes_back_as_it_was(tmp_path):
    save(tmp_path, Checkpoint(7, a_state(), {"seconds": 1.5}))
    found = latest(tmp_path, State)
    assert (found.round_number, found.extra) == (7, {"seconds": 1.5})
    state = found.state
    assert torch.equal(state.params["a"], torch.arange(3.0))
    assert state.ranks[3]["layer"].tolist() == [2, 0, 1]
    assert state.ranks[3]["layer"].dtype == np.int32
    assert (state.several, state.share, state.ready, state.missing) == (a_state().several, 0.1, True, None)
    assert state.mask.dtype == np.bool_


def test_only_the_newest_few_are_kept(tmp_path):
    for number in range(1, 6):
        save(tmp_path, Checkpoint(number, a_state(), {}))
    assert len(list(tmp_path.glob("round-*"))) == KEPT
    assert latest(tmp_path, State).round_number == 5
    assert oldest(tmp_path) == 6 - KEPT


@pytest.mark.parametrize("name", ["state.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_taken(tmp_path, name, damage):
    for number in (1, 2):
        save(tmp_path, Checkpoint(number, a_state(), {}))
    path = tmp_path / "round-0000002" / name
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 1
    path.write_bytes({"flip": bytes(raw), "cut": bytes(raw[:-5]), "empty": b"", "gone": b""}[damage])
    if damage == "gone":
        path.unlink()
    with pytest.raises(RunError, match="round-0000002 is damaged"):
        load(tmp_path / "round-0000002", State)
    told = []
    assert latest(tmp_path, State, warn=told.append).round_number == 1
    assert len(told) == 1


def test_a_state_of_another_kind_is_refused(tmp_path):
    save(tmp_path, Checkpoint(1, Inner(1, "x"), {}))
    with pytest.raises(RunError, match="of another kind"):
        load(tmp_path / "round-0000001", State)


@dataclass(frozen=True)
class Shorter:
    place: int


@dataclass(frozen=True)
class Longer:
    place: int
    name: str | None
    added: int = 7


@dataclass(frozen=True)
class Renamed:
    place: int
    title: str | None = None


def test_a_field_that_the_class_no_longer_has_is_dropped_and_a_new_one_has_its_default(tmp_path):
    save(tmp_path, Checkpoint(1, Inner(4, "x"), {}))
    assert load(tmp_path / "round-0000001", Shorter).state == Shorter(4)
    assert load(tmp_path / "round-0000001", Longer).state == Longer(4, "x", 7)


def test_a_field_that_may_have_been_renamed_is_not_lost(tmp_path):
    save(tmp_path, Checkpoint(1, Inner(4, "x"), {}))
    with pytest.raises(RunError, match="it has name, place, and Renamed has place, title"):
        load(tmp_path / "round-0000001", Renamed)


def test_an_unfinished_checkpoint_is_not_one(tmp_path):
    (tmp_path / "round-0000009.partial").mkdir()
    assert latest(tmp_path, State) is None


@pytest.mark.parametrize("on_disk", [True, False])
def test_memories_come_back_by_the_round_before(tmp_path, on_disk):
    memories = Memories(tmp_path / "clients" if on_disk else None)
    assert memories.load(4, before=1) == {}
    memories.store(4, 1, {"own": {"w": torch.ones(2)}})
    memories.store(4, 3, {"own": {"w": torch.zeros(2)}})
    assert torch.equal(memories.load(4, before=9)["own"]["w"], torch.zeros(2))
    if on_disk:
        assert torch.equal(Memories(tmp_path / "clients").load(4, before=3)["own"]["w"], torch.ones(2))
        memories.rewind(2)
        assert torch.equal(memories.load(4, before=9)["own"]["w"], torch.ones(2))


def test_memories_older_than_any_checkpoint_are_dropped(tmp_path):
    memories = Memories(tmp_path)
    for number in (1, 2, 5):
        memories.store(0, number, {"own": {"w": torch.ones(1)}})
    memories.forget(before=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "client-0-round-2.safetensors",
        "client-0-round-5.safetensors",
    ]
    assert memories.load(0, before=5)


def test_a_client_that_keeps_nothing_leaves_no_file(tmp_path):
    Memories(tmp_path / "clients").store(0, 1, {})
    assert not (tmp_path / "clients").exists()


def test_a_memory_may_hold_pieces_of_one_array(tmp_path):
    """Weights that came over the wire do: they all lie in one buffer."""
    whole = torch.arange(4.0)
    Memories(tmp_path).store(0, 1, {"own": {"a": whole[:2], "b": whole[2:]}})
    assert Memories(tmp_path).load(0, before=2)["own"]["b"].tolist() == [2.0, 3.0]
