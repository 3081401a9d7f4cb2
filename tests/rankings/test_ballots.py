"""Ballots: what is sent for a ranking, and what comes out at the other end."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.errors import WireError
from e2fl.models import Layer, ModelSpec
from e2fl.rankings import coder as coarse_module
from e2fl.rankings.ballots import (
    Boundary,
    Buckets,
    Exact,
    Moves,
    Reference,
    decode_mask,
    encode_mask,
    ranking_of_mask,
)
from e2fl.rankings.order import Ranking, mask_layers
from e2fl.testing.contract import same
from e2fl.wire import Message

COARSE = [
    *(Buckets(buckets) for buckets in (2, 3, 4, 5, 9, 16, 64, 256)),
    Buckets(uneven=(0.35, 0.45, 0.5, 0.55, 0.65)),
    Buckets(16, finer=8),
    Boundary(),
    Boundary(reach=1.0, band=0.0),
]
ids = [str(ballot) for ballot in COARSE]
MOVES = [
    Moves(),
    Moves(2, finer=1),
    Moves(24, finer=1),
    Moves(127, finer=1),
    Moves(12, finer=8, near=1.0),
]


def drawn(sizes, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.permutation(size).astype(np.int32) for name, size in sizes.items()}


def near(reference, spread, seed):
    """A ranking in which edges moved by about this fraction of their layer."""
    rng = np.random.default_rng(seed)
    moved = {
        name: rank + rng.normal(0, spread * rank.size, rank.size)
        for name, rank in reference.items()
    }
    return {name: np.argsort(np.argsort(places)).astype(np.int32) for name, places in moved.items()}


def is_permutation(ranking):
    return all(sorted(rank.tolist()) == list(range(rank.size)) for rank in ranking.values())


SIZES = {"first": 288, "second": 1, "third": 5000}
REFERENCE = Reference(drawn(SIZES, 0), {"first": 9, "third": 100})
BALLOT = near(REFERENCE.ranking, 0.05, 1)


def test_six_edges_in_three_buckets_by_hand():
    reference = Reference({"w": np.array([0, 1, 2, 3, 4, 5], np.int32)})
    ballot = Buckets(3)
    sent = ballot.encode({"w": np.array([5, 0, 1, 3, 2, 4], np.int32)}, reference)
    # buckets of the edges: 2 0 0 1 1 2; inside each the order of the reference
    assert ballot.decode(sent, reference)["w"].tolist() == [4, 0, 1, 2, 3, 5]


@pytest.mark.parametrize("ballot", COARSE, ids=ids)
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.3])
def test_a_decoded_ballot_is_a_permutation_that_says_the_same_again(ballot, spread):
    sent = ballot.encode(near(REFERENCE.ranking, spread, 2), REFERENCE)
    decoded = ballot.decode(sent, REFERENCE)
    assert is_permutation(decoded)
    assert ballot.encode(decoded, REFERENCE) == sent


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=3),
    st.integers(2, 256),
    st.integers(0, 2**32),
)
def test_each_edge_lands_in_the_bucket_it_was_sent_in(sizes, buckets, seed):
    ballot = Buckets(buckets)
    named = {str(number): size for number, size in enumerate(sizes)}
    reference = Reference(drawn(named, seed))
    ranking = drawn(named, seed + 1)
    decoded = ballot.decode(ballot.encode(ranking, reference), reference)
    assert is_permutation(decoded)
    for name, size in named.items():
        was, now = (buckets * rank[name].astype(np.int64) // size for rank in (ranking, decoded))
        assert np.array_equal(was, now)
        if buckets >= size:
            assert np.array_equal(decoded[name], ranking[name])


def test_exact_ballots_are_the_bytes_of_the_wire():
    @dataclass(frozen=True)
    class One(Message):
        ranking: Ranking

    spec = ModelSpec(tuple(Layer(name, (size,)) for name, size in SIZES.items()))
    raw = One(BALLOT).to_bytes(spec)
    sent = Exact().encode(BALLOT, REFERENCE)
    assert raw.endswith(sent)
    assert len(raw) - len(sent) == 32
    assert same(Exact().decode(sent, REFERENCE), BALLOT)
    assert Exact().entropy_bits(BALLOT, REFERENCE) == pytest.approx(
        math.log2(math.factorial(288)) + math.log2(math.factorial(5000)), rel=1e-9
    )


@pytest.mark.parametrize("ballot", [*COARSE, *MOVES], ids=str)
def test_levels_of_units_change_the_bytes_and_not_the_ranking(ballot, monkeypatch):
    monkeypatch.setattr(coarse_module, "MIN_EDGES_FOR_LEVELS", 100)
    with_levels = ballot.encode(BALLOT, REFERENCE)
    without = replace(REFERENCE, fan_in={})
    assert with_levels != ballot.encode(BALLOT, without)
    decoded = ballot.decode(with_levels, REFERENCE)
    assert is_permutation(decoded)
    assert same(decoded, ballot.decode(ballot.encode(BALLOT, without), without))


def test_levels_of_units_save_bits_where_some_units_do_not_learn():
    reference = Reference(drawn({"w": 400 * 400}, 3), {"w": 400})
    rng = np.random.default_rng(4)
    speed = np.outer(rng.random(400) < 0.5, rng.random(400) < 0.5).ravel()
    places = reference.ranking["w"] + speed * rng.normal(0, 20_000, 160_000)
    ranking = {"w": np.argsort(np.argsort(places, kind="stable")).astype(np.int32)}
    ballot = Buckets(16)
    blind = replace(reference, fan_in={})
    assert len(ballot.encode(ranking, reference)) < 0.8 * len(ballot.encode(ranking, blind))


@pytest.mark.parametrize("ballot", [Buckets(16), Buckets(3), Boundary(), Moves()], ids=str)
def test_the_bytes_are_close_to_the_entropy(ballot):
    reference = Reference(drawn({"w": 1_000_000}, 3), {"w": 1000})
    ranking = near(reference.ranking, 0.02, 5)
    bits = 8 * len(ballot.encode(ranking, reference))
    bound = ballot.entropy_bits(ranking, reference)
    assert bound < bits < 1.02 * bound


def test_six_edges_in_steps_of_a_third_by_hand():
    reference = Reference({"w": np.array([0, 1, 2, 3, 4, 5], np.int32)})
    sent = Moves(3, finer=1).encode({"w": np.array([5, 0, 1, 3, 2, 4], np.int32)}, reference)
    # moves of the edges: 5 -1 -1 0 -2 -1 places, in steps of two places, halves up: 3 0 0 0 -1 0
    # new places: 6 1 2 3 2 5; edges 2 and 4 are equal, and the lower number comes first
    assert Moves(3, finer=1).decode(sent, reference)["w"].tolist() == [5, 0, 1, 3, 2, 4]


@pytest.mark.parametrize("ballot", MOVES, ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.3])
def test_moves_decode_to_a_permutation_close_to_the_ranking(ballot, spread):
    ranking = near(REFERENCE.ranking, spread, 2)
    decoded = ballot.decode(ballot.encode(ranking, REFERENCE), REFERENCE)
    assert is_permutation(decoded)
    for name, size in SIZES.items():
        # Off by at most half a step before edges are ranked again, by less than one afterwards.
        assert np.abs(decoded[name] - ranking[name]).max() <= size / ballot.steps + 1


def test_moves_near_the_cut_are_finer():
    reference = Reference(
        {"w": np.arange(1200, dtype=np.int32)}, keep=0.25
    )  # the cut is at place 900
    ballot = Moves(10, finer=4, near=0.1)  # steps of 120 places, and of 30 from place 780 to 1019
    near_cut = (900, 40, 30), (780, -50, -60), (1019, 16, 30)
    for edge, move, rounded in (*near_cut, (1020, 40, 0), (779, -50, 0)):
        places = reference.ranking["w"] + 0.0
        places[edge] += move + np.sign(move) * 0.5
        ranking = {"w": np.argsort(np.argsort(places)).astype(np.int32)}
        decoded = ballot.decode(ballot.encode(ranking, reference), reference)["w"]
        assert abs(decoded[edge] - edge - rounded) <= 1, edge


def test_moves_are_added_to_the_ranking_the_server_elected():
    elected = near(REFERENCE.ranking, 0.01, 7)
    known = replace(REFERENCE, ranking=Buckets(4).rounded(elected, REFERENCE))
    server = replace(known, base=elected)
    # A client that moves nothing leaves the server's ranking as it is.
    assert not same(known.ranking, elected)
    assert same(Moves().decode(Moves().encode(known.ranking, known), server), elected)
    # One edge that moves up a quarter of the ranking moves as far in the server's ranking.
    moved = {name: rank.copy() for name, rank in known.ranking.items()}
    places = moved["third"].astype(float)
    places[10] += 1250.5
    moved["third"] = np.argsort(np.argsort(places)).astype(np.int32)
    decoded = Moves().decode(Moves().encode(moved, known), server)["third"]
    assert decoded[10] - elected["third"][10] == pytest.approx(1250, abs=5000 / 16)
    others = np.arange(5000) != 10
    assert np.array_equal(np.argsort(decoded[others]), np.argsort(elected["third"][others]))
    assert server.only(["third"]).base == {"third": elected["third"]}


def test_moves_that_no_ranking_has_are_refused():
    reference = Reference({"w": np.arange(6, dtype=np.int32)})
    for symbols in ([4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 3, 0, 0, 0, 0]):
        plans = Moves(3, finer=1).layer_codes(reference)
        sent = coarse_module.encode_layers(plans, [np.array(symbols, np.uint8)])
        with pytest.raises(WireError, match="beyond the end"):
            Moves(3, finer=1).decode(sent, reference)


def test_boundary_ballots_leave_edges_far_from_the_cut_in_place():
    reference = Reference(drawn({"w": 1000}, 0), keep=0.3)
    ballot = Boundary(reach=0.1, band=0.01)
    ranking = near(reference.ranking, 0.2, 1)
    decoded = ballot.decode(ballot.encode(ranking, reference), reference)["w"]
    before = reference.ranking["w"]
    far = (before < 600) | (before >= 800)
    assert np.array_equal(decoded[far], before[far])
    window = np.flatnonzero(~far)
    inside = np.argsort(np.argsort(ranking["w"][window]))
    assert np.array_equal(decoded[window] < 690, inside < 90)
    assert np.array_equal(decoded[window] >= 710, inside >= 110)


@pytest.mark.parametrize("keep", [0.5, 0.3, 1.0])
def test_masks_come_back_from_a_ranking_and_from_a_mask(keep):
    mask, known = mask_layers(BALLOT, keep), mask_layers(REFERENCE.ranking, keep)
    for ranking in (REFERENCE.ranking, ranking_of_mask(known)):
        reference = Reference(ranking, keep=keep)
        sent = encode_mask(mask, reference)
        assert same(decode_mask(sent, reference), mask)
    assert same(mask_layers(ranking_of_mask(known), keep), known)
    assert is_permutation(ranking_of_mask(known))


def test_buckets_are_finer_near_the_cut():
    ballot = Buckets(4, finer=5, near=0.1)
    for keep, inner in (
        (0.5, [250, 400, 450, 500, 550, 600, 750]),
        (0.2, [250, 500, 700, 750, 800, 850, 900]),
    ):
        borders = ballot.borders(1000, replace(REFERENCE, keep=keep))
        assert borders.tolist() == [0, *inner, 1000]


@pytest.mark.parametrize("ballot", [*COARSE, *MOVES, Exact()], ids=str)
def test_bytes_too_many_and_too_few_are_refused(ballot):
    sent = ballot.encode(BALLOT, REFERENCE)
    half = sent[: len(sent) // 2]
    for raw in (b"", sent[:-1], sent[:-4], half, sent + b"\0", sent + 4 * b"\0", b"\xff" * 40):
        with pytest.raises(WireError):
            ballot.decode(raw, REFERENCE)


def test_a_ballot_with_the_wrong_number_of_edges_in_a_bucket_is_refused():
    # An edge moved by a bucket and no other: well-formed, canonical, and not a ranking of six.
    reference = Reference({"w": np.arange(6, dtype=np.int32)})
    plans = Buckets(3).layer_codes(reference)
    sent = coarse_module.encode_layers(plans, [np.array([1, 0, 0, 0, 0, 0], np.uint8)])
    with pytest.raises(WireError, match="too many or too few"):
        Buckets(3).decode(sent, reference)
