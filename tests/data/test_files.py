"""Files of the data sets: mirrors, checksums, arrays; and `e2fl data`: what it lists and draws."""

import gzip
import hashlib
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.data.files import SOURCES, File, data_directory, load_arrays, read_idx
from e2fl.errors import DataError

BODY = bytes(range(256)) * 200
SHA = hashlib.sha256(BODY).hexdigest()


def test_the_first_mirror_with_the_published_file_delivers_it(serve, tmp_path):
    address = serve(good=BODY, wrong=BODY[::-1])
    missing, wrong, good = (f"{address}{name}/" for name in ("missing", "wrong", "good"))
    with pytest.raises(DataError, match=r"put it at .*404.*hash"):
        File("file", len(BODY), (missing, wrong), SHA).download(tmp_path)
    assert not list(tmp_path.iterdir())
    file = File("file", len(BODY), (missing, wrong, good), SHA)
    assert file.download(tmp_path / "deep").read_bytes() == BODY
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_a_file_is_read_plain_or_gzipped_and_only_as_published(tmp_path):
    file, path, packed = File("file", 0, (), SHA), tmp_path / "file", tmp_path / "file.gz"
    path.write_bytes(BODY)
    packed.write_bytes(gzip.compress(BODY))
    assert file.contents(path) == file.contents(packed) == BODY
    for damaged in (BODY[1:], gzip.compress(BODY)[:-9], b""):
        path.write_bytes(damaged)
        packed.write_bytes(damaged)
        for place in (path, packed):
            with pytest.raises(DataError, match="SHA-256 differs"):
                file.contents(place)


def test_every_known_file_has_an_https_mirror_a_checksum_and_a_licence():
    for source in SOURCES.values():
        assert source.licence
        for file in source.files:
            assert all(mirror.startswith("https://") for mirror in file.mirrors)
            assert len(file.sha256) == 64


def test_idx_files_are_read():
    raw = b"\0\0\x08\x02" + np.array([2, 3], ">u4").tobytes() + bytes(range(6))
    assert read_idx(gzip.compress(raw)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_arrays_come_from_an_npz_without_pickles(tmp_path):
    arrays = {"x": np.arange(1000.0), "y": np.arange(6)}
    np.savez(tmp_path / "a.npz", **arrays)
    loaded = load_arrays(tmp_path / "a.npz", ("x",), optional=("y", "z"))
    assert loaded.keys() == arrays.keys()
    assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-50])
    for name, array in (("a.npz", "client"), ("pickle.npz", "x"), ("cut.npz", "x")):
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            load_arrays(tmp_path / name, (array,))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data directory."""
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def say(capsys):
    """Call `e2fl data`; return what it printed, after checking the exit code."""

    def call(*words, code=0):
        assert main(["data", *map(str, words)]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return call


def test_show_draws_and_tells(tmp_path, say):
    settings = ["--set", "source=bundled", "--set", "clients=20"]
    said = say("show", "fair_mnist_rotate", *settings, "--out", tmp_path / "demo.svg")
    assert "G10: 1 clients" in said
    assert ElementTree.parse(tmp_path / "demo.svg").getroot().tag.endswith("svg")
    said = say("show", "fair_mnist_rotate", *settings, "--out", tmp_path / "demo.txt", code=2)
    assert "must be an .svg file" in said


def test_what_is_missing_is_listed_and_fetched(home, monkeypatch, say):
    said = say("list")
    assert "train-images-idx3-ubyte.gz: missing; `e2fl data get mnist` fetches 9.5 MiB" in said
    assert "licence: CC BY 4.0" in said
    asked = []

    def download(file, folder):
        asked.append(folder.name)
        folder.mkdir(exist_ok=True)
        (folder / file.name).write_bytes(b"")
        return folder / file.name

    monkeypatch.setattr(File, "download", download)
    monkeypatch.setattr(File, "contents", lambda file, path: b"")
    assert say("get", "mnist_writers").count("as published") == 6
    assert asked == ["mnist"] * 4 + ["qmnist"] * 2
    assert "train-images-idx3-ubyte.gz: here" in say("list")
    monkeypatch.undo()
    monkeypatch.setenv("E2FL_DATA", str(home))
    assert "its SHA-256 differs" in say("get", "fair_mnist_rotate", code=2)  # it is here by now
    assert "did you mean 'mnist_writers'?" in say("get", "mnist_writer", code=2)


@pytest.mark.parametrize("action", ["get", "show"])
@pytest.mark.parametrize("name", ["os:getcwd", "no_such_module:x", "nonsense"])
def test_names_of_what_is_no_data_set_are_refused(home, say, action, name):
    assert say(action, name, code=2).startswith("e2fl: ")
    assert not list(home.iterdir())


def test_data_lies_where_it_is_said_to(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert data_directory().name == "e2fl"
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    assert data_directory("elsewhere").name == "elsewhere"
