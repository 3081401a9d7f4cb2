"""Scores on Flower: fairness metrics for any strategy, and scores as messages."""

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
from e2fl.flower.records import reply_content
from e2fl.flower.scores import comparable, offered_groups, read_score, score_parts
from e2fl.flower.strategy import fairness
from tests.flower.grid import LocalGrid


def reported(accuracy: float, group: int | None = None) -> RecordDict:
    values: dict[str, int | float] = {"accuracy": accuracy, "num-examples": 10}
    return RecordDict(
        {"metrics": MetricRecord(values if group is None else values | {"group": group})}
    )


def test_fairness_of_three_clients_in_two_groups() -> None:
    found = fairness()([reported(0.9, 0), reported(0.7, 0), reported(0.5, 1)], "num-examples")
    assert found["clients"] == 3
    assert found["clients-mean"] == pytest.approx(70.0)
    assert found["clients-worst10"] == pytest.approx(50.0)
    assert found["clients-variance"] == pytest.approx(800 / 3)  # (20² + 0² + 20²) / 3
    assert (found["group-0"], found["group-1"]) == (pytest.approx(80.0), pytest.approx(50.0))
    assert found["group-variance"] == pytest.approx(225.0)  # 15²


def test_fairness_counts_clients_without_a_finite_accuracy() -> None:
    found = fairness()([reported(float("nan")), reported(0.5), RecordDict()], "num-examples")
    assert (found["clients"], found["unmeasured"], found["clients-mean"]) == (1, 2, 50.0)
    assert dict(fairness()([], "num-examples")) == {"clients": 0, "unmeasured": 0}


def test_fairness_fits_flowers_own_strategies(toy: Experiment, tmp_path: Path) -> None:
    LocalGrid(client_app("unused"), [])  # makes messages possible outside of a run
    strategy = FedAvg(evaluate_metrics_aggr_fn=fairness())
    asked = Message(RecordDict(), dst_node_id=1, message_type="evaluate")
    replies = [Message(reported(accuracy), reply_to=asked) for accuracy in (0.25, 0.75)]
    found = strategy.aggregate_evaluate(1, replies)
    assert found is not None
    assert found["clients-mean"] == 50.0


# Scores as records.

POPULATION = Population({0: None, 1: 1, 2: None}, 3)
ANY = tuple(range(10))
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)


@st.composite
def tallies(draw: st.DrawFn) -> Tally:
    true_positive, true_negative, false_positive, false_negative = (
        draw(st.integers(0, 50)) for _ in range(4)
    )
    correct = true_positive + true_negative
    n = max(1, correct + false_positive + false_negative)
    return Tally(n, correct, draw(st.floats(0)), true_positive, false_positive, false_negative)


@st.composite
def scores(draw: st.DrawFn) -> Score:
    groups = draw(st.sampled_from([[NO_GROUP], [0], [0, 1], [0, 2], [0, 1, 2]]))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    views = {name: {group: draw(tallies()) for group in groups} for name in names}
    return Score(views, draw(st.none() | st.integers(0, 9)), draw(st.floats(0, 1e6)))


def sent(score: Score, client: int = 0) -> RecordDict:
    return reply_content({client: score_parts(score)}, 1)


@given(scores())
def test_scores_survive_the_wire(score: Score) -> None:
    received = read_score(sent(score), 0, POPULATION, ANY)
    assert received == score
    assert list(received.views) == list(score.views)


NUMBER = st.integers(-(2**63), 2**63 - 1)
ANYTHING = st.one_of(
    NUMBER,
    st.floats(),
    st.booleans(),
    st.text(max_size=4),
    st.lists(NUMBER, max_size=4),
    st.lists(st.integers(0, 3), max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.text(max_size=4), max_size=4),
)


@given(scores(), st.sampled_from([0, 1]), st.data())
def test_a_score_with_values_changed_is_possible_or_rejected(
    score: Score, client: int, data: st.DataObject
) -> None:
    content = sent(score, client)
    record = content[f"score-{client}"]
    for name in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=3)):
        record[name] = data.draw(ANYTHING)
    try:
        received = read_score(content, client, POPULATION, (0, 4))
    except WireError:
        return
    for view in received.views.values():
        assert set(view) == {1} if client == 1 else set(view) <= {NO_GROUP, 0, 1, 2}
        for tally in view.values():
            assert 0 <= tally.accuracy <= 100
            assert tally.n >= 1
    assert 0 <= received.passes <= 1e9
    assert received.group in (None, 0, 4)


@given(scores(), st.data())
def test_a_score_with_a_column_of_another_length_is_rejected(
    score: Score, data: st.DataObject
) -> None:
    content = sent(score)
    column = data.draw(st.sampled_from(["n", "correct", "loss", "true_positive", "views"]))
    values = content["score-0"][column]
    content["score-0"][column] = values[:-1] if data.draw(st.booleans()) else [*values, values[-1]]
    with pytest.raises(WireError):
        read_score(content, 0, POPULATION, ANY)


# The group a client reports that it was served as.


def served_as(group: int, offered: tuple[int, ...] = ()) -> Score:
    content = sent(Score({"group": {NO_GROUP: Tally(2, 1)}}, group))
    return read_score(content, 0, POPULATION, offered)


@pytest.mark.parametrize("group", [3, 2**31 - 1])
def test_a_client_is_served_as_a_group_that_it_was_offered(group: int) -> None:
    assert served_as(2, (0, 2)).group == 2
    with pytest.raises(WireError, match="group 1"):
        served_as(1, (0, 2))
    with pytest.raises(WireError, match="group"):
        served_as(group)  # no choice of groups: below the number of groups and clients


def test_the_groups_offered_to_a_client_are_named_or_counted(toy: Experiment) -> None:
    counts = {}
    for name in ("e2fl", "ifca", "fedavg", "local"):
        experiment = toy.variant(name)
        data, algorithm = experiment.build_data(), experiment.build_algorithm()
        state = algorithm.start(experiment.build_model(data), data.population, 0)
        counts[name] = [
            offered_groups(message) for message in algorithm.serve(state, [0, 1]).values()
        ]
    assert counts == {
        "e2fl": [(0,), (1,)],
        "ifca": [(0, 1), (0, 1)],
        "fedavg": [(), ()],
        "local": [(), ()],
    }


def test_clients_with_the_same_choice_are_all_served_as_a_group_or_none_is() -> None:
    def compared(
        groups: dict[int, int | None], offers: dict[int, tuple[int, ...]]
    ) -> tuple[list[int], list[int]]:
        scores = {
            client: Score({"group": {NO_GROUP: Tally(2, 1)}}, group)
            for client, group in groups.items()
        }
        kept, faults = comparable(scores, offers)
        assert all(fault.startswith("malformed: ") for fault in faults.values())
        return list(kept), list(faults)

    one = dict.fromkeys(range(4), (0,))
    assert compared({0: None, 1: 0, 2: 0, 3: 0}, one) == ([1, 2, 3], [0])
    none: dict[int, tuple[int, ...]] = dict.fromkeys(range(4), ())
    assert compared({0: 1, 1: None, 2: None, 3: None}, none) == ([1, 2, 3], [0])
    # A client whose group is not known yet gets the models of all groups, and is served as none.
    assert compared({0: 0, 1: 0, 2: 0, 3: None}, one | {3: (0, 1)}) == ([0, 1, 2, 3], [])
    assert compared({}, {}) == ([], [])
