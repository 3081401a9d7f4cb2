"""MNIST by writer, from QMNIST's extended labels."""

import pytest

from e2fl.data.sets.mnist import MNISTWriters
from e2fl.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def data(real_data):
    return MNISTWriters(dir=str(real_data))


def test_539_writers_train_and_297_others_are_unseen(data):
    counts = {"train_images": 54003, "test_images": 5997, "writers": 539, "unseen_writers": 297}
    assert data.about() == counts
    names = {data.client_name(number) for number in data.population.ids}
    assert not names & {data.client_name(number) for number in data.unseen()}
    assert sum(len(client.train) + len(client.test) for client in data.unseen().values()) == 10_000
    assert all(len(client.train) and len(client.test) for client in data.unseen().values())


def test_settings_are_checked_and_missing_files_named(tmp_path):
    for settings in ({"test_share": 1.0}, {"writers": 0}, {"min_samples": 1}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            MNISTWriters(**settings)
    with pytest.raises(DataError, match=r"is missing; run `e2fl data get mnist`"):
        MNISTWriters(dir=str(tmp_path)).population  # noqa: B018
