"""FairFed by worked examples, and what it makes of data that it is not defined for."""

import re

import pytest

from e2fl.algorithms.fairfed import FairFed, FairFedReply, FairFedState, distances_to_all
from e2fl.errors import WireError
from e2fl.report.from_runs import study_of
from e2fl.runs.runner import run_experiment
from e2fl.wire import Weights
from tests.algorithms.test_baselines import params, values
from tests.runs.helpers import Noting
from tests.toys import toy_with

THREE = {  # examples, right, then of class 1 and found: unprivileged, privileged
    0: FairFedReply(params(1.0), 100, 85, 10, 4, 20, 14),
    1: FairFedReply(params(2.0), 60, 48, 5, 4, 15, 9),
    2: FairFedReply(params(4.0), 40, 34, 0, 0, 10, 7),
}


def test_fairfed_measures_each_client_against_all():
    distances, gap = distances_to_all(list(THREE.values()))
    assert gap == pytest.approx(-0.133333, abs=1e-6)  # locally -0.3, 0.2 and undefined
    assert distances.tolist() == pytest.approx([0.166667, 0.333333, 0.015], abs=1e-6)


@pytest.mark.parametrize(
    ("beta", "raw", "used"),
    [
        (0, [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
        (0.5, [0.5025, 0.219167, 0.278333], [0.5025, 0.219167, 0.278333]),
        (1, [0.505, 0.138333, 0.356667], [0.505, 0.138333, 0.356667]),
        (5, [0.525, -0.508333, 0.983333], [0.348066, 0, 0.651934]),
    ],
)
def test_fairfed_moves_weights_and_clips_them_only_for_the_mean(beta, raw, used):
    after = FairFed(beta=beta).aggregate(FairFedState(params(0.0), {}, None), THREE)
    assert list(after.weights.values()) == pytest.approx(raw, abs=1e-6)
    assert values(after.params) == [used[0] * 1 + used[1] * 2 + used[2] * 4]


def test_fairfed_with_all_weights_clipped_goes_by_examples():
    state = FairFedState(params(0.0), {0: -1.0, 1: -1.0, 2: -1.0}, None)
    after = FairFed(beta=0).aggregate(state, THREE)
    assert values(after.params) == [0.5 * 1 + 0.3 * 2 + 0.2 * 4]


def test_fairfed_judges_by_accuracy_without_favourable_examples_of_a_group():
    counted = [
        FairFedReply(params(0.0), 10, 5, 0, 0, 3, 1),
        FairFedReply(params(0.0), 10, 9, 0, 0, 2, 2),
    ]
    distances, gap = distances_to_all(counted)
    assert gap is None
    assert distances.tolist() == pytest.approx([0.2, 0.2])


def test_fairfed_refuses_counts_that_cannot_be():
    too_many = (10, 11, 1, 0, 1, 0), (10, 5, 1, 2, 1, 0), (10, 5, 6, 0, 5, 0)
    for counts in (*too_many, (10, 5, -1, -1, 1, 0)):
        with pytest.raises(WireError, match="more examples than it claims"):
            FairFed().check(None, 0, FairFedReply(params(0.0), *counts))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"classes": 2, "groups": 3}, "two groups: of 3 groups only the first two are compared$"),
        ({"classes": 5, "groups": 2}, "of 5 classes only class 1 counts as favourable$"),
        (
            {"classes": 5, "groups": 1},
            "favourable, and without groups clients are judged by accuracy alone$",
        ),
    ],
)
def test_fairfed_warns_of_data_it_is_not_defined_for(data, reason):
    noting = Noting()
    run = run_experiment(toy(**data), watcher=noting)
    (warning,) = run.summary["warnings"]
    assert re.search(reason, warning)
    assert noting.warnings == [warning]
    assert f"FairFed: {warning}." in study_of([run]).warnings


def test_fairfed_counts_what_its_clients_hold():
    experiment = toy(inside=True, classes=2, groups=2)
    data, algorithm = experiment.build.data(), experiment.build.algorithm()
    model = experiment.build.model(data)
    learner = experiment.build.learner(model)
    client = data.client(0)
    reply = algorithm.train(Weights(learner.initial), client, learner)
    whole = learner.tally(learner.initial, client.train)
    assert (reply.examples, reply.correct) == (whole.n, whole.correct)
    assert reply.positive_0 == int(((client.train.group == 0) & (client.train.y == 1)).sum())
    assert reply.found_0 + reply.found_1 == whole.true_positive
    assert reply.positive_0 + reply.positive_1 == whole.positives


def toy(**data):
    few = {"clients": 4, "examples": 24}
    return toy_with(rounds=2, data=few | data, algorithm={"name": "fairfed"})
