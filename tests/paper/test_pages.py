"""The pages of the site are those of the ledger, and sentences on them stay true."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from e2fl.errors import RunError
from paper.figures import charts
from paper.ledger import frame
from paper.pages import pages
from paper.tables import DECLARED, repeats_of, table
from tests.paper.conftest import make_run

DOCS = Path(__file__).parents[2] / "docs" / "paper"


def test_the_committed_pages_are_those_of_the_ledger(ledger):
    for name, text in pages(ledger).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, (
            f"{name} is out of date: python -m paper --write-docs"
        )


def test_the_committed_figures_are_those_of_the_ledger(ledger_frame, tmp_path):
    drawn = charts(ledger_frame)
    for name, chart in drawn.items():
        svg = tmp_path / f"{name}.svg"
        chart.save(svg)
        assert svg.read_bytes() == (DOCS / "figures" / svg.name).read_bytes(), name
    assert sorted(path.stem for path in (DOCS / "figures").glob("*.svg")) == sorted(drawn)


def test_a_sentence_that_no_longer_holds_stops_the_pages(ledger):
    names = {"fedavg": "e2fl", "e2fl": "fedavg"}
    changed = [
        replace(run, method=names.get(run.method, run.method))
        if run.experiment == "femnist"
        else run
        for run in ledger
    ]
    with pytest.raises(RunError, match="FedAvg is ahead"):
        pages(changed)


def test_a_page_is_drawn_without_torch():
    code = "import sys, paper.pages, paper.command; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=DOCS.parents[1], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", DECLARED["tables"])
def test_every_declared_table_can_be_made(name, ledger_frame):
    made = table(name, ledger_frame)
    assert all(len(row) == len(made.titles) for row in made.rows)
    assert table(name, frame([])).rows == []


def test_a_row_is_at_the_last_round_of_three_seeds_and_then_of_the_longest():
    runs = [make_run(seed=seed, rounds=[(10, 1.0), (20, 2.0)]) for seed in range(3)]
    runs += [make_run(seed=3, rounds=[(10, 1.0), (30, 3.0)])]
    rows = frame(runs)
    assert [(item.round, item.seeds) for item in repeats_of(rows)] == [(20, 3), (30, 1)]
    assert [(item.round, item.seeds) for item in repeats_of(rows[:2])] == [(20, 1)]
    assert [item.round for item in repeats_of(rows, until=15)] == [10]
