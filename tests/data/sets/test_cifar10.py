"""CIFAR-10: fetched, checked, divided, rotated, and trained on by its usual networks."""

import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest

import e2fl
from e2fl.cli import main
from e2fl.data.files import SOURCES, File
from e2fl.data.sets.cifar10 import PARTS, Cifar10, standard
from e2fl.errors import DataError

ROWS = 40  # of each file


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (len(PARTS) * ROWS, 3, 32, 32), dtype=np.uint8)
    return x, np.arange(len(x)) % 10


@pytest.fixture(scope="module")
def archive(images):
    """An archive with the layout of the published one."""
    x, y = images
    rows = np.concatenate([y[:, None].astype(np.uint8), x.reshape(len(x), -1)], axis=1)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, part in [*zip(PARTS, np.split(rows, len(PARTS)), strict=True), ("readme", rows)]:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = part.size
            tar.addfile(member, io.BytesIO(part.tobytes()))
    return packed.getvalue()


@pytest.fixture
def home(archive, serve, tmp_path, monkeypatch):
    """An empty data directory, and a server on this machine that has the archive."""
    mirror = f"{serve(archive=archive)}archive/"
    name, digest = SOURCES["cifar10"].files[0].name, hashlib.sha256(archive).hexdigest()
    files = (File(name, len(archive), (mirror,), digest),)
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], files=files))
    monkeypatch.setenv("E2FL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def fetched(home):
    assert main(["data", "get", "cifar10"]) == 0
    return home


def test_it_is_missing_then_fetched_and_read_and_refused_if_damaged(home, images, capsys):
    with pytest.raises(DataError, match="e2fl data get cifar10"):
        standard()
    assert main(["data", "get", "cifar10"]) == 0
    assert "as published" in capsys.readouterr().out
    for read, made in zip(standard(), images, strict=True):
        assert np.array_equal(read, made)
    path = home / "cifar10" / SOURCES["cifar10"].files[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="SHA-256"):
        standard()


def test_every_image_is_of_one_client_and_a_share_tests_it(fetched):
    data = Cifar10(clients=4, alpha=100.0, test_share=0.25)
    parts = data.partitioned.clients
    assert sorted(np.concatenate([part.all() for part in parts])) == list(range(240))
    assert all(len(part.test) == round(len(part.all()) / 4) for part in parts)
    assert data.population.groups == 0
    assert abs(data.client(0).train.inputs().mean()) < 0.3  # noise of mean 0.5


def test_groups_rotate_their_images(fetched, images):
    upright, turned = (Cifar10(clients=4, alpha=100.0, rotations=n) for n in (1, 4))
    assert turned.group_names == ("0°", "90°", "180°", "270°")
    for number in range(4):
        one, other = upright.client(number), turned.client(number)
        assert other.group == number
        assert np.array_equal(np.rot90(one.train.x, number, axes=(2, 3)), other.train.x)


@pytest.mark.parametrize("model", [{"name": "conv4", "channels": [4, 8]}, {"name": "resnet9"}])
@pytest.mark.parametrize("algorithm", ["fedavg", "e2fl"])
def test_the_networks_of_its_literature_train_on_it(fetched, model, algorithm):
    small = {"hidden": 8} if model["name"] == "conv4" else {"width": 4}
    settings = {
        "name": "photographs",
        "rounds": 2,
        "data": {"name": "cifar10", "clients": 4, "alpha": 100.0, "rotations": 2},
        "model": model | small,
        "algorithm": {"name": algorithm, "clients_per_round": 2},
    }
    one, again = (
        e2fl.run(settings, threads=threads, out=fetched / f"threads{threads}") for threads in (1, 2)
    )
    assert one.summary["clients"] == again.summary["clients"]
    assert set(one.summary["groups"]) == {"0°", "180°"}
    assert np.isfinite(one.history["training_loss"].iloc[-1])
