"""The codec: what was stored comes back exactly, in its own types, or is refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from e2fl import codec


@dataclass(frozen=True)
class Inner:
    position: int
    name: str | None = None
    more: Mapping[int, "Inner"] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    params: dict[str, torch.Tensor]
    ranks: dict[int, dict[str, NDArray[np.int32]]]
    several: tuple[Inner, ...]
    pair: tuple[int, str]
    share: float
    ready: bool
    missing: Inner | None
    mask: NDArray[np.bool_]
    free: dict[str, Any]


STATE = State(
    {"a": torch.arange(3.0)},
    {3: {"layer": np.array([2, 0, 1], dtype=np.int32)}, 1: {}},
    (Inner(1, None), Inner(2, "two", {7: Inner(7)})),
    (1, "one"),
    0.1 + 0.2,
    True,
    None,
    np.array([True, False]),
    {"list": [1, [2.5, None]], "nan": math.inf},
)


def test_a_state_comes_back_as_it_was(tmp_path):
    codec.save(tmp_path / "state", STATE)
    state = codec.load(tmp_path / "state", State)
    assert torch.equal(state.params["a"], STATE.params["a"])
    assert list(state.ranks) == [3, 1]
    assert state.ranks[3]["layer"].dtype == np.int32
    assert state.ranks[3]["layer"].tolist() == [2, 0, 1]
    assert state.mask.dtype == np.bool_
    for name in ("several", "pair", "share", "ready", "missing", "free"):
        assert getattr(state, name) == getattr(STATE, name), name


def test_keys_are_the_fields_and_defaults_are_left_out():
    assert codec.to_json(Inner(4)) == {"position": 4}
    assert codec.to_json(Inner(4, "x", {1: Inner(2)})) == {
        "position": 4,
        "name": "x",
        "more": [[1, {"position": 2}]],
    }
    assert codec.decode({"position": 4}, Inner) == Inner(4)


@pytest.mark.parametrize("stored", [{"title": "x", "position": 1}, {"name": "x"}])
def test_fields_of_another_class_are_refused(stored):
    with pytest.raises((ValueError, TypeError)):
        codec.decode(stored, Inner)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_other_types_cannot_be_stored(value):
    with pytest.raises(TypeError, match="cannot be stored"):
        codec.encode({"key": value}, {})


@pytest.mark.parametrize("damage", ["flip array", "flip text", "cut", "empty"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "state"
    codec.save(path, STATE)
    raw = bytearray(path.read_bytes())
    if damage == "flip array":
        raw[-1] ^= 1
    elif damage == "flip text":
        raw = raw.replace(b"two", b"twq")
    path.write_bytes({"cut": raw[:-5], "empty": b""}.get(damage, bytes(raw)))
    with pytest.raises((OSError, ValueError)):
        codec.load(path, State)


def test_pieces_of_one_array_and_one_array_twice_can_be_stored(tmp_path):
    """Weights that came over the wire all lie in one buffer."""
    whole = torch.arange(4.0)
    codec.save(tmp_path / "x", {"a": whole[:2], "b": whole[2:], "c": whole, "d": whole})
    loaded = codec.load(tmp_path / "x", dict[str, Any])
    assert loaded["b"].tolist() == [2.0, 3.0]
    assert torch.equal(loaded["c"], loaded["d"])
