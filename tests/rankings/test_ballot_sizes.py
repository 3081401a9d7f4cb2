"""Bits per edge, entropy and totals: what a summary says of the messages of a run."""

import math

import pytest

from e2fl.runs.runner import run_experiment
from tests.rankings.test_messages import coded


def test_a_summary_has_bits_per_edge(toy):
    exact = run_experiment(toy)
    cheap = run_experiment(coded(toy))
    dense = run_experiment(toy.variant("fedavg"))
    edges = 16 * 24 + 24 * 3
    for run_ in (exact, cheap, dense):
        bits, sent = run_.summary["bits"], run_.summary["bytes"]
        assert (bits["up_total_bytes"], bits["down_total_bytes"]) == (
            sent["up_total"],
            sent["down_total"],
        )
        assert bits["up_per_edge"] == pytest.approx(8 * sent["up_total"] / (6 * 4 * edges))
        assert bits["down_per_edge"] == pytest.approx(8 * sent["down_total"] / (6 * 4 * edges))
    assert dense.summary["bits"]["up_per_edge"] == pytest.approx(32, abs=1)  # and a header
    assert exact.summary["bits"]["up_per_edge"] == pytest.approx((384 * 9 + 72 * 7) / edges, abs=1)
    assert exact.summary["bits"]["entropy_up_per_edge"] is None
    assert (
        0 < cheap.summary["bits"]["entropy_up_per_edge"] < cheap.summary["bits"]["up_per_edge"] < 5
    )


def test_a_preparation_counts_the_entropy_of_the_layers_it_asks_for(toy):
    grouping = {"name": "rank_clustering", "groups": 2, "layers": ["fc2"]}
    bits = run_experiment(coded(toy, grouping=grouping, ballot={"name": "exact"})).summary["bits"]
    first, second = (math.lgamma(edges + 1) / math.log(2) for edges in (384, 72))
    # 8 clients send fc2 to be clustered, then 4 send both layers in each of 6 rounds.
    total = 8 * second + 6 * 4 * (first + second)
    assert bits["entropy_up_per_edge"] == pytest.approx(total / ((8 + 6 * 4) * (384 + 72)))


def test_clients_that_train_alone_send_no_bits(toy):
    assert "bits" not in run_experiment(toy.variant("local")).summary
