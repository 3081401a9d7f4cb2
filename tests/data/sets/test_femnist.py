"""FEMNIST: the same writers and images, whichever form they come in."""

import json

import h5py
import numpy as np
import pytest
import torch

from e2fl.data.clients import TEST, TRAIN, UNDECIDED
from e2fl.data.sets.femnist import DEVIATION, MEAN, Femnist, convert, read
from e2fl.errors import ConfigError, DataError

PARTIAL = "femnist/femnist_leaf_partial.npz"


def writers(count=4):
    """Made-up writers with 3, 5, 7, ... images: white with a dark stroke; and their labels."""
    rng = np.random.default_rng(0)
    made = {}
    for number in range(count):
        x = np.ones((3 + 2 * number, 28, 28))
        x[:, 10:18, 12:15] = rng.integers(0, 100, (len(x), 8, 3)) / 255
        made[f"f{number:04}_00"] = (x, rng.integers(0, 62, len(x)))
    return made


def leaf_file(path, made):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        name: {"x": x.reshape(len(x), -1).tolist(), "y": y.tolist()}
        for name, (x, y) in made.items()
    }
    path.write_text(json.dumps({"users": list(data), "user_data": data}))


def part(made, rows):
    return {name: (x[rows], y[rows]) for name, (x, y) in made.items()}


@pytest.fixture
def leaf(tmp_path):
    """A LEAF folder that has been split, over two files each."""
    made = writers()
    for word, rows in (("train", slice(1, None)), ("test", slice(0, 1))):
        cut = list(part(made, rows).items())
        for number, some in enumerate((cut[:2], cut[2:])):
            name = f"all_data_{number}_niid_0_keep_0_{word}_9.json"
            leaf_file(tmp_path / "leaf" / word / name, dict(some))
    return tmp_path / "leaf", made


def names(data):
    return [data.client_name(number) for number in data.population.ids]


def same_clients(left, right):
    assert names(left) == names(right)
    for number in left.population.ids:
        for word in ("train", "test"):
            mine, yours = getattr(left.client(number), word), getattr(right.client(number), word)
            assert np.array_equal(mine.inputs().numpy(), yours.inputs().numpy())
            assert np.array_equal(mine.y, yours.y)


def test_leaf_json_keeps_its_own_split_and_turns_ink_to_one(leaf):
    folder, made = leaf
    data = Femnist(path=str(folder), scaling="ink")
    assert names(data) == list(made)
    x, y = made["f0002_00"]
    client = data.client(2)
    assert client.test.y.tolist() == y[:1].tolist()
    assert client.train.y.tolist() == y[1:].tolist()
    assert client.train.inputs().numpy()[:, 0] == pytest.approx(1 - x[1:], abs=1e-6)
    assert data.population.groups == 0
    assert client.group is None
    standardised = Femnist(path=str(folder)).client(2).train.inputs()
    assert torch.allclose(standardised, (client.train.inputs() - MEAN) / DEVIATION, atol=1e-5)


def test_hdf5_of_tensorflow_federated_and_a_converted_file_give_the_same_clients(leaf, tmp_path):
    folder, made = leaf
    h5 = tmp_path / "h5"
    h5.mkdir()
    for word, rows in (("train", slice(1, None)), ("test", slice(0, 1))):
        with h5py.File(h5 / f"fed_emnist_{word}.h5", "w") as file:
            for writer, (x, y) in part(made, rows).items():
                group = file.create_group(f"examples/{writer}")
                group["pixels"], group["label"] = x.astype(np.float32), y.astype(np.int32)
    same_clients(Femnist(path=str(h5)), Femnist(path=str(folder)))
    for source in (folder, h5):
        target = tmp_path / f"{source.name}.npz"
        assert convert(source, target) == sum(len(y) for _, y in made.values())
        same_clients(Femnist(path=str(target)), Femnist(path=str(folder)))
    convert(folder, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "leaf.npz").read_bytes()
    with pytest.raises(DataError, match="not exist yet"):
        convert(folder, tmp_path / "leaf.npz")


def test_a_source_without_split_gives_each_writer_a_tenth_to_test_with(tmp_path):
    made = writers(6)
    made["one"] = (made["f0000_00"][0][:1], np.array([3]))
    leaf_file(tmp_path / "all_data_0.json", made)
    data, other = Femnist(path=str(tmp_path)), Femnist(path=str(tmp_path), seed=1)
    assert set(read(tmp_path).split.tolist()) == {UNDECIDED}
    for number in data.population.ids:
        client = data.client(number)
        assert len(client.test) == max(1, round((len(client.train) + len(client.test)) / 10))
    assert "one" not in names(data)  # a single image cannot train and be tested
    assert data.unseen() == {}
    tests = [(data.client(n).test.x, other.client(n).test.x) for n in data.population.ids]
    assert not all(np.array_equal(one, two) for one, two in tests)


