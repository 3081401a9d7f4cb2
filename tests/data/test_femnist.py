"""FEMNIST: the same writers and images, whichever form they come in."""

import json

import numpy as np
import pytest
import torch

from e2fl.data.clients import TEST, TRAIN, UNDECIDED
from e2fl.data.sets.femnist import DEVIATION, MEAN, Femnist, convert, read, read_npz
from e2fl.errors import ConfigError, DataError

RNG = np.random.default_rng(0)


def writers(count=4, seed=0):
    """Made-up writers: white images with a dark stroke, and their labels; the numbers of images differ."""
    rng = np.random.default_rng(seed)
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
    whole = {
        "users": list(data),
        "num_samples": [len(d["y"]) for d in data.values()],
        "user_data": data,
    }
    path.write_text(json.dumps(whole))


@pytest.fixture
def leaf(tmp_path):
    """A LEAF folder that has been split, over two files each."""
    made = writers()
    for part, rows in (("train", slice(1, None)), ("test", slice(0, 1))):
        cut = {name: (x[rows], y[rows]) for name, (x, y) in made.items()}
        names = list(cut)
        for number, some in enumerate((names[:2], names[2:])):
            leaf_file(
                tmp_path / "leaf" / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json",
                {n: cut[n] for n in some},
            )
    return tmp_path / "leaf", made


def same_clients(left, right):
    assert [left.client_name(n) for n in left.population.ids] == [
        right.client_name(n) for n in right.population.ids
    ]
    for number in left.population.ids:
        for part in ("train", "test"):
            mine, yours = getattr(left.client(number), part), getattr(right.client(number), part)
            assert np.array_equal(mine.inputs().numpy(), yours.inputs().numpy())
            assert np.array_equal(mine.y, yours.y)


def test_leaf_json_keeps_its_own_split_and_turns_ink_to_one(leaf):
    folder, made = leaf
    data = Femnist(path=str(folder), scaling="ink")
    assert [data.client_name(number) for number in data.population.ids] == list(made)
    x, y = made["f0002_00"]
    client = data.client(2)
    assert client.test.y.tolist() == y[:1].tolist()
    assert client.train.y.tolist() == y[1:].tolist()
    assert client.train.inputs().numpy()[:, 0] == pytest.approx(1 - x[1:], abs=1e-6)
    assert data.population.groups == 0
    assert client.group is None


def test_hdf5_of_tensorflow_federated_gives_the_same_clients(leaf, tmp_path):
    h5py = pytest.importorskip("h5py")
    folder, made = leaf
    h5 = tmp_path / "h5"
    h5.mkdir()
    for name, rows in (
        ("fed_emnist_train.h5", slice(1, None)),
        ("fed_emnist_test.h5", slice(0, 1)),
    ):
        with h5py.File(h5 / name, "w") as file:
            for writer, (x, y) in made.items():
                group = file.create_group(f"examples/{writer}")
                group["pixels"], group["label"] = (
                    x[rows].astype(np.float32),
                    y[rows].astype(np.int32),
                )
    same_clients(Femnist(path=str(h5)), Femnist(path=str(folder)))
    convert(h5, tmp_path / "femnist.npz")
    same_clients(Femnist(path=str(tmp_path / "femnist.npz")), Femnist(path=str(folder)))


