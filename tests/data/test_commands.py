"""`e2fl data`: what it lists, checks and draws."""

import bz2
import io
import json
import tarfile
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from e2fl.cli import main
from e2fl.data import DATASETS, from_arrays
from e2fl.data.describe import summarise
from e2fl.data.files import cache_directory, data_directory
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate


def images(groups=None):
    rng = np.random.default_rng(0)
    clients = {}
    for name in ("a", "b", "<c>"):
        given = (rng.integers(0, 255, (12, 1, 8, 8)).astype(np.uint8), np.arange(12) % 3)
        clients[name] = given if groups is None else (*given, groups[name])
    return from_arrays(clients)


def test_facts_about_groups_of_clients():
    facts = summarise(images({"a": "north", "b": "south", "<c>": "south"}), samples=4)
    assert facts.clients_per_group == {"north": 1, "south": 2}
    assert {group: len(found) for group, found in facts.samples.items()} == {"north": 4, "south": 4}
    assert all(
        image.shape == (8, 8) and image.dtype == np.uint8 for image in facts.samples["north"]
    )
    assert [client.name for client in facts.shown] == ["<c>", "a", "b"]
    assert (
        sum(sum(client.labels) for client in facts.shown) == 30
    )  # 36, less a fifth of each client's to test with
    assert sum(facts.label_mix["north"]) == 10


def test_facts_about_groups_inside_clients_and_about_none():
    inside = summarise(images({name: np.arange(12) % 2 for name in ("a", "b", "<c>")}))
    assert inside.clients_per_group == {"0": 3, "1": 3}
    assert sum(inside.shown[0].groups.values()) == 10
    none = summarise(images())
    assert none.clients_per_group == {"all clients": 3}


def test_many_clients_are_not_all_opened():
    data = FairMNISTRotate(source="bundled", clients=500)
    facts = summarise(data, clients=30)
    assert len(facts.shown) <= 30
    assert {client.group for client in facts.shown} == set(data.group_names)
    assert len(facts.samples) == 10
    assert facts.clients_per_group["G6"] == data.sizes[5]


def test_sizes_are_those_of_all_clients_or_it_is_said_of_whom():
    def given(count):
        return np.zeros((count, 3)), np.arange(count) % 2, np.arange(count) % 2

    sizes = dict.fromkeys((f"{number:03}" for number in range(100)), 10) | {"050": 1000}
    said = str(
        summarise(from_arrays({name: given(size) for name, size in sizes.items()}), clients=5)
    )
    assert "training examples of a client: 8 to 800, median 8" in said
    assert "0: 4 clients of 4 shown" in said
    facts = summarise(FairMNISTRotate(source="bundled", clients=100), clients=20)
    assert "training examples of a client: " in str(facts)
    assert "of 100 clients" not in str(facts)  # the sizes of all clients are known
    assert "G10: 1 clients\n" in str(facts)


def test_show_draws_and_tells(tmp_path, capsys):
    out = tmp_path / "demo.svg"
    settings = ["--set", "source=bundled", "--set", "clients=20"]
    assert main(["data", "show", "fair_mnist_rotate", *settings, "--out", str(out)]) == 0
    assert "G10: 1 clients" in capsys.readouterr().out
    assert ElementTree.parse(out).getroot().tag.endswith("svg")
    assert (
        main(["data", "show", "fair_mnist_rotate", *settings, "--out", str(tmp_path / "demo.txt")])
        == 2
    )
    assert "must be an .svg file" in capsys.readouterr().err


def test_list_says_what_is_missing_and_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert "train-images-idx3-ubyte.gz: missing; `e2fl data get mnist` fetches 9.5 MiB" in said
    assert "licence: CC BY 4.0" in said


def test_check_of_what_is_missing_says_where_to_put_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert main(["data", "check", "adult"]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'adult' / 'adult.data'} is missing" in said
    assert "SHA-256 5b002646" in said
    assert main(["data", "check", "nonsense"]) == 2
    assert "no data set to fetch 'nonsense'" in capsys.readouterr().err


def test_data_sets_made_of_the_files_of_others_can_be_fetched_and_checked(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
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
        assert main(["data", "get", name]) == 0
        assert [path.parent.name for path in asked] == folders
        assert main(["data", "check", name]) == 2
        said = capsys.readouterr().err
        assert said.count("is missing") == len(folders)
    assert main(["data", "get", "mnist_writer"]) == 2
    assert "did you mean 'mnist_writers'?" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["get", "check", "show"])
