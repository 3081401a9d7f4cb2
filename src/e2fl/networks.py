"""The networks that come with the package.

To add one: write a function `(inputs, classes, **settings) -> nn.Module` and one line in `MODELS`.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from torch import Tensor, nn
from typing_extensions import Doc

from e2fl.errors import ConfigError


def _require_sizes(name: str, sizes: tuple[int, ...]) -> None:
    if min(sizes, default=1) < 1:
        raise ConfigError(f"model.{name} must be at least 1, not {list(sizes)}")


def _require_images(name: str, inputs: tuple[int, ...], side: int) -> None:
    if len(inputs) != 3 or inputs[0] < 1 or min(inputs[1:]) < side:
        raise ConfigError(
            f"model '{name}' needs images (channels, height, width) of at least {side} x {side} "
            f"pixels, not inputs of shape {inputs}"
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
        layers[f"fc{number}_relu"] = nn.ReLU()
    layers[f"fc{len(sizes)}"] = nn.Linear(sizes[-1], classes, bias=False)
    return nn.Sequential(OrderedDict(layers))


def _convolutional(
    name: str,
    inputs: tuple[int, ...],
    classes: int,
    blocks: Sequence[tuple[int, ...]],
    hidden: tuple[int, ...],
) -> nn.Module:
    """Return blocks of 3x3 convolutions, each with a 2x2 max-pool at its end, and then an MLP."""
    shrunk = 2 ** len(blocks)
    _require_images(name, inputs, shrunk)
    for channels in blocks:
        _require_sizes("channels", channels)
    layers: dict[str, nn.Module] = {}
    depth, numbers = inputs[0], itertools.count(1)
    for block, channels in enumerate(blocks, start=1):
        for width in channels:
            number = next(numbers)
            layers[f"conv{number}"] = nn.Conv2d(depth, width, 3, padding=1, bias=False)
            layers[f"conv{number}_relu"] = nn.ReLU()
            depth = width
        layers[f"pool{block}"] = nn.MaxPool2d(2)
    outputs = (depth, inputs[1] // shrunk, inputs[2] // shrunk)
    layers |= dict(mlp(outputs, classes, hidden=hidden).named_children())
    return nn.Sequential(OrderedDict(layers))


def lenet(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[tuple[int, int], Doc("of the two convolutions")] = (32, 64),
    hidden: Annotated[int, Doc("units of the first linear layer")] = 128,
) -> nn.Module:
    """Two 3x3 convolutions, one 2x2 max-pool, two linear layers; no biases."""
    return _convolutional("lenet", inputs, classes, [channels], (hidden,))


def conv4(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[tuple[int, int], Doc("of the convolutions of both blocks")] = (64, 128),
    hidden: Annotated[int, Doc("units of the first two linear layers")] = 256,
) -> nn.Module:
    """Conv-4: two blocks of two 3x3 convolutions and a max-pool, three linear layers; no biases."""
    blocks = [(count, count) for count in channels]
    return _convolutional("conv4", inputs, classes, blocks, (hidden, hidden))


class Residual(nn.Module):
    """Layers whose outputs are added to their inputs."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs plus the outputs of the layers."""
        changed: Tensor = x + self.layers(x)
        return changed


def resnet9(
    inputs: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Doc("channels of the first convolution")] = 64,
) -> nn.Module:
    """ResNet-9: eight 3x3 convolutions, group norms without weights, one linear layer."""
    _require_images("resnet9", inputs, 8)
    _require_sizes("width", (width,))

    def block(before: int, after: int, *, pool: bool = False) -> list[nn.Module]:
        norm = nn.GroupNorm(math.gcd(after, 16), after, affine=False)
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return [convolution, norm, nn.ReLU(), *([nn.MaxPool2d(2)] if pool else [])]

    def residual(count: int) -> nn.Module:
        return Residual(*block(count, count), *block(count, count))

    return nn.Sequential(
        *block(inputs[0], width),
        *block(width, 2 * width, pool=True),
        residual(2 * width),
        *block(2 * width, 4 * width, pool=True),
        *block(4 * width, 8 * width, pool=True),
        residual(8 * width),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * width, classes, bias=False),
    )


def lenet_small(inputs: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet at a quarter of the width, for demonstrations and tests."""
    return lenet(inputs, classes, channels=(8, 16), hidden=32)


MODELS: Mapping[str, Callable[..., Any]] = {
    "lenet": lenet,
    "lenet_small": lenet_small,
    "conv4": conv4,
    "resnet9": resnet9,
    "mlp": mlp,
}
