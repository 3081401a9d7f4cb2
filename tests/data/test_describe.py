"""A data set at a glance: its numbers, and a valid picture whatever the names and numbers."""

import xml.etree.ElementTree as ElementTree

import numpy as np

from e2fl.data import from_arrays
from e2fl.data.describe import COUNTED, summarise
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate

SVG = "{http://www.w3.org/2000/svg}"


def arrays(clients, classes=3):
    """Clients with these names and groups, with images and some rows of each class."""
    labels = classes if isinstance(classes, list) else [str(number) for number in range(classes)]
    y = np.array(labels * 6)
    x = np.random.default_rng(0).integers(0, 255, (len(y), 1, 8, 8)).astype(np.uint8)
    return from_arrays(
        {name: (x, y) if group is None else (x, y, group) for name, group in clients.items()}
    )


def drawn(data):
    root = ElementTree.fromstring(summarise(data).draw())
    return root, [node.text for node in root.iter(f"{SVG}text")]


def test_a_summary_of_groups_of_clients_inside_them_and_of_none():
    facts = summarise(arrays({"a": "north", "b": "south", "<c>": "south"}))
    assert facts.groups == {"north": 1, "south": 2}
    assert list(facts.names.values()) == ["<c>", "a", "b"]
    assert facts.mix.loc[(1, "north")].sum() == facts.mix.loc[1].sum().sum() == 14  # of 18
    stored = facts.to_json()
    assert stored["examples"] == {"train": 42, "test": 12}
    south = {"name": "south", "clients": 2, "train": 28, "test": 8}
    assert {key: stored["groups"][1][key] for key in south} == south
    assert sum(stored["groups"][1]["labels"]) == 28
    inside = summarise(arrays({name: np.arange(18) % 2 for name in "abc"}))
    assert inside.groups == {"0": 3, "1": 3}
    assert inside.mix.loc[0].sum().sum() == 14
    assert sum(group["test"] for group in inside.to_json()["groups"]) == 12
    assert summarise(arrays({"a": None, "b": None})).groups == {"all clients": 2}


def test_test_rows_that_clients_share_count_once_in_their_group():
    stored = summarise(FairMNISTRotate(source="bundled", clients=20)).to_json()
    assert {group["test"] for group in stored["groups"]} == {1000}
    assert stored["examples"]["test"] == 10_000


def test_of_many_clients_some_of_each_group_are_counted():
    data = FairMNISTRotate(source="bundled", clients=500)
    facts = summarise(data)
    assert facts.to_json()["looked_at"] == len(facts.names) <= COUNTED
    assert {group for _, group in facts.mix.index} == set(data.group_names)
    assert facts.groups["G6"] == data.sizes[5]
    assert f"training examples of a client: {data.samples} to" in str(facts)  # of all


def test_a_picture_is_valid_svg_whatever_the_names():
    _, texts = drawn(arrays({"a": "x&y", "b": "<b>", "<c>": "<b>"}))
    assert {"x&y: 1 clients", "<b>: 2 clients"} <= set(texts)
    _, texts = drawn(arrays({"bell\x07": "x\x00y", "b\x1b[31m": "z\ufffe", "c\ud800": "z\ufffe"}))
    assert {"x y: 1 clients", "z : 2 clients", "x y, bell ", "z , b [31m"} <= set(texts)


def test_a_legend_names_every_class_or_says_how_many_more_there_are():
    root, texts = drawn(arrays({"a": "north", "b": "south", "c": "south"}, ["benign", "malignant"]))
    assert {"benign", "malignant"} <= set(texts)
    hints = [node.text for node in root.iter(f"{SVG}title")]
    assert "south, b: 5 of malignant" in hints
    assert sum(hint.startswith("north: ") for hint in hints) == 3  # a name, and two labels
    words = [f"class {number:04}" for number in range(500)]
    _, texts = drawn(arrays({"a": None, "b": None}, words))
    assert len(set(words) & set(texts)) == 70
    assert "and 430 more" in texts


def test_clients_of_one_group_stand_together():
    data = FairMNISTRotate(source="bundled", clients=100)
    bars = [bar for bar in drawn(data)[0].iter(f"{SVG}rect") if bar.get("y")]
    hints = [(float(bar.get("y")), bar.findtext(f"{SVG}title")) for bar in bars]
    in_order = [hint.split(",")[0] for _, hint in hints if hint and ", " in hint]
    assert set(in_order) == set(data.group_names)
    assert in_order == sorted(in_order, key=data.group_names.index)
