"""Checkpoints: the newest that is whole and usable is taken."""

from dataclasses import dataclass

import pytest
import torch

from e2fl.runs.checkpoint import KEPT, Checkpoint, latest, rounds, save
from e2fl.runs.measure import Totals


@dataclass(frozen=True)
class State:
    weight: torch.Tensor
    count: int


def saved(folder, *numbers):
    for number in numbers:
        totals = Totals(asked={3: 2}, seconds=1.5)
        checkpoint = Checkpoint(number, State(torch.ones(3), number), "own", True, totals, {7: 5})
        save(folder, checkpoint)
    return folder


def test_a_state_and_the_rest_come_back_in_their_classes(tmp_path):
    checkpoint = latest(saved(tmp_path, 7), State)
    assert (checkpoint.round_number, checkpoint.identity) == (7, "own")
    assert checkpoint.totals == Totals(asked={3: 2}, seconds=1.5)
    assert checkpoint.memories == {7: 5}
    assert checkpoint.state.weight.tolist() == [1.0, 1.0, 1.0]


def test_only_the_newest_few_are_kept(tmp_path):
    saved(tmp_path, -1, 0, 1, 2, 3)
    assert rounds(tmp_path) == [3, 2][:KEPT]
    assert latest(tmp_path, State, below=3).round_number == 2
    assert rounds(saved(tmp_path / "fresh", -1, 0)) == [0, -1]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(tmp_path, damage):
    saved(tmp_path, 1, 2)
    path = tmp_path / "round-0000002.safetensors"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes({"flip": bytes(raw), "cut": bytes(raw[:-5]), "empty": b""}[damage])
    warnings = []
    assert latest(tmp_path, State, warn=warnings.append).round_number == 1
    assert [warning[:32] for warning in warnings] == ["checkpoint round-0000002 is dama"]


def test_a_state_of_another_kind_and_an_unfinished_file_are_not_taken(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / ".round-0000009.safetensors.partial").write_text("")
    assert rounds(tmp_path) == [1]
    warnings = []
    assert latest(tmp_path, Totals, warn=warnings.append) is None
    assert "of another kind" in warnings[0]
    assert latest(tmp_path, State, problem=lambda saved: "is not mine") is None
    assert latest(tmp_path / "nothing", State) is None
