"""Scores that Flower carries: fairness of them for anybody's strategy, and how they travel as bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from e2fl.config.experiment import Experiment
from e2fl.data import Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.flower.client import client_app
from e2fl.flower.evaluation_message import ScoreSheet, agreeing, fill, offered, read
from e2fl.flower.fairness import fairness
from e2fl.models import Layer, ModelSpec
from tests.flower_grid import LocalGrid


def reported(accuracy: float, group: int | None = None) -> RecordDict:
    values: dict[str, int | float] = {"accuracy": accuracy, "num-examples": 10}
    return RecordDict({"metrics": MetricRecord(values if group is None else values | {"group": group})})


def test_fairness_of_three_clients_in_two_groups() -> None:
    found = fairness()([reported(0.9, 0), reported(0.7, 0), reported(0.5, 1)], "num-examples")
    assert found["clients"] == 3
    assert found["user-mean"] == pytest.approx(70.0)
    assert found["user-worst10"] == pytest.approx(50.0)
    assert found["user-variance"] == pytest.approx(800 / 3)  # (20² + 0² + 20²) / 3
    assert (found["group-0"], found["group-1"]) == (pytest.approx(80.0), pytest.approx(50.0))
    assert found["group-variance"] == pytest.approx(225.0)  # 15²


def test_fairness_leaves_out_what_is_no_number_and_says_so() -> None:
    found = fairness()([reported(float("nan")), reported(0.5), RecordDict()], "num-examples")
    assert (found["clients"], found["unmeasured"], found["user-mean"]) == (1, 2, 50.0)
    assert dict(fairness()([], "num-examples")) == {"clients": 0, "unmeasured": 0}


def test_fairness_fits_flowers_own_strategies(toy: Experiment, tmp_path: Path) -> None:
    LocalGrid(client_app("unused"), [])  # gives messages an identity
    strategy = FedAvg(evaluate_metrics_aggr_fn=fairness())
    asked = Message(RecordDict(), dst_node_id=1, message_type="evaluate")
    replies = [Message(reported(accuracy), reply_to=asked) for accuracy in (0.25, 0.75)]
    found = strategy.aggregate_evaluate(1, replies)
    assert found is not None
    assert found["user-mean"] == 50.0


# Scores as bytes.

SPEC = ModelSpec((Layer("fc", (3, 4)),))
ROLL = Population({0: None, 1: 1, 2: None}, 3)
ANY = tuple(range(10))
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    true_positive, true_negative, false_positive, false_negative = (draw(st.integers(0, 50)) for _ in range(4))
    correct = true_positive + true_negative
    n = max(1, correct + false_positive + false_negative)
    return Tally(n, correct, draw(st.floats(0)), true_positive, false_positive, false_negative)


@st.composite
def scores(draw: st.DrawFn) -> Score:
    groups = draw(st.sampled_from([[NO_GROUP], [0], [0, 1], [0, 2], [0, 1, 2]]))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    views = {name: {group: draw(tallies()) for group in groups} for name in names}
    return Score(views, draw(st.none() | st.integers(0, 9)), draw(st.floats(0, 1e6)))


@given(scores())
def test_scores_survive_the_wire(score: Score) -> None:
    sheet = ScoreSheet.from_bytes(fill(score).to_bytes(SPEC), SPEC)
    assert read(sheet, 0, ROLL, ANY) == score
    assert list(read(sheet, 0, ROLL, ANY).views) == list(score.views)


@given(scores(), st.data())
def test_bytes_of_scores_that_were_tampered_with_are_refused(score: Score, data: st.DataObject) -> None:
    raw = bytearray(fill(score).to_bytes(SPEC))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        ScoreSheet.from_bytes(bytes(raw), SPEC)


NUMBER = st.integers(-(2**31), 2**31 - 1)
SHEETS = st.builds(
    ScoreSheet,
    names=st.lists(st.integers(0, 255) | st.just(0) | NUMBER, max_size=20).map(tuple)
    | st.just((97, 0))
    | st.just((97, 0, 98, 0)),
    groups=st.lists(st.integers(-1, 3) | NUMBER, max_size=3).map(tuple),
    counts=st.lists(st.integers(0, 9) | NUMBER, max_size=10).map(tuple),
    losses=st.lists(st.floats(), max_size=2).map(tuple),
    group=st.integers(-1, 5) | NUMBER,
    passes=st.floats(),
)


@given(SHEETS, st.sampled_from([0, 1]))
def test_a_sheet_made_by_a_stranger_is_a_possible_score_or_refused(sheet: ScoreSheet, client: int) -> None:
    sent = ScoreSheet.from_bytes(sheet.to_bytes(SPEC), SPEC)
    try:
        score = read(sent, client, ROLL, (0, 4))
    except WireError:
        return
    for view in score.views.values():
        assert set(view) == {1} if client == 1 else set(view) <= {NO_GROUP, 0, 1, 2}
        for tally in view.values():
            assert 0 <= tally.accuracy <= 100
            assert tally.n >= 1
    assert score.passes >= 0
    assert score.group in (None, 0, 4)


@given(scores(), st.data())
def test_a_sheet_with_one_field_changed_never_does_more_than_be_refused(score: Score, data: st.DataObject) -> None:
    sheet = fill(score)
    name = data.draw(st.sampled_from(["names", "groups", "counts", "losses"]))
    values = list(getattr(sheet, name))
    change = data.draw(st.sampled_from(["drop", "repeat", "replace"]))
    place = data.draw(st.integers(0, len(values) - 1))
    if change == "drop":
        del values[place]
    elif change == "repeat":
        values.insert(place, values[place])
    else:
        values[place] = data.draw(st.floats() if name == "losses" else NUMBER)
    changed = replace(sheet, **{name: tuple(values)})
    try:
        found = read(ScoreSheet.from_bytes(changed.to_bytes(SPEC), SPEC), 0, ROLL, ANY)
    except WireError:
        return
    assert all(0 <= tally.accuracy <= 100 for view in found.views.values() for tally in view.values())


# The group a client says it was served as.


def sheet(group: int | None) -> ScoreSheet:
    return fill(Score({"group": {NO_GROUP: Tally(2, 1)}}, group))


@pytest.mark.parametrize("group", [3, 2**31 - 1])
def test_a_client_is_served_as_a_group_that_it_was_offered(group: int) -> None:
    assert read(sheet(2), 0, ROLL, (0, 2)).group == 2
    with pytest.raises(WireError, match="claims to be served as group"):
        read(sheet(1), 0, ROLL, (0, 2))
    with pytest.raises(WireError, match="claims to be served as group"):
        read(sheet(group), 0, ROLL)  # nothing to choose from: fewer than there are groups or clients


def test_what_is_offered_is_named_or_counted(toy: Experiment) -> None:
    counts = {}
    for name in ("e2fl", "ifca", "fedavg", "local"):
        experiment = toy.variant(name)
        data, algorithm = experiment.build_data(), experiment.build_algorithm()
        state = algorithm.start(experiment.build_model(data), data.population, 0)
        counts[name] = [offered(message) for message in algorithm.serve(state, [0, 1]).values()]
    assert counts == {"e2fl": [(0,), (1,)], "ifca": [(0, 1), (0, 1)], "fedavg": [(), ()], "local": [(), ()]}


def test_clients_with_the_same_choice_are_all_served_as_a_group_or_none_is() -> None:
    def compared(groups: dict[int, int | None], offers: dict[int, tuple[int, ...]]) -> tuple[list[int], list[int]]:
        scores = {client: Score({"group": {NO_GROUP: Tally(2, 1)}}, group) for client, group in groups.items()}
        kept, faults = agreeing(scores, offers)
        assert all(fault.startswith("malformed: ") for fault in faults.values())
        return list(kept), list(faults)

    one = dict.fromkeys(range(4), (0,))
    assert compared({0: None, 1: 0, 2: 0, 3: 0}, one) == ([1, 2, 3], [0])
    none: dict[int, tuple[int, ...]] = dict.fromkeys(range(4), ())
    assert compared({0: 1, 1: None, 2: None, 3: None}, none) == ([1, 2, 3], [0])
    # A client whose group is not known yet is given the models of all, and served as none.
    assert compared({0: 0, 1: 0, 2: 0, 3: None}, one | {3: (0, 1)}) == ([0, 1, 2, 3], [])
    assert compared({}, {}) == ([], [])
