"""The picture of a data set: valid, and readable whatever the names, however many classes and clients."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from e2fl.data import from_arrays
from e2fl.data.describe import summarise
from e2fl.data.picture import LEFT, LEGEND, WIDTH, draw, png
from e2fl.data.sets.adult import Adult
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.data.sets.femnist import Femnist

SVG = "{http://www.w3.org/2000/svg}"


def arrays(clients, classes=3, images=False):
    """Clients with these names and groups, and some rows of each class."""
    shape = (1, 8, 8) if images else (4,)
    labels = classes if isinstance(classes, list) else [str(number) for number in range(classes)]
    y = np.array(labels * 6)
    x = np.random.default_rng(0).integers(0, 255, (len(y), *shape)).astype(np.uint8)
    return from_arrays(
        {name: (x, y) if group is None else (x, y, group) for name, group in clients.items()}
    )


def drawn(data):
    return ElementTree.fromstring(draw(summarise(data)))


def texts(root):
    return [node.text for node in root.iter(f"{SVG}text")]


def test_a_picture_is_valid_svg_whatever_the_names():
    root = drawn(arrays({"a": "x&y", "b": "<b>", "<c>": "<b>"}, images=True))
    assert "x&y" in texts(root)
    assert "<b>" in texts(root)
    assert len(list(root.iter(f"{SVG}image"))) > 2


def test_signs_that_xml_cannot_hold_are_left_out():
    found = texts(
        drawn(arrays({"bell\x07": "x\x00y", "b\x1b[31m": "z\ufffe", "c\ud800": "z\ufffe"}))
    )
    assert {"x y", "z ", "bell ", "b [31m", "c "} <= set(found)


def test_labels_that_are_words_are_called_by_them():
    root = drawn(arrays({"a": None, "b": None}, ["benign", "malignant"]))
    assert {"benign", "malignant"} <= set(texts(root))
    assert "b: 5 of malignant" in [node.text for node in root.iter(f"{SVG}title")]
    assert summarise(arrays({"a": None, "b": None}, 3)).labels == ("0", "1", "2")


def test_data_sets_that_are_shipped_name_their_labels():
    names = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert "".join(Femnist.label_names) == names
    assert Adult.label_names == ("<=50K", ">50K")


def test_a_legend_names_every_class_or_says_how_many_more_there_are():
    root = drawn(arrays({"a": None, "b": None}, [f"{number:02}" for number in range(62)]))
    assert {f"{number:02}" for number in range(62)} <= set(texts(root))
    words = [f"class {number:04}" for number in range(500)]
    found = texts(drawn(arrays({"a": None, "b": None}, words)))
    shown = len(set(words) & set(found))
    assert shown == LEGEND[1]
    assert f"and {500 - shown} more" in found


def test_the_labels_of_each_group_have_a_bar_of_their_own():
    root = drawn(arrays({"a": "north", "b": "south", "c": "south"}))
    hints = [node.text for node in root.iter(f"{SVG}title")]
    assert sum(hint.startswith("north: ") for hint in hints) == 3
    assert sum(hint.startswith("south: ") for hint in hints) == 3


def test_clients_of_one_group_stand_together_with_its_name_beside():
    data = FairMNISTRotate(source="bundled", clients=100)
    root = drawn(data)
    boxes = {
        (float(box.get("y")), box.findtext(f"{SVG}text"))
        for box in root.iter(f"{SVG}svg")
        if box.get("y")
    }
    title = next(y for y, text in boxes if text.startswith("Labels of each client"))
    named = sorted((y, text) for y, text in boxes if text in data.group_names and y > title)
    assert [name for _, name in named] == list(data.group_names)
    tops = [top for top, _ in named]
    assert min(np.diff(tops)) >= 14  # no name runs into the next
    bars = [
        node
        for node in root.iter(f"{SVG}rect")
        if (node.findtext(f"{SVG}title") or "").count(", G")
    ]
    for bar in bars:
        group = bar.findtext(f"{SVG}title").split(", ")[1].split(":")[0]
        place = list(data.group_names).index(group)
        following = tops[place + 1] if place + 1 < len(tops) else float("inf")
        assert tops[place] - 1 <= float(bar.get("y")) < following - 1


def test_long_names_are_clipped_before_the_bars():
    names = {f"{'M' * 80}{number}": f"{'M' * 80}{number % 2}" for number in range(3)}
    for box in drawn(arrays(names, ["M" * 200, "b"])).iter(f"{SVG}svg"):
        text = box.find(f"{SVG}text")
        if text is not None and text.text.startswith("M"):
            end = float(box.get("x")) + float(box.get("width"))
            assert end <= (LEFT if text.get("fill") == "#222" else WIDTH)


def test_a_grey_image_is_a_readable_png():
    image = pytest.importorskip("PIL.Image")
    grey = np.arange(60, dtype=np.uint8).reshape(6, 10)
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png(grey)))), grey)