@pytest.mark.parametrize(
    "name", ["os:getcwd", "collections:OrderedDict", "builtins:zip", "no_such_module:x", "os:sep"]
)
def test_names_of_what_is_no_data_set_are_refused(tmp_path, monkeypatch, capsys, action, name):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert main(["data", action, name]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("e2fl: ")
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_real_files_are_as_published(real_data, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(real_data))
    for name in ("mnist", "qmnist", "mnist_writers", "adult", "femnist"):
        assert main(["data", "check", name]) == 0
    assert capsys.readouterr().out.count("as published") == 14


def test_a_damaged_archive_is_removed_so_that_it_can_be_fetched_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    archive = tmp_path / "femnist" / "fed_emnist.tar.bz2"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:bz2") as tar:
        for name in ("fed_emnist_train.h5", "fed_emnist_test.h5"):
            info = tarfile.TarInfo(name)
            info.size = 300_000
            tar.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(info.size)))
    whole = archive.read_bytes()
    for damaged in (
        b"nonsense",
        whole[: len(whole) // 3],
        whole[:-2000],
        bz2.compress(bytes(10_240)),
    ):
        archive.write_bytes(damaged)
        assert main(["data", "get", "femnist"]) == 2
        assert "It has been removed; fetch it again" in capsys.readouterr().err
        assert not archive.exists()
        assert not list(archive.parent.glob(".*"))
    for path in archive.parent.iterdir():
        path.unlink()
    archive.write_bytes(whole)
    # Where the files cannot be written, the archive is not to blame.
    (archive.parent / "fed_emnist_train.h5").mkdir()
    assert main(["data", "get", "femnist"]) == 2
    assert "cannot be unpacked" in capsys.readouterr().err
    assert archive.exists()
    (archive.parent / "fed_emnist_train.h5").rmdir()
    assert main(["data", "get", "femnist"]) == 0
    assert sorted(path.name for path in archive.parent.iterdir()) == [
        "fed_emnist_test.h5",
        "fed_emnist_train.h5",
    ]


def leaf_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"f1": {"x": np.ones((3, 784)).tolist(), "y": [1, 2, 3]}}
    path.write_text(json.dumps({"user_data": data}))


@pytest.mark.parametrize("folder", ["femnist", "."])
def test_an_archive_put_in_place_by_hand_is_to_be_unpacked(tmp_path, monkeypatch, capsys, folder):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    monkeypatch.setattr("e2fl.data.files.File.download", lambda *_: pytest.fail("it is here"))
    archive = tmp_path / folder / "fed_emnist.tar.bz2"
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:bz2") as tar:
        for name in ("fed_emnist_train.h5", "fed_emnist_test.h5"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    unpack = f"{archive} is still packed: run `e2fl data get femnist` to unpack it"
    assert main(["data", "check", "femnist"]) == 2
    assert unpack in capsys.readouterr().err
    assert main(["run", "femnist"]) == 2
    assert unpack in capsys.readouterr().err
    assert main(["data", "list"]) == 0
    assert unpack in capsys.readouterr().out
    assert main(["data", "get", "femnist"]) == 0
    assert main(["data", "check", "femnist"]) == 0
    assert capsys.readouterr().out.count(".h5: here, SHA-256") == 2
    assert main(["data", "list"]) == 0
    assert "fed_emnist_train.h5, fed_emnist_test.h5: here" in capsys.readouterr().out


def test_leafs_files_are_checked_and_listed_where_a_run_finds_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    for number in range(4):
        leaf_file(tmp_path / "femnist" / "data" / "all_data" / f"all_data_{number}.json")
    assert main(["data", "check", "femnist"]) == 0
    assert capsys.readouterr().out.count(".json: here, SHA-256") == 4
    assert main(["data", "list"]) == 0
    assert "all_data_0.json, all_data_1.json and 2 more: here" in capsys.readouterr().out


def test_the_partial_femnist_serves_only_where_there_is_no_other(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    assert (
        "fed_emnist_train.h5, fed_emnist_test.h5: missing; `e2fl data get femnist`"
        in capsys.readouterr().out
    )
    for name, after in (
        ("femnist_leaf_partial.npz", "; `e2fl data get femnist` fetches"),
        ("femnist.npz", "\n"),
    ):
        leaf_file(tmp_path / "leaf" / "all_data_0.json")
        assert (
            main(["data", "convert", str(tmp_path / "leaf"), str(tmp_path / "femnist" / name)]) == 0
        )
        capsys.readouterr()
        assert main(["data", "list"]) == 0
        assert f"  {name}: here, 0.0 MiB{after}" in capsys.readouterr().out
        assert main(["data", "check", "femnist"]) == 0
        assert f"{name}: 3 images of 1 writers" in capsys.readouterr().out


def test_half_of_femnist_is_not_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "fed_emnist_test.h5").touch()
    assert main(["data", "check", "femnist"]) == 2
    assert "has only fed_emnist_test.h5; both" in capsys.readouterr().err
    assert main(["data", "list"]) == 0
    assert "has only fed_emnist_test.h5; both" in capsys.readouterr().out


def test_convert_from_the_command_line(tmp_path, capsys):
    leaf_file(tmp_path / "all_data_0.json")
    assert main(["data", "convert", str(tmp_path), str(tmp_path / "out.npz")]) == 0
    assert "3 images written" in capsys.readouterr().out
    assert main(["data", "convert", str(tmp_path / "absent"), str(tmp_path / "b.npz")]) == 2


def test_data_lies_where_it_is_said_to(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    assert data_directory() == cache_directory()
    assert cache_directory().name == "e2fl"
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    assert data_directory("elsewhere").name == "elsewhere"


def test_paper_scale_fair_mnist_rotate_is_dealt_out_to_a_thousand_clients(real_data):
    data = DATASETS["fair_mnist_rotate"](dir=str(real_data))
    assert len([data.client(number) for number in data.population.ids]) == 1000
