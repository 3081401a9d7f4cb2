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


def test_list_and_check_say_what_is_missing_and_how_to_get_it(home, say):
    said = say("list")
    assert "train-images-idx3-ubyte.gz: missing; `e2fl data get mnist` fetches 9.5 MiB" in said
    assert "no FEMNIST" in said
    assert "`e2fl data get femnist` fetches 400.0 MiB" in said
    assert "licence: CC BY 4.0" in said
    said = say("check", "adult", code=2)
    assert f"{home / 'adult' / 'adult.data'} is missing" in said
    assert "SHA-256 5b002646" in said


def test_data_sets_made_of_the_files_of_others_can_be_fetched_and_checked(home, monkeypatch, say):
    asked = []
    monkeypatch.setattr(
        "e2fl.data.files.File.download",
        lambda file, folder: asked.append(folder / file.name) or folder / file.name,
    )
    for name, folders in (
        ("mnist_writers", ["mnist"] * 4 + ["qmnist"] * 2),
        ("fair_mnist_rotate", ["mnist"] * 4),
    ):
        asked.clear()
        say("get", name)
        assert [path.parent.name for path in asked] == folders
        assert say("check", name, code=2).count("is missing") == len(folders)
    assert "did you mean 'mnist_writers'?" in say("get", "mnist_writer", code=2)


@pytest.mark.parametrize("action", ["get", "check", "show"])
@pytest.mark.parametrize("name", ["os:getcwd", "builtins:zip", "no_such_module:x", "nonsense"])
def test_names_of_what_is_no_data_set_are_refused(home, say, action, name):
    assert say(action, name, code=2).startswith("e2fl: ")
    assert not list(home.iterdir())


def test_real_files_are_as_published(real_data, monkeypatch, say):
    monkeypatch.setenv("E2FL_DATA", str(real_data))
    names = ("mnist", "qmnist", "mnist_writers", "adult", "femnist")
    assert "".join(say("check", name) for name in names).count("as published") == 14


def packed(path, sizes=0):
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:bz2") as tar:
        for name in H5:
            info = tarfile.TarInfo(name)
            info.size = sizes
            tar.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(sizes)))


def test_a_damaged_archive_leaves_nothing_behind(home, say):
    archive = home / "femnist" / "fed_emnist.tar.bz2"
    packed(archive, 300_000)
    whole = archive.read_bytes()
    empty = bz2.compress(bytes(10_240))
    for damaged in (b"nonsense", whole[: len(whole) // 3], whole[:-2000], empty):
        archive.write_bytes(damaged)
        assert "cannot be unpacked; if it is damaged, remove it" in say("get", "femnist", code=2)
        assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    archive.write_bytes(whole)
    say("get", "femnist")
    assert {path.name for path in archive.parent.iterdir()} == set(H5)


@pytest.mark.parametrize("folder", ["femnist", "."])
def test_an_archive_put_in_place_by_hand_is_to_be_unpacked(home, monkeypatch, say, folder):
    monkeypatch.setattr("e2fl.data.files.File.download", lambda *_: pytest.fail("it is here"))
    archive = home / folder / "fed_emnist.tar.bz2"
    packed(archive)
    unpack = f"{archive} is still packed: run `e2fl data get femnist` to unpack it"
    assert unpack in say("check", "femnist", code=2)
    assert unpack in say("list")
    say("get", "femnist")
    assert say("check", "femnist").count(".h5: here, SHA-256") == 2
    assert "fed_emnist_train.h5, fed_emnist_test.h5: here" in say("list")
    archive.with_name(H5[0]).unlink()
    for said in (say("check", "femnist", code=2), say("list")):
        assert "does not hold both fed_emnist_train.h5 and" in said


def test_the_partial_femnist_serves_only_where_there_is_no_other(home, say):
    (home / "femnist").mkdir()
    for name, after in (
        ("femnist_leaf_partial.npz", "here, a part of it"),
        ("femnist.npz", "here"),
    ):
        (home / "femnist" / name).write_bytes(b"")
        assert f"  {name}: {after}, 0.0 MiB" in say("list")
        assert f"{name}: here, SHA-256" in say("check", "femnist")


def test_data_lies_where_it_is_said_to(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert data_directory() == cache_directory()
    assert cache_directory().name == "e2fl"
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    assert data_directory("elsewhere").name == "elsewhere"