def test_converted_leaf_gives_the_same_clients_and_equal_files(leaf, tmp_path):
    folder, made = leaf
    images = convert(folder, tmp_path / "a.npz")
    convert(folder, tmp_path / "b.npz")
    assert images == sum(len(y) for _, y in made.values())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    same_clients(Femnist(path=str(tmp_path / "a.npz")), Femnist(path=str(folder)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz", "leaf"]
    with pytest.raises(DataError, match="not exist yet"):
        convert(folder, tmp_path / "a.npz")


def test_a_source_without_split_gives_each_writer_a_tenth_to_test_with(tmp_path):
    made = writers(6)
    made["one"] = (made["f0000_00"][0][:1], np.array([3]))
    leaf_file(tmp_path / "all_data_0.json", made)
    data = Femnist(path=str(tmp_path))
    assert set(read(tmp_path).split.tolist()) == {UNDECIDED}
    for number in data.population.ids:
        client = data.client(number)
        assert len(client.test) == max(1, round((len(client.train) + len(client.test)) / 10))
    # Who has a single image cannot train and be tested.
    assert "one" not in {data.client_name(number) for number in data.population.ids}
    assert data.unseen() == {}
    other = Femnist(path=str(tmp_path), seed=1)
    assert any(
        not np.array_equal(data.client(n).test.x, other.client(n).test.x)
        for n in data.population.ids
    )


def test_writers_with_too_few_images_are_left_out(leaf):
    folder, made = leaf  # 3, 5, 7 and 9 images
    data = Femnist(path=str(folder), min_samples=6)
    assert [data.client_name(number) for number in data.population.ids] == list(made)[2:]
    assert data.unseen() == {}
    with pytest.raises(DataError, match="no writer has 10 images"):
        Femnist(path=str(folder), min_samples=10).population  # noqa: B018


@pytest.mark.parametrize("place", ["all_data", "data/all_data", "train", "data/train", "."])
def test_leafs_folders_are_known_from_outside_and_from_inside(tmp_path, place):
    leaf_file(tmp_path / place / "all_data_0.json", writers())
    assert len(read(tmp_path).names) == 4


def test_the_writers_with_most_images_are_kept(leaf):
    folder, _ = leaf
    data = Femnist(path=str(folder), writers=2)
    assert [data.client_name(number) for number in data.population.ids] == ["f0002_00", "f0003_00"]


def test_a_black_background_stays_as_it_is(tmp_path):
    made = {name: (1 - x, y) for name, (x, y) in writers().items()}
    leaf_file(tmp_path / "all_data_0.json", made)
    data = Femnist(path=str(tmp_path), scaling="ink")
    x = np.concatenate([data.client(n).train.inputs().numpy() for n in range(4)])
    assert x.mean() < 0.2
    assert x[:, :, 0].max() == 0


def test_inputs_are_standardised_unless_ink_is_asked_for(leaf):
    folder, _ = leaf
    plain, ink = Femnist(path=str(folder)), Femnist(path=str(folder), scaling="ink")
    for number in plain.population.ids:
        expected = (ink.client(number).train.inputs() - MEAN) / DEVIATION
        assert torch.allclose(plain.client(number).train.inputs(), expected, atol=1e-5)
    with pytest.raises(ConfigError, match=r"data\.scaling is 'standardised' or 'ink', not 'raw'"):
        Femnist(scaling="raw")


def test_the_training_images_of_the_partial_femnist_have_mean_0_and_deviation_1(real_data):
    data = Femnist(path=str(real_data / "femnist" / "femnist_leaf_partial.npz"))
    x = torch.cat([data.client(number).train.inputs() for number in data.population.ids])
    assert float(x.mean()) == pytest.approx(0, abs=2e-3)
    assert float(x.std()) == pytest.approx(1, abs=2e-3)


def test_a_writer_without_pixels_does_not_shift_the_images_of_others(tmp_path):
    made = writers(3)
    leaf_file(tmp_path / "all_data_1.json", made)
    (tmp_path / "all_data_0.json").write_text('{"user_data": {"none": {"x": [], "y": []}}}')
    images = read(tmp_path)
    for name, (x, y) in made.items():
        own = images.writer == images.names.index(name)
        assert np.array_equal(images.x[own], np.rint(x.reshape(-1, 28, 28) * 255))
        assert np.array_equal(images.y[own], y)
    (tmp_path / "all_data_0.json").write_text(
        '{"user_data": {"none": {"x": [[], []], "y": [0, 1]}}}'
    )
    with pytest.raises(DataError, match=r"all_data_0\.json is damaged"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"y": 62}, "from 0 to 61"), ({"x": 1.5}, "0 to 1"), ({"x": -1}, "0 to 1")],
)
def test_impossible_pixels_and_labels_are_refused(tmp_path, change, reason):
    x, y = np.ones((2, 784)).tolist(), [1, 2]
    if "x" in change:
        x[1][5] = change["x"]
    if "y" in change:
        y[1] = change["y"]
    (tmp_path / "all_data_0.json").write_text(json.dumps({"user_data": {"f1": {"x": x, "y": y}}}))
    with pytest.raises(DataError, match=f"{reason}|writer 'f1'"):
        read(tmp_path)


