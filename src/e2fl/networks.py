"""The networks that come with the package.

To add one: write a function `(inputs, classes, **settings) -> nn.Module` and one line in `MODELS`.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
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


def lenet(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[tuple[int, int], Doc("of the two convolutions")] = (32, 64),
    hidden: Annotated[int, Doc("units of the first linear layer")] = 128,
) -> nn.Module:
    """Two 3x3 convolutions, one 2x2 max-pool, two linear layers; no biases."""
    _require_images("lenet", inputs, 2)
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


def conv4(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: Annotated[tuple[int, int], Doc("of the convolutions of both blocks")] = (64, 128),
    hidden: Annotated[int, Doc("units of the first two linear layers")] = 256,
) -> nn.Module:
    """Conv-4: two blocks of two 3x3 convolutions and a max-pool, three linear layers; no biases."""
    _require_images("conv4", inputs, 4)
    _require_sizes("channels", channels)
    _require_sizes("hidden", (hidden,))
    layers: dict[str, nn.Module] = {}
    for number, (wide, narrow) in enumerate(
        itertools.pairwise((inputs[0], *(count for count in channels for _ in range(2)))), start=1
    ):
        layers[f"conv{number}"] = nn.Conv2d(wide, narrow, 3, padding=1, bias=False)
        layers[f"relu{number}"] = nn.ReLU()
        if number % 2 == 0:
            layers[f"pool{number // 2}"] = nn.MaxPool2d(2)
    pixels = (inputs[1] // 4) * (inputs[2] // 4)
    head = mlp((channels[1] * pixels,), classes, hidden=(hidden, hidden))
    return nn.Sequential(OrderedDict(layers | dict(head.named_children())))


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
