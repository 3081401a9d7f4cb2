"""FairMNISTRotate: the images of each client, and their rotation."""

import gzip

import numpy as np
import pytest
from scipy.ndimage import rotate

from e2fl.data.sets.fair_mnist_rotate import SIZES, FairMNISTRotate, group_sizes, rotated
from e2fl.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def bundled():
    return FairMNISTRotate(source="bundled", samples_per_client=20)


def test_sizes_are_those_of_the_paper_and_scale_in_proportion():
    assert sum(SIZES) == 1000
    assert (SIZES[0], SIZES[5]) == (8, 257)
    assert sorted(range(10), key=SIZES.__getitem__)[:3] == [9, 0, 1]
    assert group_sizes(1000) == SIZES
    assert group_sizes(100) == (1, 1, 7, 17, 24, 26, 15, 6, 2, 1)
    assert group_sizes(10) == (1,) * 10
    for clients in range(10, 400):
        assert sum(group_sizes(clients)) == clients
        assert min(group_sizes(clients)) >= 1


def test_clients_come_in_blocks_by_group_and_share_its_test_set(bundled):
    assert np.bincount(bundled.digits.train_y).tolist() == [400] * 10
    assert np.bincount(bundled.digits.test_y).tolist() == [100] * 10
    declared = [bundled.population.declared[client] for client in (0, 1, 2, 8, 9, 98, 99)]
    assert declared == [0, 1, 2, 2, 3, 8, 9]
    assert [bundled.client(client).group for client in (0, 99)] == [0, 9]
    assert bundled.group_names[0] == "G1"
    assert bundled.client(2).test is bundled.client(3).test
    assert bundled.client(2).test is not bundled.client(20).test
    assert len(bundled.client(2).test) == 1000


def test_a_group_deals_out_its_images_once():
    upright = FairMNISTRotate(source="bundled", angle_step=0.0)
    assert upright.samples == 4000 // 26
    members = [client for client, group in upright.population.declared.items() if group == 5]
    seen = [image.tobytes() for client in members for image in upright.client(client).train.x]
    # MNIST has a few images twice; dealing any of them twice would show as many more.
    assert len(seen) - len(set(seen)) < 5


def test_turns_are_counter_clockwise_and_exact_at_right_angles(bundled):
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    for degrees in (90, 180, 270, 360):
        expected = np.rot90(images, degrees // 90, axes=(1, 2))
        assert (rotated(images, degrees)[:, 0] == expected).all()
    images = bundled.digits.train_x[:5]
    for degrees in (36, 72, 324):
        other = [rotate(image.astype(float), degrees, reshape=False, order=1) for image in images]
        assert np.abs(rotated(images, degrees)[:, 0] - np.rint(np.stack(other))).max() <= 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source": "web"}, "mnist, bundled"),
        ({"clients": 9}, "at least 10"),
        ({"group_sizes": ()}, "at least 1"),
        ({"angle_step": float("inf")}, "must be degrees"),
        ({"samples_per_client": 154}, "1 to 153"),
        ({"samples_per_client": 0}, "at least 1"),
        ({"group_sizes": (3, 2), "clients": 6}, "add up"),
        ({"test_images": 2000}, "1 to 1000"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        FairMNISTRotate(**{"source": "bundled"} | settings)


def test_missing_and_damaged_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    name = "train-images-idx3-ubyte.gz"
    with pytest.raises(DataError, match=rf"{name} is missing.*E2FL_DATA"):
        FairMNISTRotate(dir=str(tmp_path))
    (tmp_path / name).write_bytes(gzip.compress(b"not images"))
    with pytest.raises(DataError, match="SHA-256"):
        FairMNISTRotate(dir=str(tmp_path))


def test_the_paper_scale_from_real_files(real_data):
    data = FairMNISTRotate(dir=str(real_data))
    assert (data.sizes, data.samples, len(data.population)) == (SIZES, 233, 1000)
    client = data.client(999)
    assert (client.group, len(client.train), len(client.test)) == (9, 233, 10000)
    few = FairMNISTRotate(dir=str(real_data), test_images=50).client(0).test
    assert np.array_equal(few.x[:, 0], data.digits.test_x[:50])  # the first of MNIST
