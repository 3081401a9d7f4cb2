"""`e2fl data`: what it lists, checks, fetches and draws."""

import bz2
import io
import tarfile
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.data.files import cache_directory, data_directory

H5 = ("fed_emnist_train.h5", "fed_emnist_test.h5")


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


def test_list_says_what_is_missing_and_how_to_get_it(home, say):
    said = say("list")
    assert "train-images-idx3-ubyte.gz: missing; `e2fl data get mnist` fetches 9.5 MiB" in said
    assert f"{', '.join(H5)}: missing; `e2fl data get femnist` fetches 400.0 MiB" in said
    assert "licence: CC BY 4.0" in said
    (home / "femnist").mkdir()
    for name in ("femnist_leaf_partial.npz", "femnist.npz"):  # the partial one comes last
        (home / "femnist" / name).write_bytes(b"")
        assert f"  {name}: here, 0.0 MiB" in say("list")


def test_data_sets_made_of_the_files_of_others_can_be_fetched(home, monkeypatch, say):
    asked = []

    def download(file, folder):
        asked.append(folder.name)
        folder.mkdir(exist_ok=True)
        (folder / file.name).write_bytes(b"")
        return folder / file.name

    monkeypatch.setattr("e2fl.data.files.File.download", download)
    assert say("get", "mnist_writers").count("as published") == 6
    assert asked == ["mnist"] * 4 + ["qmnist"] * 2
    assert "its SHA-256 differs" in say("get", "fair_mnist_rotate", code=2)  # it is here by now
    assert "did you mean 'mnist_writers'?" in say("get", "mnist_writer", code=2)


@pytest.mark.parametrize("action", ["get", "show"])
@pytest.mark.parametrize("name", ["os:getcwd", "no_such_module:x", "nonsense"])
def test_names_of_what_is_no_data_set_are_refused(home, say, action, name):
    assert say(action, name, code=2).startswith("e2fl: ")
    assert not list(home.iterdir())


def test_real_files_are_as_published(real_data, monkeypatch, say):
    monkeypatch.setenv("E2FL_DATA", str(real_data))
    assert say("get", "mnist_writers").count("as published") == 6
    assert say("get", "adult").count("as published") == 2


def test_an_archive_is_unpacked_and_a_damaged_one_leaves_nothing_behind(home, say):
    archive = home / "femnist" / "fed_emnist.tar.bz2"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:bz2") as tar:
        for name in H5:
            info = tarfile.TarInfo(name)
            info.size = 300_000
            tar.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(info.size)))
    whole = archive.read_bytes()
    empty = bz2.compress(bytes(10_240))
    for damaged in (b"nonsense", whole[: len(whole) // 3], whole[:-2000], empty):
        archive.write_bytes(damaged)
        assert "cannot be unpacked; if it is damaged, remove it" in say("get", "femnist", code=2)
        assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    archive.write_bytes(whole)
    assert say("get", "femnist").count("no checksum is published") == 2
    assert {path.name for path in archive.parent.iterdir()} == set(H5)
    assert f"{', '.join(H5)}: here, 0.6 MiB" in say("list")


def test_data_lies_where_it_is_said_to(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert data_directory() == cache_directory()
    assert cache_directory().name == "e2fl"
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    assert data_directory("elsewhere").name == "elsewhere"
