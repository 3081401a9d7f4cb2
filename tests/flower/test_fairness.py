"""Fairness metrics for any Flower strategy."""

import pytest
from flwr.app import MetricRecord, RecordDict

from e2fl.flower.fairness import fairness


def reported(accuracy, group=None):
    own = {} if group is None else {"group": group}
    return RecordDict({"metrics": MetricRecord({"accuracy": accuracy} | own)})


def test_fairness_of_three_clients_in_two_groups():
    values = fairness()([reported(0.9, 0), reported(0.7, 0), reported(0.5, 1)], "num-examples")
    expected = {
        "clients": 3,
        "clients-mean": 70.0,
        "clients-worst10": 50.0,
        "clients-variance": 800 / 3,  # (20² + 0² + 20²) / 3
        "group-0": 80.0,
        "group-1": 50.0,
        "group-variance": 225.0,  # 15²
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_fairness_counts_clients_without_a_finite_accuracy():
    values = fairness()([reported(float("nan")), reported(0.5), RecordDict()], "num-examples")
    assert (values["clients"], values["unmeasured"], values["clients-mean"]) == (1, 2, 50.0)
