"""Tables by worked examples: values at few places, medians, and what a client may claim."""

import numpy as np
import pytest

from e2fl.errors import WireError
from e2fl.rankings.order import (
    median_of,
    places,
    rank_of,
    read_table,
    table_of,
    weights_from,
    write_table,
)


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("edges", [1, 2, 7, 100])
def test_a_small_layer_is_sent_whole(edges):
    weights = np.random.default_rng(0).normal(size=edges).astype(np.float32)
    assert places(edges).tolist() == list(range(edges))
    table = table_of({"a": weights.reshape(1, -1)})
    assert np.array_equal(weights_from(rank_of(weights), table["a"]), weights)


@pytest.mark.parametrize("edges", [258, 5_000, 1_000_003])
def test_few_values_stand_for_a_large_layer(edges):
    at = places(edges)
    assert at[0] == 0
    assert at[-1] == edges - 1
    assert (np.diff(at) > 0).all()
    assert len(at) <= 258
    # Heavy tails, as trained weights have: the extremes are kept, the others nearly so.
    weights = np.random.default_rng(1).standard_t(4, size=edges).astype(np.float32)
    again = weights_from(rank_of(weights), table_of({"a": weights})["a"])
    assert again.max() == weights.max()
    assert again.min() == weights.min()
    assert np.square(again - weights).mean() < 0.01 * weights.var()


def test_the_median_is_taken_place_by_place_and_stays_sorted():
    tables = [{"a": floats(-1, 0, 1)}, {"a": floats(-3, 0, 2)}, {"a": floats(-9, -8, 900)}]
    assert median_of(tables)["a"].tolist() == [-3, 0, 2]
    assert median_of(tables[:2])["a"].tolist() == [-2, 0, 1.5]


SENT = {"a": floats(-1, 0, 2), "b": floats(0.5)}
EDGES = {"a": 3, "b": 1}


def test_a_table_travels_as_four_bytes_a_value():
    raw = write_table(SENT)
    assert len(raw) == 16
    again = read_table(raw, EDGES)
    assert {layer: values.tolist() for layer, values in again.items()} == {
        "a": [-1, 0, 2],
        "b": [0.5],
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        write_table(SENT)[:-1],
        write_table(SENT) + b"\0\0\0\0",
        write_table({"a": floats(0, -1, 2), "b": floats(1)}),
        write_table({"a": floats(-1, 0, np.inf), "b": floats(1)}),
        write_table({"a": floats(-1, np.nan, 2), "b": floats(1)}),
    ],
)
def test_a_table_that_no_honest_client_sends_is_refused(raw):
    with pytest.raises(WireError, match="table"):
        read_table(raw, EDGES, SENT)


def test_what_a_client_claims_is_limited_by_what_it_was_sent():
    claimed = {"a": floats(-3e38, -5, 3e38), "b": floats(4)}
    table = read_table(write_table(claimed), EDGES, SENT)
    assert table["a"].tolist() == [-20, -5, 20]
    assert table["b"].tolist() == [4]
