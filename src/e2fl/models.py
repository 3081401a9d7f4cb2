"""Networks, and the supernetwork of any network of convolution and linear layers.

To add a network: write a function `(inputs, classes, **settings) -> nn.Module` and one line in `MODELS`.
"""

import copy
import hashlib
import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from e2fl.errors import ConfigError, is_out_of_memory
from e2fl.randomness import stream
from e2fl.ranking import Floats, Mask, Ranking, rank_of, scores_from

Params = dict[str, Tensor]  # named tensors of a model


def storable(tensor: Tensor) -> Tensor:
    """The tensor, copied if it is a view, because views cannot be written to a file."""
    own = tensor.detach().cpu().contiguous()
    return own if own.untyped_storage().nbytes() == own.nbytes else own.clone()


@dataclass(frozen=True)
class Layer:
    """One weight tensor; its edges are numbered in row-major order."""

    name: str
    shape: tuple[int, ...]

    @property
    def edges(self) -> int:
        return math.prod(self.shape)

    @property
    def fan_in(self) -> int:
        return math.prod(self.shape[1:])


@dataclass(frozen=True)
class ModelSpec:
    """Names and shapes of a model's layers: all that encoding and decoding messages needs."""

    layers: tuple[Layer, ...]

    @property
    def edges(self) -> int:
        return sum(layer.edges for layer in self.layers)

    def only(self, names: Collection[str] | None) -> "ModelSpec":
        """Return the layers with these names; None: all."""
        return self if names is None else ModelSpec(tuple(layer for layer in self.layers if layer.name in names))

    @cached_property
    def fingerprint(self) -> bytes:
        """Eight bytes that identify the names and shapes of the layers."""
        text = ";".join(f"{layer.name}:{layer.shape}" for layer in self.layers)
        return hashlib.blake2b(text.encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Supernet:
    """What the seed fixes for a whole run: frozen weights, start scores, and the initial ranking."""

    weights: Params
    sorted_scores: dict[str, Floats]  # ascending and distinct
    ranking: Ranking

    def scores(self, ranking: Ranking) -> dict[str, Floats]:
        """The start scores, assigned to edges in the order of this ranking."""
        return {layer: scores_from(rank, self.sorted_scores[layer]) for layer, rank in ranking.items()}

    def subnetwork(self, mask: Mask) -> Params:
        """The frozen weights of the kept edges, zero elsewhere."""
        return {name: weight * torch.from_numpy(mask[name]).view(weight.shape) for name, weight in self.weights.items()}


class Model:
    """A network as a function of named weight tensors, which it does not own."""

    def __init__(self, network: nn.Module, *, keep: float = 0.5, weight_scale: float = 1.0):
        if not 0 < keep <= 1:
            raise ConfigError(f"model.keep is the fraction of edges kept: above 0 and at most 1, not {keep}")
        _require_maskable(network)
        self.network = network.requires_grad_(False)
        self._own = threading.local()
        if not 0 < weight_scale < math.inf:
            raise ConfigError(f"model.weight_scale must be above 0, not {weight_scale}")
        self.keep = keep
        self.weight_scale = weight_scale  # of the frozen weights, times the Kaiming constant
        self.spec = ModelSpec(tuple(Layer(name, tuple(weight.shape)) for name, weight in network.named_parameters()))
        for layer in self.spec.layers:
            if not layer.edges:
                raise ConfigError(f"layer '{layer.name}' has no edges: its shape is {layer.shape}; are there inputs?")

    def outputs(self, params: Params, x: Tensor) -> Tensor:
        """Logits [examples, classes]."""
        # functional_call puts the weights into the module while it runs, so each thread needs its own module.
        if not hasattr(self._own, "network"):
            self._own.network = copy.deepcopy(self.network)
        result: Tensor = functional_call(self._own.network, params, (x,))
        return result

    def require_fit(self, shape: tuple[int, ...], classes: int, name: str) -> None:
        """Raise `ConfigError` unless the network takes inputs of this shape and has an output for each class."""
        try:
            with torch.no_grad():
                outputs = self.outputs(dict(self.network.named_parameters()), torch.zeros((2, *shape)))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"model '{name}' does not accept inputs of shape {shape}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != 2:
            found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ConfigError(f"model '{name}' must return logits [examples, classes], not {found} for 2 examples")
        if outputs.shape[1] < classes:
            raise ConfigError(f"model '{name}' has {outputs.shape[1]} outputs, but the data has {classes} classes")

    def initial_weights(self, seed: int, which: int = 0) -> Params:
        """Initial weights of dense training: Kaiming uniform with a = sqrt(5), torch's default."""
        params = {}
        for number, layer in enumerate(self.spec.layers):
            bound = 1 / math.sqrt(layer.fan_in)
            draw = stream(seed, "initial weights", which, number).random(layer.edges, dtype=np.float32)
            params[layer.name] = torch.from_numpy((2 * draw - 1) * np.float32(bound)).view(layer.shape)
        return params

    def supernet(self, seed: int) -> Supernet:
        """The supernetwork of this seed: signed Kaiming constants as weights, non-negative Kaiming-uniform scores."""
        weights: Params = {}
        sorted_scores: dict[str, Floats] = {}
        ranking: Ranking = {}
        for number, layer in enumerate(self.spec.layers):
            signs = stream(seed, "supernet weights", number).integers(0, 2, layer.edges, dtype=np.int8)
            magnitude = np.float32(self.weight_scale * math.sqrt(2 / layer.fan_in))
            weights[layer.name] = torch.from_numpy(np.where(signs == 1, magnitude, -magnitude)).view(layer.shape)
            draw = stream(seed, "supernet scores", number).random(layer.edges, dtype=np.float32)
            ranking[layer.name] = rank_of(draw)
            sorted_scores[layer.name] = _distinct(np.sort(draw) * np.float32(1 / math.sqrt(layer.fan_in)))
        return Supernet(weights, sorted_scores, ranking)

    def random_ranking(self, seed: int, purpose: str, *place: int) -> Ranking:
        """A ranking drawn uniformly, such as the one a group starts from before its first vote."""
        return {
            layer.name: rank_of(stream(seed, purpose, *place, number).random(layer.edges, dtype=np.float32))
            for number, layer in enumerate(self.spec.layers)
        }


def _distinct(rising: Floats) -> Floats:
    """Sorted non-negative scores with repeats increased by as few ulps as makes them distinct.

    Equal scores would be ranked by edge number, so assigning them by a ranking would not give that ranking back.
    """
    steps = np.arange(len(rising), dtype=np.int64)
    bits = np.maximum.accumulate(rising.view(np.int32).astype(np.int64) - steps) + steps
    return bits.astype(np.int32).view(np.float32)


_NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


def _require_maskable(network: nn.Module) -> None:
    for name, module in network.named_modules():
        own = dict(module.named_parameters(recurse=False))
        kind = type(module).__name__
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            if module.bias is not None:
                raise ConfigError(
                    f"layer '{name}' ({kind}) has a bias; only edges can be ranked: build it with bias=False"
                )
        elif own:
            remedy = "build it without scale and shift (affine=False)" if isinstance(module, _NORMS) else "leave it out"
            raise ConfigError(
                f"layer '{name}' ({kind}) has weights that cannot be masked ({', '.join(own)}); {remedy}: "
                "only convolution and linear layers can be ranked"
            )
        if any(True for _ in module.buffers(recurse=False)):
            raise ConfigError(
                f"layer '{name}' ({kind}) keeps running statistics, which are never sent; "
                "use track_running_stats=False, or GroupNorm(affine=False)"
            )
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise ConfigError(f"layer '{name}' ({kind}) draws from a global random state; runs could not be repeated")
    if not any(True for _ in network.parameters()):
        raise ConfigError("the network has no convolution or linear layer to rank")


def _require_sizes(name: str, sizes: tuple[int, ...]) -> None:
    if min(sizes, default=1) < 1:
        raise ConfigError(f"model.{name} must be at least 1, not {list(sizes)}")


def lenet(
    inputs: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, int] = (32, 64),  # of the two convolutions
    hidden: int = 128,  # units of the first linear layer
) -> nn.Module:
    """Two 3x3 convolutions, one 2x2 max-pool, two linear layers; no biases."""
    if len(inputs) != 3:
        raise ConfigError(f"model 'lenet' needs images (channels, height, width), not inputs of shape {inputs}")
    _require_sizes("channels", channels)
    _require_sizes("hidden", (hidden,))
    depth, height, width = inputs
    if depth < 1 or min(height, width) < 2:
        raise ConfigError(f"model 'lenet' needs images of at least 2 x 2 points, not inputs of shape {inputs}")
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
    hidden: tuple[int, ...] = (1024, 1024),  # units of each hidden layer
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
