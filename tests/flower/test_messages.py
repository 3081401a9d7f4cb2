"""Scores as messages."""

import json

import pytest
from flwr.app import ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from e2fl.data import Population
from e2fl.errors import WireError
from e2fl.evaluation import NO_GROUP, Score, Tally
from e2fl.flower.messages import (
    VALUES,
    Reply,
    check_score,
    comparable,
    offered_groups,
    pack,
    unpack,
)

POPULATION = Population({0: None, 1: 1, 2: None}, 3)
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
ANY = tuple(range(10))


@st.composite
def tallies(draw):
    true_positive, true_negative, false_positive, false_negative = (
        draw(st.integers(0, 50)) for _ in range(4)
    )
    correct = true_positive + true_negative
    n = max(1, correct + false_positive + false_negative)
    own = draw(st.dictionaries(NAMES, st.floats(-1e9, 1e9), max_size=2))
    loss = draw(st.floats(0))
    return Tally(n, correct, loss, true_positive, false_positive, false_negative, own)


@st.composite
def scores(draw):
    groups = draw(st.sampled_from([[NO_GROUP], [0], [0, 1], [0, 2], [0, 1, 2]]))
    view = st.tuples(*(tallies() for _ in groups)).map(
        lambda row: dict(zip(groups, row, strict=True))
    )
    views = st.dictionaries(NAMES, view, min_size=1, max_size=3)
    group = draw(st.none() | st.integers(0, 9))
    return Score(draw(views), group, draw(st.floats(0, 1e6)), draw(st.none() | views))


def sent(score, client=0):
    return pack(Reply(round_number=1, scores={client: score}))


def received(content, offered, client=0):
    score = unpack(Reply, content).scores[client]
    if isinstance(score, str):
        raise WireError(score)
    check_score(score, POPULATION.declared[client], POPULATION, offered)
    return score


@given(scores())
def test_scores_survive_the_wire(score):
    same = received(sent(score), ANY)
    assert same == score
    assert list(same.views) == list(score.views)


NUMBER = st.integers(-(2**63), 2**63 - 1)
ANYTHING = st.recursive(
    NUMBER | st.floats() | st.booleans() | st.text(max_size=4) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@given(scores(), st.sampled_from([0, 1]), st.data())
def test_a_score_with_values_changed_is_possible_or_rejected(score, client, data):
    values = json.loads(sent(score, client)[VALUES]["json"])
    places = list(_places(values["scores"][str(client)]))
    for _ in range(data.draw(st.integers(0, 3))):
        inside, key = data.draw(st.sampled_from(places))
        inside[key] = data.draw(ANYTHING)
    content = RecordDict({VALUES: ConfigRecord({"json": json.dumps(values)})})
    try:
        score = received(content, (0, 4), client)
    except WireError:
        return
    for view in (*score.views.values(), *(score.validation or {}).values()):
        assert set(view) == {1} if client == 1 else set(view) <= {NO_GROUP, 0, 1, 2}
        for tally in view.values():
            assert 0 <= tally.accuracy <= 100
            assert tally.n >= 1
    assert 0 <= score.passes <= 1e9
    assert score.group in (None, 0, 4)


def _places(values):
    for key, value in values.items():
        yield values, key
        if isinstance(value, dict):
            yield from _places(value)


@pytest.mark.parametrize("group", [3, 2**31 - 1])
def test_a_client_is_served_as_a_group_that_it_was_offered(group):
    def served_as(group, offered=()):
        return received(sent(Score({"group": {NO_GROUP: Tally(2, 1)}}, group)), offered)

    assert served_as(2, (0, 2)).group == 2
    with pytest.raises(WireError, match="group 1"):
        served_as(1, (0, 2))
    with pytest.raises(WireError, match="group"):
        served_as(group)  # no choice of groups: below the number of groups and clients


def test_the_groups_offered_to_a_client_are_named_or_counted(toy):
    expected = {"e2fl": [(0,), (1,)], "ifca": [(0, 1)] * 2, "fedavg": [(), ()], "local": [(), ()]}
    for name, offered in expected.items():
        experiment = toy.variant(name)
        data, algorithm = experiment.build.data(), experiment.build.algorithm()
        state = algorithm.start(experiment.build.model(data), data.population, 0)
        assert list(map(offered_groups, algorithm.serve(state, [0, 1]).values())) == offered


def test_scores_must_be_like_those_of_most_clients():
    def compared(groups, offers, **own):
        tally = Tally(2, 1)
        scores = {client: Score({"group": {0: tally}}, group) for client, group in groups.items()}
        if own:
            scores[0] = Score({"group": {0: Tally(2, 1, own=own)}}, groups[0])
        kept, faults = comparable(scores, offers)
        assert all(fault.startswith("malformed: ") for fault in faults.values())
        return list(kept), list(faults)

    one = dict.fromkeys(range(4), (0,))
    none = dict.fromkeys(range(4), ())
    same = dict.fromkeys(range(4), 0)
    assert compared(same | {0: None}, one) == ([1, 2, 3], [0])
    assert compared({0: 1, 1: None, 2: None, 3: None}, none) == ([1, 2, 3], [0])
    # A client whose group is not known yet gets the models of all groups, and is served as none.
    assert compared(same | {3: None}, one | {3: (0, 1)}) == ([0, 1, 2, 3], [])
    assert compared(same, one, auc=0.5) == ([1, 2, 3], [0])  # a measure that no other has
    assert compared({}, {}) == ([], [])
