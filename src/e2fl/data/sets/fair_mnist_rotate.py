"""FairMNISTRotate: groups of very different sizes, each with MNIST rotated by its own angle.

The data set of the E2FL paper, as far as the paper describes it: 1000 clients in 10 groups, the
same number of examples for each client. Each group splits its own rotated copy of the training
images among its clients, without replacement; every client is tested on all test images, rotated by
the angle of its group. Where the paper gives no number (angles, most group sizes, examples of a
client), the defaults are ours and can be changed.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from typing_extensions import Doc

from e2fl.data.federated import (
    Client,
    ClientId,
    Directory,
    Examples,
    FederatedData,
    GroupId,
    Population,
    check_settings,
)
from e2fl.data.partition import apportion
from e2fl.data.sets.mnist import SCALE, SHIFT, Digits, bundled, standard
from e2fl.errors import require_setting
from e2fl.randomness import stream

SIZES = (8, 16, 75, 170, 240, 257, 150, 60, 20, 4)  # clients of G1 to G10, of 1000
SIDE = 28
BLOCK = 1000  # images that are rotated together
CENTRE = (SIDE - 1) / 2


@dataclass(frozen=True, eq=False)
class FairMNISTRotate(FederatedData):
    """FairMNISTRotate: groups of very different sizes, each with MNIST rotated by its own angle.

    `source` is MNIST or the bundled subset, which needs no download. `clients` or `group_sizes`
    sets the sizes of the groups, `angle_step` the rotations, `samples_per_client` the training
    images of a client.
    """

    seed: int = 0
    source: Annotated[
        Literal["mnist", "bundled"], Doc("or bundled: 5,000 images, no download needed")
    ] = "mnist"
    dir: Directory = None
    clients: Annotated[int | None, Doc("default: 1000, or 100 if bundled")] = None
    group_sizes: Annotated[
        tuple[int, ...] | None, Doc("default: as in the paper, scaled to the number of clients")
    ] = None
    angle_step: Annotated[
        float, Doc("degrees between groups, counter-clockwise; the first is upright")
    ] = 36.0
    samples_per_client: Annotated[
        int | None, Doc("default: as many as the largest group allows")
    ] = None
    test_images: Annotated[
        int | None, Doc("default: all; fewer: the first of MNIST, or evenly spaced if bundled")
    ] = None

    samples: int = field(init=False)  # training images of a client
    _tests: dict[GroupId, Examples] = field(default_factory=dict, init=False, repr=False)
    _orders: dict[GroupId, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    name = "fair_mnist_rotate"
    classes = 10
    shape = (1, SIDE, SIDE)

    def __post_init__(self) -> None:
        check_settings(self)
        adding_up = min(self.sizes, default=0) >= 1 and self.clients in (None, sum(self.sizes))
        rule = "at least 1 each, and add up to data.clients"
        require_setting(adding_up, "data.group_sizes", rule, self.sizes)
        require_setting(
            math.isfinite(self.angle_step), "data.angle_step", "degrees", self.angle_step
        )
        most = len(self.digits.train_y) // max(self.sizes)  # images for a client of the largest
        share = self.samples_per_client or most
        require_setting(share <= most, "data.samples_per_client", f"1 to {most}", share)
        vars(self)["samples"] = share
        tested = len(self.digits.test_y)
        count = self.test_images or tested
        require_setting(count <= tested, "data.test_images", f"1 to {tested}", count)

    @cached_property
    def digits(self) -> Digits:
        return bundled() if self.source == "bundled" else standard(self.dir)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Clients of each group."""
        if self.group_sizes is not None:
            return tuple(self.group_sizes)
        usual = 100 if self.source == "bundled" else 1000
        return group_sizes(usual if self.clients is None else self.clients)

    @cached_property
    def turns(self) -> tuple[float, ...]:
        """The angle of each group."""
        return tuple(self.angle_step * group for group in range(len(self.sizes)))

    @cached_property
    def group_names(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on the settings
        return tuple(f"G{group + 1}" for group in range(len(self.sizes)))

    @cached_property
    def population(self) -> Population:  # type: ignore[override]  # as above
        groups = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return Population(dict(enumerate(groups.tolist())), len(self.sizes))

    def client(self, client_id: ClientId) -> Client:
        group = self.population.declared[client_id]
        assert group is not None
        return Client(client_id, self._train(client_id, group), self._test(group), group)

    def train_sizes(self) -> tuple[int, ...]:
        return (self.samples,) * len(self.population)

    def about(self) -> dict[str, object]:
        return {
            "source": self.source,
            "samples_per_client": self.samples,
            "test_images": len(self._test(0)),
            "group_sizes": list(self.sizes),
            "angles": list(self.turns),
        }

    def _train(self, client_id: ClientId, group: GroupId) -> Examples:
        if group not in self._orders:
            draw = stream(self.seed, "deal", group)
            self._orders[group] = draw.permutation(len(self.digits.train_y))
        start = (client_id - sum(self.sizes[:group])) * self.samples
        rows = self._orders[group][start : start + self.samples]
        return _examples(self.digits.train_x[rows], self.digits.train_y[rows], self.turns[group])

    def _test(self, group: GroupId) -> Examples:
        """Return test images: the first of MNIST; of the bundled ones, some of each digit."""
        if group not in self._tests:
            x, y = self.digits.test_x, self.digits.test_y
            count = self.test_images or len(y)
            rows = np.arange(count) * (len(y) if self.source == "bundled" else count) // count
            # If two threads get here at once, both take the object of the first: it is shared.
            self._tests.setdefault(group, _examples(x[rows], y[rows], self.turns[group]))
        return self._tests[group]


def _examples(x: NDArray[np.uint8], y: NDArray[np.int64], degrees: float) -> Examples:
    return Examples(rotated(x, degrees), y, None, SCALE, SHIFT)


def group_sizes(clients: int) -> tuple[int, ...]:
    """Return the paper's group sizes in the same proportions, each at least 1."""
    least = len(SIZES)
    require_setting(clients >= least, "data.clients", f"at least {least}", clients)
    return apportion(SIZES, clients)


def rotated(images: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    """Return images [n, 28, 28] rotated counter-clockwise, bilinear, as [n, 1, 28, 28]."""
    if degrees % 360 == 0:
        return images[:, None]
    rotation = _rotation(degrees)
    turned = np.empty((len(images), 1, SIDE, SIDE), np.uint8)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK]
        pixels = block.reshape(-1, SIDE * SIDE).T.astype(np.float32, order="C")
        turned[start : start + BLOCK] = np.rint(rotation @ pixels).T.reshape(-1, 1, SIDE, SIDE)
    return turned


def _rotation(degrees: float) -> scipy.sparse.csr_array:
    """Return the linear map [pixels, pixels] that rotates an image."""
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    # Where each pixel of the rotated image comes from: row and column.
    origins = turn @ (np.indices((SIDE, SIDE)).reshape(2, -1) - CENTRE) + CENTRE
    pixels = np.eye(SIDE * SIDE).reshape(-1, SIDE, SIDE)
    weights = [map_coordinates(one, origins, order=1, mode="grid-constant") for one in pixels]
    matrix = np.stack(weights, axis=1)
    return scipy.sparse.csr_array(np.where(matrix > 1e-9, matrix, 0).astype(np.float32))