def test_an_npz_that_contradicts_itself_is_refused(tmp_path):
    good = {
        "x": np.zeros((3, 28, 28), dtype=np.uint8),
        "y": np.zeros(3, dtype=np.uint8),
        "writer": np.zeros(3, dtype=np.uint16),
        "split": np.zeros(3, dtype=np.uint8),
        "writer_ids": np.array(["a"]),
    }
    for name, bad in (
        ("x", np.zeros((3, 28, 27), dtype=np.uint8)),
        ("y", np.array([0, 1, 99])),
        ("writer", np.array([0, 1, 0])),
        ("split", np.array([0, 1])),
    ):
        np.savez(tmp_path / f"{name}.npz", **{**good, name: bad})
        with pytest.raises(DataError, match=name):
            read_npz(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "none.npz", **{name: values[:0] for name, values in good.items()})
    with pytest.raises(DataError, match=r"none\.npz: x must be bytes"):
        Femnist(path=str(tmp_path / "none.npz")).population  # noqa: B018


def test_a_folder_without_femnist_says_what_to_put_there(tmp_path):
    with pytest.raises(
        DataError, match=r"put there femnist\.npz.*fed_emnist_train\.h5.*all_data_\*\.json"
    ):
        Femnist(dir=str(tmp_path)).population  # noqa: B018
    with pytest.raises(DataError, match="no file or folder"):
        Femnist(path=str(tmp_path / "absent")).population  # noqa: B018
    with pytest.raises(ConfigError, match="writers"):
        Femnist(writers=0)


def test_the_partial_femnist_loads_with_its_300_writers_and_240_newcomers(real_data):
    data = Femnist(path=str(real_data / "femnist" / "femnist_leaf_partial.npz"))
    first = data.client(0)
    assert data.about() == {
        "source": "femnist_leaf_partial.npz",
        "scaling": "standardised",
        "train_images": 41199,
        "test_images": 4759,
        "writers": 300,
        "unseen_writers": 240,
    }
    assert first.train.inputs().shape[1:] == (1, 28, 28)
    assert float(first.train.inputs()[:, 0, 0].max()) == pytest.approx(
        -0.2345, abs=1e-3
    )  # no ink at the edge
    unseen = data.unseen()
    assert len(unseen) == 240
    assert sum(len(client.train) + len(client.test) for client in unseen.values()) == 7086
    # Half of an unseen client's images serve to find its group; two writers have only one image.
    assert all(abs(len(client.train) - len(client.test)) <= 1 for client in unseen.values())
    assert sum(len(client.train) == 0 for client in unseen.values()) == 2
    assert min(unseen) == 300
    assert data.client_name(300) not in {data.client_name(number) for number in data.population.ids}


def test_the_split_of_the_partial_femnist_is_the_sources_own(real_data):
    path = real_data / "femnist" / "femnist_leaf_partial.npz"
    images, data = read_npz(path), Femnist(path=str(path))
    name = data.client_name(7)
    rows = np.flatnonzero(images.writer == images.names.index(name))
    assert len(data.client(7).train) == (images.split[rows] == TRAIN).sum()
    assert np.array_equal(data.client(7).test.x[:, 0], images.x[rows[images.split[rows] == TEST]])


@pytest.mark.parametrize("name", ["all_data_0.json", "fed_emnist_train.h5", "femnist.npz"])
def test_a_damaged_file_ends_in_one_line(tmp_path, name):
    (tmp_path / name).write_text('{"user_data": {"a": {"x": [')
    with pytest.raises(DataError, match=name) as raised:
        read(tmp_path / name)
    assert "\n" not in str(raised.value)
