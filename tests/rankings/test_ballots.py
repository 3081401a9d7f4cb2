"""Ballots: what is sent for a ranking, and what comes out at the other end."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2fl.algorithms.e2fl import E2FL
from e2fl.construct import construct
from e2fl.errors import ConfigError, WireError
from e2fl.models import Layer, ModelSpec
from e2fl.rankings import coder as coarse_module
from e2fl.rankings.ballots import (
    BALLOTS,
    Ballot,
    Boundary,
    Buckets,
    Exact,
    Moves,
    Reference,
    decode_mask,
    encode_mask,
    ranking_of_mask,
)
from e2fl.rankings.coder import Coarse
from e2fl.rankings.order import Ranking, mask_layers
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


def drawn(sizes: dict[str, int], seed: int) -> Ranking:
    rng = np.random.default_rng(seed)
    return {name: rng.permutation(size).astype(np.int32) for name, size in sizes.items()}


def near(reference: Ranking, spread: float, seed: int) -> Ranking:
    """A ranking in which edges moved by about this fraction of their layer."""
    rng = np.random.default_rng(seed)
    moved = {
        name: rank + rng.normal(0, spread * rank.size, rank.size)
        for name, rank in reference.items()
    }
    return {name: np.argsort(np.argsort(places)).astype(np.int32) for name, places in moved.items()}


def is_permutation(ranking: Ranking) -> bool:
    return all(sorted(rank.tolist()) == list(range(rank.size)) for rank in ranking.values())


def equal(a: Ranking, b: Ranking) -> bool:
    return list(a) == list(b) and all(np.array_equal(a[name], b[name]) for name in a)


SIZES = {"first": 288, "second": 1, "third": 5000}
REFERENCE = Reference(drawn(SIZES, 0), {"first": 9, "third": 100})
BALLOT = near(REFERENCE.ranking, 0.05, 1)


def test_six_edges_in_three_buckets_by_hand() -> None:
    reference = Reference({"w": np.array([0, 1, 2, 3, 4, 5], np.int32)})
    ballot = Buckets(3)
    sent = ballot.encode({"w": np.array([5, 0, 1, 3, 2, 4], np.int32)}, reference)
    # buckets of the edges: 2 0 0 1 1 2; inside each the order of the reference
    assert ballot.decode(sent, reference)["w"].tolist() == [4, 0, 1, 2, 3, 5]


@pytest.mark.parametrize("ballot", COARSE, ids=ids)
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.3])
def test_a_decoded_ballot_is_a_permutation_that_says_the_same_again(
    ballot: Ballot, spread: float
) -> None:
    sent = ballot.encode(near(REFERENCE.ranking, spread, 2), REFERENCE)
    decoded = ballot.decode(sent, REFERENCE)
    assert is_permutation(decoded)
    assert ballot.encode(decoded, REFERENCE) == sent
    assert equal(ballot.decode(ballot.encode(decoded, REFERENCE), REFERENCE), decoded)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=3),
    st.integers(2, 256),
    st.integers(0, 2**32),
)
def test_each_edge_lands_in_the_bucket_it_was_sent_in(
    sizes: list[int], buckets: int, seed: int
) -> None:
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


def test_inside_a_bucket_edges_stand_as_in_the_reference() -> None:
    decoded = Buckets(4).decode(Buckets(4).encode(BALLOT, REFERENCE), REFERENCE)
    for name, size in SIZES.items():
        for bucket in range(4):
            inside = np.flatnonzero(4 * decoded[name].astype(np.int64) // size == bucket)
            assert np.array_equal(
                np.argsort(decoded[name][inside]), np.argsort(REFERENCE.ranking[name][inside])
            )


def test_exact_ballots_are_the_bytes_of_the_wire() -> None:
    @dataclass(frozen=True)
    class One(Message):
        ranking: Ranking

    spec = ModelSpec(tuple(Layer(name, (size,)) for name, size in SIZES.items()))
    raw = One(BALLOT).to_bytes(spec)
    sent = Exact().encode(BALLOT, REFERENCE)
    assert raw.endswith(sent)
    assert len(raw) - len(sent) == 32
    assert equal(Exact().decode(sent, REFERENCE), BALLOT)
    assert Exact().entropy_bits(BALLOT, REFERENCE) == pytest.approx(
        math.log2(math.factorial(288)) + math.log2(math.factorial(5000)), rel=1e-9
    )


@pytest.mark.parametrize("ballot", [*COARSE, *MOVES], ids=str)
def test_levels_of_units_change_the_bytes_and_not_the_ranking(
    ballot: Coarse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse_module, "LARGE", 100)
    with_levels = ballot.encode(BALLOT, REFERENCE)
    without = replace(REFERENCE, fan_in={})
    assert with_levels != ballot.encode(BALLOT, without)
    decoded = ballot.decode(with_levels, REFERENCE)
    assert is_permutation(decoded)
    assert equal(decoded, ballot.decode(ballot.encode(BALLOT, without), without))


def test_levels_of_units_save_bits_where_some_units_do_not_learn() -> None:
    reference = Reference(drawn({"w": 400 * 400}, 3), {"w": 400})
    rng = np.random.default_rng(4)
    speed = np.outer(rng.random(400) < 0.5, rng.random(400) < 0.5).ravel()
    places = reference.ranking["w"] + speed * rng.normal(0, 20_000, 160_000)
    ranking = {"w": np.argsort(np.argsort(places, kind="stable")).astype(np.int32)}
    ballot = Buckets(16)
    blind = replace(reference, fan_in={})
    assert len(ballot.encode(ranking, reference)) < 0.8 * len(ballot.encode(ranking, blind))


@pytest.mark.parametrize("ballot", [Buckets(16), Buckets(3), Boundary(), Moves()], ids=str)
def test_the_bytes_are_close_to_the_entropy(ballot: Ballot) -> None:
    reference = Reference(drawn({"w": 1_000_000}, 3), {"w": 1000})
    ranking = near(reference.ranking, 0.02, 5)
    bits = 8 * len(ballot.encode(ranking, reference))
    bound = ballot.entropy_bits(ranking, reference)
    assert bound < bits < 1.02 * bound


def test_a_ballot_that_agrees_with_the_reference_costs_almost_nothing() -> None:
    sent = Buckets(16).encode(REFERENCE.ranking, REFERENCE)
    assert len(sent) < 60
    assert equal(Buckets(16).decode(sent, REFERENCE), REFERENCE.ranking)


def test_six_edges_in_steps_of_a_third_by_hand() -> None:
    reference = Reference({"w": np.array([0, 1, 2, 3, 4, 5], np.int32)})
    sent = Moves(3, finer=1).encode({"w": np.array([5, 0, 1, 3, 2, 4], np.int32)}, reference)
    # moves of the edges: 5 -1 -1 0 -2 -1 places, in steps of two places, halves up: 3 0 0 0 -1 0
    # new places: 6 1 2 3 2 5; edges 2 and 4 are equal, and the lower number comes first
    assert Moves(3, finer=1).decode(sent, reference)["w"].tolist() == [5, 0, 1, 3, 2, 4]


@pytest.mark.parametrize("ballot", MOVES, ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.3])
def test_moves_decode_to_a_permutation_close_to_the_ranking(ballot: Moves, spread: float) -> None:
    ranking = near(REFERENCE.ranking, spread, 2)
    decoded = ballot.decode(ballot.encode(ranking, REFERENCE), REFERENCE)
    assert is_permutation(decoded)
    for name, size in SIZES.items():
        # Off by at most half a step before edges are ranked again, by less than one afterwards.
        assert np.abs(decoded[name] - ranking[name]).max() <= size / ballot.steps + 1


def test_moves_are_nearer_to_the_ranking_than_buckets_of_about_as_many_bits() -> None:
    reference = Reference(drawn({"w": 200_000}, 3))
    # As after local training: half of the edges move by less than 1 %, a few by a fifth.
    places = reference.ranking["w"] + 2000 * np.random.default_rng(5).standard_t(1.5, 200_000)
    ranking = {"w": np.argsort(np.argsort(places)).astype(np.int32)}
    sent = {
        ballot: ballot.encode(ranking, reference) for ballot in (Moves(20, finer=1), Buckets(16))
    }
    error = {
        ballot: np.square(ballot.decode(raw, reference)["w"].astype(float) - ranking["w"]).mean()
        for ballot, raw in sent.items()
    }
    assert len(sent[Moves(20, finer=1)]) < 1.05 * len(sent[Buckets(16)])
    assert error[Moves(20, finer=1)] < 0.8 * error[Buckets(16)]


def test_moves_near_the_cut_are_finer() -> None:
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


def test_moves_are_added_to_the_ranking_the_server_elected() -> None:
    elected = near(REFERENCE.ranking, 0.01, 7)
    known = replace(REFERENCE, ranking=Buckets(4).rounded(elected, REFERENCE))
    server = replace(known, base=elected)
    # A client that moves nothing leaves the server's ranking as it is.
    assert not equal(known.ranking, elected)
    assert equal(Moves().decode(Moves().encode(known.ranking, known), server), elected)
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


def test_moves_that_no_ranking_has_are_refused() -> None:
    reference = Reference({"w": np.arange(6, dtype=np.int32)})
    for symbols in ([4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 3, 0, 0, 0, 0]):
        sent = coarse_module._encode(
            list(Moves(3, finer=1)._plans(reference)), [np.array(symbols, np.uint8)]
        )
        with pytest.raises(WireError, match="beyond the end"):
            Moves(3, finer=1).decode(sent, reference)


def test_boundary_ballots_leave_edges_far_from_the_cut_in_place() -> None:
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


def test_a_boundary_as_wide_as_the_ranking_without_a_band_sends_the_mask() -> None:
    ballot = Boundary(reach=1.0, band=0.0)
    decoded = ballot.decode(ballot.encode(BALLOT, REFERENCE), REFERENCE)
    for name, kept in mask_layers(BALLOT, 0.5).items():
        assert np.array_equal(mask_layers(decoded, 0.5)[name], kept)


@pytest.mark.parametrize("keep", [0.5, 0.3, 1.0])
def test_masks_come_back_from_a_ranking_and_from_a_mask(keep: float) -> None:
    mask, known = mask_layers(BALLOT, keep), mask_layers(REFERENCE.ranking, keep)
    for ranking in (REFERENCE.ranking, ranking_of_mask(known)):
        reference = Reference(ranking, keep=keep)
        sent = encode_mask(mask, reference)
        assert all(
            np.array_equal(kept, mask[name]) for name, kept in decode_mask(sent, reference).items()
        )
    assert mask_layers(ranking_of_mask(known), keep)["third"].tolist() == known["third"].tolist()
    assert is_permutation(ranking_of_mask(known))


def test_masks_near_a_ranking_take_less_than_a_bit_per_edge() -> None:
    mask = mask_layers(BALLOT, 0.5)
    assert 8 * len(encode_mask(mask, REFERENCE)) < 0.5 * sum(SIZES.values())
    assert 8 * len(
        encode_mask(mask, Reference(ranking_of_mask(mask_layers(REFERENCE.ranking, 0.5))))
    ) < sum(SIZES.values())


def test_buckets_are_finer_near_the_cut() -> None:
    ballot = Buckets(4, finer=5, near=0.1)
    for keep, inner in (
        (0.5, [250, 400, 450, 500, 550, 600, 750]),
        (0.2, [250, 500, 700, 750, 800, 850, 900]),
    ):
        borders = ballot.borders(1000, replace(REFERENCE, keep=keep))
        assert borders.tolist() == [0, *inner, 1000]


IMPOSSIBLE: list[tuple[Callable[[], object], str]] = [
    (lambda: Buckets(1), "buckets must be 2 to 256, not 1"),
    (lambda: Buckets(257), "buckets must be 2 to 256, not 257"),
    (lambda: Buckets(finer=0), "finer must be at least 1"),
    (lambda: Buckets(finer=2, uneven=(0.5,)), "cannot be combined"),
    (lambda: Buckets(64, finer=20, near=0.5), "more than 256 buckets"),
    (lambda: Buckets(uneven=(0.5, 0.4)), "rise"),
    (lambda: Buckets(uneven=(0.5, 1.0)), "rise"),
    (lambda: Buckets(uneven=(math.nan,)), "rise"),
    (lambda: Buckets(uneven=tuple(np.linspace(0.1, 0.9, 300))), "at most 255 borders"),
    (lambda: Buckets(8, uneven=(0.5,)), "leave out buckets = 8"),
    (lambda: Moves(64, finer=2), "product at most 127"),
    (lambda: Moves(near=math.nan), "near must be between 0 and 1"),
    (lambda: Boundary(reach=0.1, band=0.1), "band"),
    (lambda: E2FL(downlink=Boundary()), "downlink cannot be 'boundary'"),
    (lambda: construct(BALLOTS["exact"], {"buckets": 3}, "ballot"), "no setting 'buckets'"),
]


@pytest.mark.parametrize(("make", "words"), IMPOSSIBLE)
def test_impossible_settings_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("name", "settings", "ballot"),
    [
        ("buckets", {"buckets": 5, "near": 0.2}, Buckets(5, near=0.2)),
        ("buckets", {"uneven": [0.4, 0.6]}, Buckets(uneven=(0.4, 0.6))),
        ("boundary", {"reach": 0.2}, Boundary(reach=0.2)),
        ("moves", {"steps": 12, "near": 0.2}, Moves(12, near=0.2)),
        ("exact", {}, Exact()),
    ],
)
def test_ballots_can_be_configured(name: str, settings: dict[str, object], ballot: Ballot) -> None:
    assert construct(BALLOTS[name], settings, "ballot") == ballot


@pytest.mark.parametrize("ballot", [*COARSE, *MOVES, Exact()], ids=str)
def test_bytes_too_many_and_too_few_are_refused(ballot: Ballot) -> None:
    sent = ballot.encode(BALLOT, REFERENCE)
    half = sent[: len(sent) // 2]
    for raw in (b"", sent[:-1], sent[:-4], half, sent + b"\0", sent + 4 * b"\0", b"\xff" * 40):
        with pytest.raises(WireError):
            ballot.decode(raw, REFERENCE)


def test_a_ballot_with_the_wrong_number_of_edges_in_a_bucket_is_refused() -> None:
    # An edge moved by a bucket and no other: well-formed, canonical, and not a ranking of six.
    reference = Reference({"w": np.arange(6, dtype=np.int32)})
    plans = list(Buckets(3)._plans(reference))
    sent = coarse_module._encode(plans, [np.array([1, 0, 0, 0, 0, 0], np.uint8)])
    with pytest.raises(WireError, match="too many or too few"):
        Buckets(3).decode(sent, reference)


def test_a_second_way_to_write_a_ballot_is_refused() -> None:
    reference = Reference({"w": np.arange(6, dtype=np.int32)})
    ballot = Buckets(3)
    sent = ballot.encode(reference.ranking, reference)
    said = []
    for place in range(len(sent)):
        for bit in range(8):
            changed = bytearray(sent)
            changed[place] ^= 1 << bit
            with pytest.raises(WireError) as error:
                ballot.decode(bytes(changed), reference)
            said.append(str(error.value))
    # Some decode to a ranking: without the canonical form, they would be other ways to write it.
    assert any("canonical" in text for text in said)
