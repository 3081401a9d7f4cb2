"""The examples in the documentation run as they stand."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import e2fl
from e2fl.testing.toy import Toy

ROOT = Path(__file__).parent.parent


def blocks(page, kind):
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)


def defined_in(page, name):
    (code,) = [block for block in blocks(page, "python") if f"class {name}(" in block or f"def {name}(" in block]
    space: dict[str, object] = {"__name__": "example"}
    exec(compile(code, page, "exec"), space)
    return space[name]


@pytest.mark.parametrize(
    ("page", "name"), [("README.md", "Ditto"), ("docs/extending.md", "FedAvgM"), ("docs/extending.md", "PropFair")]
)
def test_the_algorithms_of_the_documentation_learn(page, name, toy, monkeypatch):
    monkeypatch.setitem(e2fl.ALGORITHMS, "mine", defined_in(page, name))
    run = e2fl.run(toy, data=Toy(groups=1), algorithm="mine", rounds=8, learner={"learning_rate": 0.02})
    assert run.summary["user"]["mean"] > 80


def test_the_model_of_the_documentation_is_one(toy, monkeypatch):
    monkeypatch.setitem(e2fl.MODELS, "mine", defined_in("docs/extending.md", "wide"))
    run = e2fl.run(toy, data=Toy(image=True), model={"name": "mine", "units": 32}, rounds=2)
    assert run.summary["rounds"] == 2


def test_the_recurrent_model_of_the_documentation_is_one(toy, monkeypatch):
    monkeypatch.setitem(e2fl.MODELS, "mine", defined_in("docs/extending.md", "Reader"))
    tokens = {
        client: (np.random.default_rng(client).integers(0, 9, (20, 16)), np.arange(20) % 2) for client in range(4)
    }
    data = e2fl.from_arrays(tokens)
    run = e2fl.run(
        toy, data=data, model={"name": "mine"}, algorithm={"name": "fedavg", "clients_per_round": 2}, rounds=2
    )
    assert run.summary["rounds"] == 2


def test_the_grouping_of_the_documentation_finds_groups(toy, monkeypatch):
    monkeypatch.setitem(e2fl.GROUPINGS, "mine", defined_in("docs/extending.md", "MostCorrect"))
    algorithm = {"name": "e2fl", "clients_per_round": 8, "grouping": {"name": "mine", "groups": 2}}
    run = e2fl.run(toy, data=Toy(styles=True), algorithm=algorithm, rounds=8)
    assert run.summary["inference"]["matched"] is not None


def test_the_settings_of_the_ballots_page_can_be_run(toy):
    found = [tomllib.loads(block)["algorithm"] for block in blocks("docs/ballots.md", "toml")]
    assert [settings["ballot"]["name"] for settings in found] == ["moves", "moves"]
    for settings in found:
        run = e2fl.run(toy, algorithm=settings | {"clients_per_round": 4}, rounds=2)
        assert run.summary["bits"]["up_per_edge"] < 8  # exact ballots of so small a network: 8.7 and a header


def test_the_ballot_of_the_documentation_comes_back():
    (code,) = blocks("docs/ballots.md", "python")
    space = {name: {"fc1.weight": np.roll(np.arange(12544 * 8, dtype=np.int32), by)} for name, by in
             (("broadcast", 0), ("ranking", 7))}  # fmt: skip
    exec(compile(code, "docs/ballots.md", "exec"), space)
    assert sorted(space["again"]["fc1.weight"].tolist()) == list(range(12544 * 8))
    assert len(space["raw"]) < 12544


def test_pages_link_to_pages_that_are_there():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_version_is_written_in_one_place():
    """Other files must read it, or they would be forgotten at a release."""
    for name in ("pyproject.toml", "CITATION.cff", "README.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(rf"version\s*[:=]\s*\"?{re.escape(e2fl.__version__)}", text), name


def test_every_make_target_of_the_contributors_page_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert {"test", "test-fast", "soak", "coverage"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
