"""Bits per edge, entropy and totals: what a summary and a report say of the messages of a run."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from e2fl.config.experiment import Experiment
from e2fl.report import report_runs
from e2fl.report.sections import bits as section_of
from e2fl.runs.runner import run_experiment
from tests.rankings.test_messages import coded
from tests.report.studies import method, study


def test_a_summary_has_bits_per_edge(toy: Experiment) -> None:
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
    assert cheap.result.bits == cheap.summary["bits"]


def test_a_preparation_counts_the_entropy_of_the_layers_it_asks_for(toy: Experiment) -> None:
    grouping = {"name": "rank_clustering", "groups": 2, "layers": ["fc2"]}
    bits = run_experiment(coded(toy, grouping=grouping, ballot={"name": "exact"})).summary["bits"]
    first, second = (math.lgamma(edges + 1) / math.log(2) for edges in (384, 72))
    # 8 clients send fc2 to be clustered, then 4 send both layers in each of 6 rounds.
    total = 8 * second + 6 * 4 * (first + second)
    assert bits["entropy_up_per_edge"] == pytest.approx(total / ((8 + 6 * 4) * (384 + 72)))


def test_clients_that_train_alone_send_no_bits(toy: Experiment) -> None:
    assert "bits" not in run_experiment(toy.variant("local")).summary


# The report.


def rate(up: float, entropy: float | None) -> dict[str, float]:
    known = (
        {}
        if entropy is None
        else {"entropy_up_per_edge": entropy, "over_entropy": 100 * (up / entropy - 1)}
    )
    return {"up_per_edge": up, "down_per_edge": 2.0} | known


def test_a_report_has_bits_overhead_and_the_total_of_a_run() -> None:
    exact = method("exact", {"x": 80}, bits=rate(20.9, None), mib=25.0)
    cheap = method("moves", {"x": 78}, bits=rate(1.01, 1.0), mib=3.125)
    alone = method("local", {"x": 70}, alone=True)
    assert section_of(study(alone)) is None
    found = section_of(study(exact, cheap, alone))
    assert "moves: 1.01, 78.0 %" in found.plots[0].alt
    assert "exact: 20.90 bits up, 2.00 down; the whole run sent 400.00 MiB." in found.intro
    assert (
        "moves: 1.01 bits up (1.0 % above the entropy), 2.00 down; the whole run sent 50.00 MiB."
        in found.intro
    )
    (table,) = found.behind
    texts = [[table.cell(row, column) for column in table.columns] for row in range(len(table))]
    assert texts == [
        ["exact", "80.00", "20.900", "–", "2.000", "–", "400.00"],
        ["moves", "78.00", "1.010", "1.000", "2.000", "1.0", "50.00"],
    ]
    assert table.columns[-1].title == "MiB in all"
    assert "exact rankings" in table.note
    # One method has a table and no plot; where all messages are coded, there is no dash to explain.
    single = section_of(study(cheap))
    assert single.plots == ()
    assert single.tables[0].note == ""


@pytest.mark.parametrize("ballot", ["exact", "moves"])
def test_the_page_of_a_single_run_says_what_it_sent(
    ballot: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = replace(toy, algorithm=toy.algorithm | {"ballot": {"name": ballot}})
    done = run_experiment(experiment, out=tmp_path / "run")
    report_runs([tmp_path / "run"], tmp_path / "page.html", export_to=tmp_path / "files")
    (row,) = csv.DictReader((tmp_path / "files" / "bits.csv").open())
    sent = done.summary["bits"]
    assert float(row["bits/up_per_edge"]) == sent["up_per_edge"]
    assert float(row["bytes/total"]) == sent["up_total_bytes"] + sent["down_total_bytes"]
    over = (
        "" if ballot == "exact" else 100 * (sent["up_per_edge"] / sent["entropy_up_per_edge"] - 1)
    )
    assert row["bits/over_entropy"] == str(over)
    assert "up, above the entropy, %" in (tmp_path / "page.html").read_text()