def test_writers_are_chosen_by_their_images(leaf):
    folder, made = leaf  # 3, 5, 7 and 9 images
    data = Femnist(path=str(folder), min_samples=6)
    assert names(data) == list(made)[2:]
    assert data.unseen() == {}
    assert names(Femnist(path=str(folder), writers=2)) == ["f0002_00", "f0003_00"]
    with pytest.raises(DataError, match="no writer has 10 images"):
        Femnist(path=str(folder), min_samples=10).population  # noqa: B018


@pytest.mark.parametrize("folder", ["all_data", "data/all_data", "train", "data/train", "."])
def test_leafs_folders_are_known_from_outside_and_from_inside(tmp_path, folder):
    leaf_file(tmp_path / folder / "all_data_0.json", writers())
    assert len(read(tmp_path).names) == 4


def test_a_black_background_stays_as_it_is(tmp_path):
    leaf_file(tmp_path / "all_data_0.json", {n: (1 - x, y) for n, (x, y) in writers().items()})
    data = Femnist(path=str(tmp_path), scaling="ink")
    x = np.concatenate([data.client(n).train.inputs().numpy() for n in range(4)])
    assert x.mean() < 0.2
    assert x[:, :, 0].max() == 0


def test_a_writer_without_images_does_not_shift_those_of_others(tmp_path):
    made = writers(3)
    leaf_file(tmp_path / "all_data_1.json", made)
    (tmp_path / "all_data_0.json").write_text('{"user_data": {"none": {"x": [], "y": []}}}')
    images = read(tmp_path)
    for name, (x, y) in made.items():
        own = images.writer == images.names.index(name)
        assert np.array_equal(images.x[own], np.rint(x * 255))
        assert np.array_equal(images.y[own], y)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (1.0, 62, "writer 'f1'"),
        (1.5, 1, "writer 'f1'"),
        (-1, 1, "writer 'f1'"),
        ([], 1, r"all_data_0\.json is damaged"),
    ],
)
def test_impossible_pixels_and_labels_are_refused(tmp_path, x, y, reason):
    row = x if x == [] else [x] * 784
    data = {"user_data": {"f1": {"x": [row], "y": [y]}}}
    (tmp_path / "all_data_0.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=reason):
        read(tmp_path)


def test_absent_files_and_impossible_settings_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"femnist\.npz.*fed_emnist_train\.h5.*all_data_\*\.json"):
        Femnist(dir=str(tmp_path)).population  # noqa: B018
    with pytest.raises(DataError, match="no file or folder"):
        Femnist(path=str(tmp_path / "absent")).population  # noqa: B018
    for settings in ({"writers": 0}, {"scaling": "raw"}, {"min_samples": 1}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Femnist(**settings)
    np.savez(
        tmp_path / "odd.npz", x=np.zeros((3, 28, 27)), y=[0] * 3, writer=0, split=0, writer_ids=0
    )
    with pytest.raises(DataError, match=r"odd\.npz: x must be bytes"):
        read(tmp_path / "odd.npz")


@pytest.mark.parametrize("name", ["all_data_0.json", "fed_emnist_train.h5", "femnist.npz"])
def test_a_damaged_file_ends_in_one_line(tmp_path, name):
    (tmp_path / name).write_text('{"user_data": {"a": {"x": [')
    with pytest.raises(DataError, match=name) as raised:
        read(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_the_partial_femnist_has_300_writers_240_others_and_the_sources_split(real_data):
    data = Femnist(path=str(real_data / PARTIAL))
    assert data.about() == {
        "source": "femnist_leaf_partial.npz",
        "scaling": "standardised",
        "train_images": 41199,
        "test_images": 4759,
        "writers": 300,
        "unseen_writers": 240,
    }
    x = torch.cat([data.client(number).train.inputs() for number in data.population.ids])
    assert float(x.mean()) == pytest.approx(0, abs=2e-3)
    assert float(x.std()) == pytest.approx(1, abs=2e-3)
    assert float(x[:200, 0, 0].max()) == pytest.approx(-0.2345, abs=1e-3)  # no ink at the edge
    unseen = data.unseen()
    assert min(unseen) == 300
    assert sum(len(client.train) + len(client.test) for client in unseen.values()) == 7086
    # Half of an unseen client's images serve to find its group; two writers have only one image.
    assert all(abs(len(client.train) - len(client.test)) <= 1 for client in unseen.values())
    assert sum(len(client.train) == 0 for client in unseen.values()) == 2
    assert data.client_name(300) not in names(data)
    images = read(real_data / PARTIAL)
    rows = np.flatnonzero(images.writer == images.names.index(data.client_name(7)))
    assert len(data.client(7).train) == (images.split[rows] == TRAIN).sum()
    assert np.array_equal(data.client(7).test.x[:, 0], images.x[rows[images.split[rows] == TEST]])
