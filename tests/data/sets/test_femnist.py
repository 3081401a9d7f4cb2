"""FEMNIST: writers and images from an .npz."""

import numpy as np
import pytest
import torch

from e2fl.data.federated import TEST, TRAIN, UNDECIDED
from e2fl.data.sets.femnist import DEVIATION, MEAN, Femnist, read
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


def npz_file(path, made, split):
    """Write all images with one split, or, if it is None, the first of each writer for testing."""
    counts = [len(y) for _, y in made.values()]
    own = np.concatenate([[TEST] + [TRAIN] * (count - 1) for count in counts])
    np.savez(
        path,
        x=np.rint(np.concatenate([x for x, _ in made.values()]) * 255).astype(np.uint8),
        y=np.concatenate([y for _, y in made.values()]),
        writer=np.repeat(np.arange(len(made)), counts),
        split=own if split is None else np.full(sum(counts), split),
        writer_ids=np.array(list(made)),
    )
    return path


@pytest.fixture
def source(tmp_path):
    made = writers()
    return str(npz_file(tmp_path / "femnist.npz", made, None)), made


def names(data):
    return [data.client_name(number) for number in data.population.ids]


def test_the_sources_split_is_kept_and_ink_turned_to_one(source):
    path, made = source
    data = Femnist(path=path, scaling="ink")
    assert names(data) == list(made)
    x, y = made["f0002_00"]
    client = data.client(2)
    assert client.test.y.tolist() == y[:1].tolist()
    assert client.train.y.tolist() == y[1:].tolist()
    assert client.train.inputs().numpy()[:, 0] == pytest.approx(1 - x[1:], abs=1e-6)
    assert (data.population.groups, client.group) == (0, None)
    standardised = Femnist(path=path).client(2).train.inputs()
    assert torch.allclose(standardised, (client.train.inputs() - MEAN) / DEVIATION, atol=1e-5)


def test_a_source_without_split_gives_each_writer_a_tenth_to_test_with(tmp_path):
    made = writers(6)
    made["one"] = (made["f0000_00"][0][:1], np.array([3]))
    path = str(npz_file(tmp_path / "a.npz", made, UNDECIDED))
    data, other = Femnist(path=path), Femnist(path=path, seed=1)
    for number in data.population.ids:
        client = data.client(number)
        assert len(client.test) == max(1, round((len(client.train) + len(client.test)) / 10))
    assert "one" not in names(data)  # a single image cannot train and be tested
    assert data.unseen() == {}
    tests = [(data.client(n).test.x, other.client(n).test.x) for n in data.population.ids]
    assert not all(np.array_equal(one, two) for one, two in tests)


def test_writers_are_chosen_by_their_images(source):
    path, made = source  # 3, 5, 7 and 9 images
    data = Femnist(path=path, min_samples=6)
    assert names(data) == list(made)[2:]
    assert data.unseen() == {}
    assert names(Femnist(path=path, writers=2)) == ["f0002_00", "f0003_00"]
    with pytest.raises(DataError, match="no writer has 10 images"):
        Femnist(path=path, min_samples=10).population  # noqa: B018


def test_what_is_absent_damaged_or_impossible_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"femnist\.npz.*docs/data\.md"):
        Femnist(dir=str(tmp_path)).population  # noqa: B018
    with pytest.raises(DataError, match="no file or folder"):
        Femnist(path=str(tmp_path / "absent")).population  # noqa: B018
    for settings in ({"writers": 0}, {"scaling": "raw"}, {"min_samples": 1}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Femnist(**settings)
    path, good = tmp_path / "odd.npz", {"x": np.zeros((3, 28, 28), np.uint8), "y": [0] * 3}
    for change in ({"x": np.zeros((3, 28, 27))}, {"x": np.zeros((3, 28, 28))}, {"y": [1, 2, 62]}):
        np.savez(path, **good | change, writer=0, split=0, writer_ids=0)
        with pytest.raises(DataError, match=r"odd\.npz: x must be bytes"):
            read(path)
    path.write_text("nonsense")
    with pytest.raises(DataError, match=r"odd\.npz cannot be read"):
        read(path)


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
    x, _, writer, split, ids = read(real_data / PARTIAL)
    rows = np.flatnonzero(writer == ids.tolist().index(data.client_name(7)))
    assert len(data.client(7).train) == (split[rows] == TRAIN).sum()
    assert np.array_equal(data.client(7).test.x[:, 0], x[rows[split[rows] == TEST]])
