"""Messages: exact sizes, faithful copies, and WireError for bytes that are not a message."""

import zlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_ballots import mutate
from e2fl.errors import WireError
from e2fl.models import Layer, Model, ModelSpec, Params
from e2fl.networks import lenet, mlp
from e2fl.rankings.order import Mask, Ranking, invert, mask_layers
from e2fl.testing.contract import same
from e2fl.wire import HEADER_LIMIT, Message, Nothing, Weights

SPEC = ModelSpec((Layer("a", (2, 3)), Layer("b", (5,)), Layer("c", (1, 1))))


@dataclass(frozen=True)
class Rank(Message):
    ranking: Ranking


@dataclass(frozen=True)
class Chosen(Message):
    mask: Mask


@dataclass(frozen=True)
class Everything(Message):
    number: int
    share: float
    ranking: Ranking
    masks: tuple[Mask, ...]
    params: Params
    groups: tuple[int, ...]
    losses: tuple[float, ...]


def an_everything(seed=0):
    rng = np.random.default_rng(seed)
    ranking = {layer.name: rng.permutation(layer.edges).astype(np.int32) for layer in SPEC.layers}
    masks = tuple(
        {layer.name: rng.random(layer.edges) < 0.5 for layer in SPEC.layers} for _ in range(3)
    )
    params = {
        layer.name: torch.from_numpy(rng.random(layer.shape, dtype=np.float32))
        for layer in SPEC.layers
    }
    return Everything(-7, 0.1, ranking, masks, params, (3, -1), (0.5, float("inf")))


@pytest.mark.parametrize(
    ("network", "ranking", "mask", "weights"),
    [
        (lenet((1, 28, 28), 10), 4_251_428, 203_204, 6_502_528),
        (lenet((1, 28, 28), 62), 4_262_564, 204_036, 6_529_152),
        (mlp((101,), 2), 2_844_032, 144_256, 4_616_192),
    ],
)
def test_messages_have_the_sizes_of_the_paper(network, ranking, mask, weights):
    model = Model(network)
    supernet = model.supernet(0)
    header = len(Nothing().to_bytes(model.spec))
    assert header <= HEADER_LIMIT
    assert len(Rank(supernet.ranking).to_bytes(model.spec)) == header + ranking
    assert len(Chosen(mask_layers(supernet.ranking, 0.5)).to_bytes(model.spec)) == header + mask
    assert len(Weights(supernet.weights).to_bytes(model.spec)) == header + weights


def test_six_edges_take_eighteen_bits():
    spec = ModelSpec((Layer("only", (6,)),))
    order = np.array([4, 0, 2, 3, 5, 1], dtype=np.int32)
    raw = Rank({"only": invert(order)}).to_bytes(spec)
    payload = raw[len(Nothing().to_bytes(spec)) :]
    # The order itself, three bits an edge, lowest bit first.
    assert payload == sum(int(edge) << 3 * place for place, edge in enumerate(order)).to_bytes(
        3, "little"
    )


@given(st.integers(0, 2**32))
def test_messages_survive_the_wire(seed):
    message = an_everything(seed)
    assert same(message, Everything.from_bytes(message.to_bytes(SPEC), SPEC))


def sealed(raw):
    """Make the length of the payload and the checksum fit, as a forger would."""
    if len(raw) >= 44:
        raw[12:20] = max(0, len(raw) - raw[5]).to_bytes(8, "little")
        raw[28:32] = zlib.crc32(raw[32:], zlib.crc32(raw[:28])).to_bytes(4, "little")
    return raw


@settings(max_examples=1000)
@given(st.integers(0, 2**32), st.booleans())
def test_mutated_bytes_are_refused_and_forged_ones_are_refused_or_valid(seed, forged):
    whole = an_everything().to_bytes(SPEC)
    raw = bytearray(mutate(whole, [whole], np.random.default_rng(seed)))
    raw = bytes(sealed(raw) if forged else raw)
    try:
        message = Everything.from_bytes(raw, SPEC)
    except WireError:
        return
    assert forged or raw == whole
    for layer in SPEC.layers:
        assert sorted(message.ranking[layer.name].tolist()) == list(range(layer.edges))
        assert torch.isfinite(message.params[layer.name]).all()
    assert message.to_bytes(SPEC) == raw  # there is one way only to write a message


def test_a_claim_of_many_masks_allocates_nothing():
    raw = bytearray(an_everything().to_bytes(SPEC))
    raw[44:46] = (65535).to_bytes(2, "little")  # the count of masks
    with pytest.raises(WireError, match="bytes of payload"):
        Everything.from_bytes(bytes(sealed(raw)), SPEC)


def test_errors_say_what_is_wrong():
    raw = Weights(an_everything().params).to_bytes(SPEC)
    other = ModelSpec((Layer("a", (2, 3)),))
    cases = {
        b"": "too short",
        b"X" + raw[1:]: "not an e2fl message",
        raw[:4] + b"\x09" + raw[5:]: "format version 9",
        raw[:-1]: "its header says",
        raw[:-1] + bytes([raw[-1] ^ 1]): "damaged",
    }
    for bad, words in cases.items():
        with pytest.raises(WireError, match=words):
            Weights.from_bytes(bad, SPEC)
    with pytest.raises(WireError, match="another model"):
        Weights.from_bytes(raw, other)
    with pytest.raises(WireError, match="not of the expected kind"):
        Rank.from_bytes(raw, SPEC)


def test_weights_that_are_not_finite_are_refused():
    params = dict(an_everything().params)
    params["b"] = torch.full((5,), float("nan"))
    with pytest.raises(WireError, match="not finite"):
        Weights.from_bytes(Weights(params).to_bytes(SPEC), SPEC)


def test_a_header_over_the_limit_is_a_mistake_of_the_programmer():
    @dataclass(frozen=True)
    class TooMuch(Message):
        a: float
        b: float
        c: float
        d: float
        e: float

    with pytest.raises(TypeError, match="64 is the limit"):
        TooMuch(0, 0, 0, 0, 0).to_bytes(SPEC)


def test_a_ranking_of_layers_with_one_edge_takes_no_bytes():
    @dataclass(frozen=True)
    class Several(Message):
        rankings: tuple[Ranking, ...]

    spec = ModelSpec((Layer("only", (1,)),))
    one = {"only": np.zeros(1, dtype=np.int32)}
    assert len(Several.from_bytes(Several((one, one)).to_bytes(spec), spec).rankings) == 2
