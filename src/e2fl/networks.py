"""The networks that come with the package.

To add one: write a function `(inputs, classes, **settings) -> nn.Module` and one line in `MODELS`.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from torch import nn
from typing_extensions import Doc

from e2fl.errors import ConfigError


def _require_sizes(name: str, sizes: tuple[int, ...]) -> None:
    if min(sizes, default=1) < 1:
        raise ConfigError(f"model.{name} must be at least 1, not {list(sizes)}")


def lenet(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[tuple[int, int], Doc("of the two convolutions")] = (32, 64),
    hidden: Annotated[int, Doc("units of the first linear layer")] = 128,
) -> nn.Module:
    """Two 3x3 convolutions, one 2x2 max-pool, two linear layers; no biases."""
    if len(inputs) != 3 or inputs[0] < 1 or min(inputs[1:]) < 2:
        raise ConfigError(
            "model 'lenet' needs images (channels, height, width) of at least 2 x 2 pixels, not "
            f"inputs of shape {inputs}"
        )
    _require_sizes("channels", channels)
    _require_sizes("hidden", (hidden,))
    depth, height, width = inputs
    first, second = channels
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(depth, first, 3, padding=1, bias=False),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(first, second, 3, padding=1, bias=False),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(second * (height // 2) * (width // 2), hidden, bias=False),
            relu3=nn.ReLU(),
            fc2=nn.Linear(hidden, classes, bias=False),
        )
    )


def mlp(
    inputs: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[tuple[int, ...], Doc("units of each hidden layer")] = (1024, 1024),
) -> nn.Module:
    """Linear layers with ReLU between; no biases."""
    _require_sizes("hidden", hidden)
    if math.prod(inputs) < 1:
        raise ConfigError(f"model 'mlp' needs at least one input, not inputs of shape {inputs}")
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    sizes = (math.prod(inputs), *hidden)
    for number, (wide, narrow) in enumerate(itertools.pairwise(sizes), start=1):
        layers[f"fc{number}"] = nn.Linear(wide, narrow, bias=False)
        layers[f"relu{number}"] = nn.ReLU()
    layers[f"fc{len(sizes)}"] = nn.Linear(sizes[-1], classes, bias=False)
    return nn.Sequential(OrderedDict(layers))


def lenet_small(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet at a quarter of the width, for demonstrations and tests."""
    return lenet(inputs, classes, channels=(8, 16), hidden=32)


MODELS: Mapping[str, Callable[..., Any]] = {"lenet": lenet, "lenet_small": lenet_small, "mlp": mlp}
