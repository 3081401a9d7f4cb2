"""Figures that hand-written pages quote are those of the ledger."""

import re
from pathlib import Path

import pytest

from paper.pages import Facts

ROOT = Path(__file__).parents[2]
README = "README.md"
METHODS = "docs/methods.md"
IMAGES = {"data.samples_per_client": 60}
NARROW = {"model.name": "lenet_small"}
MEAN, WORST, CLIENTS = "group/mean", "group/worst10", "clients/mean"


def moves(steps, buckets):
    down = {"name": "buckets", "buckets": buckets, "finer": 8, "near": 0.08}
    up = {"algorithm.ballot.name": "moves", "algorithm.ballot.steps": steps}
    return up | {f"algorithm.downlink.{key}": value for key, value in down.items()}


def quotes(facts):
    """Yield pages and what they must say."""
    value, interval = facts.value, facts.interval
    steady, dense = (interval("demo", name, WORST, 60) for name in ("e2fl_steady", "fedavg"))
    yield METHODS, f"worst group has {steady} % with `e2fl_steady` and {dense} % with FedAvg"
    yield README, f"the worst group has {steady} % with `e2fl_steady`"
    finetuned = interval("demo", "fedavg_finetuned", WORST, 60)
    yield README, f"{finetuned} % with FedAvg fine-tuned before use"
    yield README, f"and {dense} % with FedAvg"
    stratified = interval("demo", "fedavg_by_group", WORST, 60)
    yield METHODS, f"FedAvg with stratified sampling has {stratified} %"
    yield README, f"(`fedavg_by_group`) has {stratified} %"
    wide = interval("table1", "e2fl_steady", WORST, 100, IMAGES)
    paper = interval("table1", "e2fl", WORST, 100, IMAGES)
    yield METHODS, f"the worst group has {wide} % after 100 rounds"
    yield METHODS, f"the paper's setting gives it {paper} %"
    matched = [
        value("inference", "lowest_loss", "inference/matched", n, IMAGES, digits=0)
        for n in (30, 60)
    ]
    yield "docs/groups.md", f"{matched[0]} % of the clients after 30 rounds"
    yield "docs/groups.md", f"loses some again: {matched[1]} % after 60 rounds"
    few = IMAGES | {"data.clients": 300, "data.test_images": 500, "model.name": "lenet_small"}
    for name in ("groups_hidden", "groups_hidden_weights"):
        row = [value("demo", name, path, 60) for path in (WORST, CLIENTS)]
        row += [value("table1", name, path, 100, few) for path in (WORST, CLIENTS)]
        yield "docs/groups.md", f"| `{name}` | {' | '.join(row)} |"
    ranked, tuned = (
        [value("femnist", name, CLIENTS, 100, overrides) for overrides in ({}, NARROW)]
        for name in ("ranked_weights", "fedavg_tuned")
    )
    yield "docs/groups.md", f"{ranked[0]} against {tuned[0]} % over clients on the paper's network"
    yield "docs/groups.md", f"{ranked[1]} against {tuned[1]} on a narrow one"
    for where, overrides in (("demo", moves(12, 8)), ("table1", moves(20, 96) | IMAGES)):
        at = 60 if where == "demo" else 100
        pair = [value(where, "e2fl_steady", path, at, overrides) for path in (MEAN, WORST)]
        yield "docs/ballots.md", f"| {pair[0]} | {pair[1]} |"


@pytest.mark.parametrize("page", [README, METHODS, "docs/groups.md", "docs/ballots.md"])
def test_a_page_quotes_the_ledger(page, ledger_frame):
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    for quoted_in, quote in quotes(Facts(ledger_frame)):
        assert quoted_in != page or quote in text, quote


def test_the_table_of_the_readme_has_the_digits_of_the_ledger(ledger_frame):
    facts = Facts(ledger_frame)
    rows = re.findall(r"^\| (\w.*) \| [\d.]+ \|$", (ROOT / README).read_text(), flags=re.M)
    assert len(rows) == 6
    for row in rows:
        label, *cells = row.split(" | ")
        method = label.lower().replace("-", "").replace(" ", "_")
        numbers = [
            facts.number("demo", method, path, 20, seed=0) for path in (WORST, MEAN, CLIENTS)
        ]
        assert cells == [f"{number:.2f}" for number in numbers], method
