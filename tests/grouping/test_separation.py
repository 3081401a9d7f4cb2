"""How well groups are separated: by hand, and against clouds without groups."""

import numpy as np
import pytest

from e2fl.grouping.separation import blur, cloud, pieces, silhouette
from e2fl.runs.group_survey import MAX_RELATIVE_BLUR


def test_silhouette_by_hand():
    # Points 0 and 1, and 10: own distances 1 and 1, others 10 and 9; the third is alone and counts
    # 0.
    distances = np.array([[0, 1, 10], [1, 0, 9], [10, 9, 0]], dtype=float)
    assert silhouette(distances, np.array([4, 4, 7])) == pytest.approx((9 / 10 + 8 / 9 + 0) / 3)
    assert silhouette(distances, np.array([1, 1, 1])) == 0


def test_blur_by_hand():
    places = np.array([0.0, 2, 10, 12])
    distances = (places[:, None] - places) ** 2
    # Two in a group are 4 apart, and their middles (100 + 144 + 64 + 100) / 4 - 4 / 2 - 4 / 2 = 98
    # from each other. Client 0: own 4 - 4 / 2 = 2, next (100 + 144) / 2 - 4 / 2 = 120; (120 - 2) /
    # 98 is beyond the middle, so 0. Client 1: own 2, next (64 + 100) / 2 - 4 / 2 = 80; (80 - 2) /
    # 98 of the way from the border to the middle.
    assert blur(distances, np.array([0, 0, 1, 1])) == pytest.approx((1 - 78 / 98) / 2)
    assert blur(distances, np.array([0, 1, 0, 1])) == 1  # no client is nearer to its own group
    assert blur(distances, np.array([5, 5, 5, 5])) == 1


def test_a_client_alone_in_its_group_is_all_blur():
    distances = np.array([[0, 1, 10], [1, 0, 10], [10, 10, 0]], dtype=float)
    # Clients 0 and 1 stand in the middle of their group, as far as the distances tell; client 2 is
    # alone.
    assert blur(distances, np.array([0, 0, 1])) == pytest.approx(1 / 3)


def points(sizes, seed, apart=3.0, edges=400):
    """Squared distances between points around the middle of their group, with noise."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    middles = apart * rng.standard_normal((len(sizes), edges)) / np.sqrt(edges)
    some = middles[group] + rng.standard_normal((len(group), edges)) / np.sqrt(edges)
    return ((some[:, None] - some) ** 2).sum(axis=-1)


def spread(distances):
    middle = np.eye(len(distances)) - 1 / len(distances)
    return np.linalg.eigvalsh(-middle @ distances @ middle / 2)


def test_a_cloud_is_as_wide_in_all_directions_as_what_it_stands_for():
    distances = points([5, 20], seed=0)
    drawn = cloud(distances, np.random.default_rng(0))
    np.testing.assert_allclose(spread(drawn), spread(distances), atol=1e-9)
    assert drawn.sum() == pytest.approx(distances.sum())
    assert not np.allclose(drawn, distances)


def sharpness(distances, count):
    """The blur of so many pieces, as a fraction of what it is for clouds."""
    clouds = [cloud(distances, np.random.default_rng(number)) for number in range(5)]
    found, *drawn = (blur(some, pieces(some, count)) for some in (distances, *clouds))
    return found / np.mean(drawn)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(12, 12), (3, 40), (3, 5, 30), (4, 6, 8, 10, 12)])
def test_groups_are_sharper_than_a_cloud(sizes, seed):
    assert sharpness(points(sizes, seed), len(sizes)) < MAX_RELATIVE_BLUR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clients", [16, 40])
def test_pieces_of_a_cloud_are_as_blurred_as_a_cloud(clients, seed):
    rng = np.random.default_rng(seed)
    some = rng.standard_normal((clients, 200)) * np.linspace(1, 0.1, 200)
    some[:, 0] *= 8  # clients differ most in one direction, without groups
    distances = ((some[:, None] - some) ** 2).sum(axis=-1)
    assert min(sharpness(distances, count) for count in (2, 3, 4)) > MAX_RELATIVE_BLUR
