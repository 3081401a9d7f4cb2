"""The compiled loops: examples worked by hand, and bit-for-bit agreement with their plain twins."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from e2fl import kernels
from e2fl.kernels.score_step import Rates, ScoreStep
from e2fl.learning.autograd import warm
from tests import twins
from tests.twins import reference

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3e38]

scores = st.one_of(
    arrays(np.float32, st.integers(0, 300), elements=st.floats(width=32)),
    arrays(np.float32, st.integers(0, 300), elements=st.sampled_from(SPECIAL)),
    arrays(np.float32, st.integers(0, 40), elements=st.sampled_from([0.25, 0.5, 0.75])),
)
permutations = (
    st.integers(1, 300)
    .flatmap(lambda n: st.permutations(range(n)))
    .map(lambda p: np.array(p, np.int32))
)


agree = partial(twins.agree, reference)


def test_orders_worked_by_hand():
    s = np.array([0.5, 1.0, 0.2, 0.3, 1.2, 0.8], np.float32)
    assert kernels.order_of(s).tolist() == [2, 3, 0, 5, 1, 4]
    assert kernels.rank_of(s).tolist() == [2, 4, 0, 1, 5, 3]
    s = np.array([math.nan, 0.0, -0.0, math.inf, -1.0, 0.0, -math.inf], np.float32)
    assert kernels.order_of(s).tolist() == [6, 4, 1, 2, 5, 3, 0]  # equal zeros, NaN last


@given(scores)
def test_order_and_rank_agree_with_their_twins(s):
    agree("order_of", s)
    agree("rank_of", s)


@pytest.mark.parametrize("edges", [1, 2, 2047, 2048, 65_537, 300_003])
@pytest.mark.parametrize("levels", [0, 1, 3, 1000])  # ties, so many that groups cannot be small
def test_orders_of_many_edges_agree_with_their_twins(edges, levels):
    random = np.random.default_rng(edges)
    sums = random.integers(0, levels or 1 << 45, edges)
    agree("order_of", random.standard_normal(edges, np.float32))
    agree("rank_of", sums.astype(np.float32))
    agree("rank_of_sums", sums)


@given(
    st.sampled_from([1, 4, 1 << 20, 1 << 40, (1 << 62) - 1]).flatmap(
        lambda top: arrays(np.int64, st.integers(0, 200), elements=st.integers(0, top))
    )
)
def test_order_of_sums_agrees_with_its_twin(sums):
    agree("order_of_sums", sums)


@given(permutations)
def test_permutations_are_inverted_packed_and_given_scores(rank):
    agree("invert", rank)
    scores = agree("scores_from", rank, np.arange(rank.size, dtype=np.float32))
    assert np.array_equal(kernels.rank_of(scores), rank)
    raw = agree("pack_order_of_rank", rank)
    assert np.array_equal(agree("unpack_rank", raw, rank.size), rank)


@given(st.integers(1, 40), st.binary(max_size=40), st.booleans())
def test_bytes_that_are_no_order_are_refused(count, junk, fit):
    raw = np.frombuffer(junk, np.uint8)
    if fit:
        size = kernels.packed_size(count)
        raw = np.resize(raw if raw.size else np.zeros(1, np.uint8), size)
    agree("unpack_rank", raw, count)


def test_footrules_worked_by_hand():
    orders = [0, 2, 4, 5, 3, 1], [0, 2, 3, 1, 4, 5], [4, 0, 2, 3, 5, 1]
    a, b, c = (kernels.invert(np.array(order, np.int32)) for order in orders)
    assert [kernels.footrule(*pair) for pair in ((a, b), (c, a), (c, b))] == [8, 6, 10]
    a = np.arange(3_000_000, dtype=np.int32)  # more than 32 bits a block of 2048
    assert kernels.footrule(a, a[::-1].copy()) == a.size**2 // 2
    assert kernels.footrules(a[None], a[None, ::-1].copy()).tolist() == [[a.size**2 // 2]]


@given(st.integers(1, 5000), st.integers(0, 4), st.integers(0, 3))
@settings(max_examples=30)
def test_footrules_agree_with_their_twin(edges, voters, groups):
    rng = np.random.default_rng(edges)
    ranks = rng.permuted(np.tile(np.arange(edges, dtype=np.int32), (voters + groups, 1)), axis=1)
    agree("footrules", ranks[:voters], ranks[voters:])


def steps(s, w, dropped, gradients, rate):
    fast, plain = ScoreStep(s.copy(), w, dropped), reference.ScoreStep(s.copy(), w, dropped)
    assert twins.bits_of(fast.effective) == twins.bits_of(plain.effective)
    rates = Rates(np.float32(rate), np.float32(0.9), np.float32(1e-4))
    for gradient in gradients:
        fast.advance(gradient, rates)
        plain.advance(gradient, rates)
        for part in ("scores", "velocity", "effective"):
            assert twins.bits_of(getattr(fast, part)) == twins.bits_of(getattr(plain, part))


layers = st.integers(1, 200).flatmap(
    lambda n: st.tuples(
        *(arrays(np.float32, n, elements=st.floats(-8, 8, width=32)) for _ in range(4))
    )
)


@given(layers, st.data())
def test_a_step_on_scores_agrees_with_its_twin(layer, data):
    s, w, *gradients = layer
    steps(s, w, data.draw(st.integers(0, s.size)), gradients, 0.1)


@pytest.mark.parametrize("edges", [4097, 50_001])
@pytest.mark.parametrize("rate", [1e-5, 0.1, 10.0])  # stays in the window, moves, leaves it
@pytest.mark.parametrize("levels", [0, 5])  # all scores different, or many ties
def test_steps_on_a_large_layer_agree_with_their_twin(edges, rate, levels):
    rng = np.random.default_rng(edges)
    s = rng.random(edges, np.float32)
    w = np.where(rng.random(edges) < 0.5, np.float32(0.1), np.float32(-0.1))
    gradients = [rng.standard_normal(edges, np.float32) for _ in range(6)]
    if levels:
        s = np.floor(s * levels)
        gradients = [np.sign(g) for g in gradients]
    for dropped in (0, 1, edges // 2, edges - 1, edges):
        steps(s, w, dropped, gradients, rate)


def test_scores_that_are_no_numbers_still_agree_with_the_twin():
    s = np.random.default_rng(0).random(5000, np.float32)
    w = np.ones(5000, np.float32)
    for share in (0.1, 0.9):
        gradient = np.where(s < share, np.float32(math.nan), np.float32(0))
        steps(s, w, 2500, [gradient] * 3, 0.1)


def test_warming_compiles_the_loops():
    warm()
    loops = [loop for loop in vars(kernels).values() if hasattr(loop, "signatures")]
    assert len(loops) > 10
    assert all(loop.signatures for loop in loops)
