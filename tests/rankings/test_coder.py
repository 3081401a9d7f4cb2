"""The entropy coder of ballots: by hand, against its plain twins, and against a library's coder."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl import kernels
from e2fl.rankings.coder import decode_symbols, encode_symbols, symbol_entropy
from tests import twins
from tests.twins import ballots as plain

agree = partial(twins.agree, plain)


@st.composite
def segmented(draw):
    """Symbols, where their segments end, and the size of the alphabet; flat to almost certain."""
    alphabet = draw(st.sampled_from([2, 3, 5, 16, 64, 256]))
    lengths = draw(st.lists(st.integers(1, 120), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.random(alphabet) ** draw(st.sampled_from([0, 2, 30]))
    symbols = rng.choice(alphabet, sum(lengths), p=weights / weights.sum()).astype(np.uint8)
    return symbols, np.cumsum(lengths), alphabet


@st.composite
def layers(draw):
    """A ranking, a reference, the borders of buckets in a window, and the bucket of each place."""
    edges = draw(st.integers(1, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    inner = draw(st.lists(st.integers(0, edges), min_size=3, max_size=8))
    borders = np.sort(inner) if draw(st.booleans()) else np.array([0, *sorted(inner), edges])
    bucket_of = np.repeat(np.arange(borders.size - 1, dtype=np.uint8), np.diff(borders))
    rank, reference = (rng.permutation(edges).astype(np.int32) for _ in range(2))
    return rank, reference, borders.astype(np.int64), bucket_of


def tables_of(symbols, ends, alphabet):
    counts = kernels.count_symbols(symbols, ends, alphabet)
    return kernels.frequencies(kernels.rounded_counts(counts))


@given(layers())
def test_buckets_agree_with_their_twin_and_give_a_permutation(layer):
    rank, reference, borders, bucket_of = layer
    low, buckets = int(borders[0]), borders.size - 1
    symbols = agree("bucket_symbols", rank, reference, low, bucket_of, buckets)
    back = agree("rank_of_symbols", symbols, reference, bucket_of, borders)
    assert sorted(back.tolist()) == list(range(rank.size))
    again = kernels.bucket_symbols(back, reference, low, bucket_of, buckets)
    assert np.array_equal(again, symbols)


@given(layers(), st.integers(0, 2**32))
def test_symbols_that_fill_no_buckets_are_refused_as_their_twin_does(layer, seed):
    _, reference, borders, bucket_of = layer
    rng = np.random.default_rng(seed)
    symbols = rng.integers(0, borders.size - 1, bucket_of.size).astype(np.uint8)
    agree("rank_of_symbols", symbols, reference, bucket_of, borders, words="bucket")


@st.composite
def steps(draw, edges):
    """Steps, how much finer they are near the cut, and where."""
    finer = draw(st.integers(1, 6))
    low = draw(st.integers(-3, edges))
    return draw(st.integers(2, 127 // finer)), finer, low, draw(st.integers(low, edges + 3))


@given(st.integers(1, 200), st.data(), st.integers(0, 2**32))
def test_moves_agree_with_their_twin_and_give_a_permutation(edges, data, seed):
    rng = np.random.default_rng(seed)
    rank, reference, base = (rng.permutation(edges).astype(np.int32) for _ in range(3))
    settings = data.draw(steps(edges))
    symbols = agree("move_symbols", rank, reference, *settings)
    for start in (reference, base):
        back = agree("rank_of_moves", symbols, reference, start, *settings)
        assert sorted(back.tolist()) == list(range(edges))


@given(st.integers(1, 200), st.data(), st.integers(0, 2**32))
def test_moves_beyond_the_ends_are_refused_as_their_twin_does(edges, data, seed):
    rng = np.random.default_rng(seed)
    reference = rng.permutation(edges).astype(np.int32)
    settings = data.draw(steps(edges))
    symbols = np.zeros(edges, np.uint8)
    symbols[rng.integers(edges)] = rng.integers(2 * settings[0] * settings[1] + 1)
    agree("rank_of_moves", symbols, reference, reference, *settings, words="beyond the end")


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_kinds_and_positions_agree_with_their_twins(fan_in, units, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    edges = fan_in * units
    reference = rng.permutation(edges).astype(np.int32)
    low = data.draw(st.integers(0, edges))
    symbols = rng.integers(0, 3, data.draw(st.integers(0, edges - low))).astype(np.uint8)
    agree("moved_edges", symbols, reference, low, fan_in)
    levels = (rng.integers(0, 4, count).astype(np.uint8) for count in (fan_in, units))
    kinds = rng.integers(0, 3, (4, 4)).astype(np.uint8)
    at = agree("kinds_at", *levels, kinds, reference, low, symbols.size)
    positions, _ = agree("positions_by_kind", at, 3, data.draw(st.integers(1, 5)))
    back = kernels.gather(kernels.scatter(symbols, positions), positions)
    assert np.array_equal(back, symbols)
    assert (np.diff(kernels.scatter(at, positions).astype(int)) >= 0).all()


@given(segmented())
def test_tables_agree_with_their_twins_and_come_back(case):
    symbols, ends, alphabet = case
    counts = agree("count_symbols", symbols, ends, alphabet)
    raw, rounded = agree("write_tables", counts), agree("rounded_counts", counts)
    read, size = agree("read_tables", raw, ends, alphabet)
    assert size == raw.size
    assert np.array_equal(read, rounded)
    tables = agree("frequencies", rounded)
    assert (tables.sum(axis=1) == 1 << plain.PRECISION).all()
    assert ((tables > 0) == (counts > 0)).all()


@given(st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=6).filter(any))
def test_counts_of_any_size_are_rounded_by_little(row):
    counts = np.array([row], np.int64)
    rounded = agree("rounded_counts", counts)
    agree("write_tables", counts)
    most = max(range(len(row)), key=lambda symbol: row[symbol].bit_length())
    for symbol, (count, known) in enumerate(zip(row, rounded[0].tolist(), strict=True)):
        if symbol != most:
            assert (known == 0) == (count == 0)
            assert abs(known - count) <= count / 2


def test_a_table_worked_by_hand():
    # Counts 3 and 1, then 3 and 0. Lengths of symbol 0: 2, 2; of 1: 1, 0. Changes: +2, 0, +1, -1.
    # gamma(1) + gamma(2) | one zero: gamma(2) + gamma(1) | gamma(1) - gamma(1)
    raw = kernels.write_tables(np.array([[3, 1], [3, 0]]))
    text = "1" + "0" + "010" + "010" + "0" + "1" + "1" + "1" + "1"
    assert raw.tolist() == np.packbits([int(bit) for bit in text], bitorder="little").tolist()


def test_tables_that_are_cut_off_are_refused_wherever_they_are_cut():
    raw = kernels.write_tables(np.array([[1000, 3000, 70_000, 5], [90_000, 800, 0, 2000]]))
    for size in range(raw.size):
        cut = raw[:size].copy()
        assert agree("read_tables", cut, np.array([74_005, 166_805]), 4, words="tables") is None


def test_a_count_of_more_than_31_bits_is_refused():
    # No zeros, plus, the length of the count of symbol 0; then one zero: symbol 1 does not occur.
    longest = "1" + "0" + "000011111" + "010"
    longer = "1" + "0" + "00000100000" + "010"
    short, long = (
        np.packbits([int(bit) for bit in text], bitorder="little") for text in (longest, longer)
    )
    assert agree("read_tables", short, np.array([9]), 2)[0].tolist() == [[9, 0]]
    assert agree("read_tables", long, np.array([9]), 2, words="tables") is None


@given(st.binary(max_size=60), st.integers(1, 5), st.sampled_from([2, 3, 16]))
def test_bytes_that_are_no_tables_are_refused_as_their_twin_does(junk, segments, alphabet):
    raw, ends = np.frombuffer(junk, np.uint8), np.arange(1, segments + 1) * 40
    agree("read_tables", raw, ends, alphabet, words="tables")


@given(segmented())
def test_coded_symbols_agree_with_their_twin_and_come_back(case):
    symbols, ends, alphabet = case
    tables = tables_of(symbols, ends, alphabet)
    raw = agree("rans_encode", symbols, ends, tables)
    assert np.array_equal(agree("rans_decode", raw, ends, tables), symbols)


@given(segmented(), st.data())
def test_changed_bytes_are_read_as_their_twin_reads_them(case, data):
    symbols, ends, alphabet = case
    tables = tables_of(symbols, ends, alphabet)
    raw = bytearray(kernels.rans_encode(symbols, ends, tables))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 4]))
    changed = bytes(raw[: len(raw) - cut])
    decoded = agree("rans_decode", changed, ends, tables, words="coded symbols")
    # Two different streams never stand for the same symbols.
    assert decoded is None or plain.rans_encode(decoded, ends, tables) == changed


@pytest.mark.parametrize("state", [0, 2**31 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("place", [0, 1])
def test_states_that_no_encoder_reaches_are_refused(state, place):
    states = [1 << 31, 1 << 31]
    tables = np.array([[1 << plain.PRECISION, 0]], np.uint32)
    assert kernels.rans_decode(
        np.array(states, "<u8").tobytes(), np.array([3]), tables
    ).tolist() == [0, 0, 0]
    states[place] = state
    with pytest.raises(ValueError, match="impossible state"):
        kernels.rans_decode(np.array(states, "<u8").tobytes(), np.array([3]), tables)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999, 1.0])
def test_the_code_is_within_half_a_percent_of_the_entropy(share):
    rng = np.random.default_rng(0)
    others = rng.random(400_000) >= share
    symbols = (others * rng.integers(1, 4, 400_000)).astype(np.uint8)
    lengths = np.full(4, 100_000)
    raw = encode_symbols(symbols, lengths, 4)
    assert 8 * len(raw) <= 1.005 * symbol_entropy(symbols, lengths, 4) + 8 * 32
    assert np.array_equal(decode_symbols(memoryview(raw), lengths, 4), symbols)


def test_entropy_worked_by_hand():
    symbols = np.array([0, 1, 0, 1, 2, 2], np.uint8)
    assert symbol_entropy(symbols, np.array([4, 0, 2]), 3) == 4.0
    assert symbol_entropy(np.array([0, 0, 0, 1], np.uint8), np.array([4]), 2) == pytest.approx(
        3 * math.log2(4 / 3) + 2, abs=1e-12
    )
