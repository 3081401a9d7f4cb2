"""Models: a torch network as a function of named weights, and as a supernetwork of ranked edges."""

import copy
import hashlib
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from typing_extensions import Doc

from e2fl.errors import ConfigError, E2flWarning, is_out_of_memory, with_article
from e2fl.randomness import stream
from e2fl.rankings.order import Floats, Mask, Ranking, rank_of, scores_from
from e2fl.torch_streams import TorchStream, torch_seeded

Params = dict[str, Tensor]  # named tensors of a model


def is_finite(params: Params) -> bool:
    """Return whether all weights are finite."""
    return all(bool(value.isfinite().all()) for value in params.values())


def storable(tensor: Tensor) -> Tensor:
    """Return the tensor, copied if it is a view, because views cannot be written to a file."""
    stored = tensor.detach().cpu().contiguous()
    return stored if stored.untyped_storage().nbytes() == stored.nbytes else stored.clone()


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


def defect_of_layers(value: Any, layers: Sequence[Layer], kind: type[Any], *, flat: bool) -> str:
    """Return the defect of a value that should hold one array of this type for each layer.

    Empty if there is none.

    flat: arrays have one dimension, as masks and rankings do; otherwise the shape of the layer.
    """
    wanted = with_article(kind)
    if not isinstance(value, Mapping):
        actual = with_article(type(value))
        return f"is {actual}; it must be a dictionary with {wanted} for each layer"
    for layer in layers:
        array = value.get(layer.name)
        shape = (layer.edges,) if flat else layer.shape
        if array is None:
            return f"has no layer '{layer.name}'"
        if not isinstance(array, kind):
            actual = with_article(type(array))
            return f"holds {actual} for layer '{layer.name}'; it must be {wanted}"
        if tuple(array.shape) != shape:
            return f"has shape {tuple(array.shape)} for layer '{layer.name}'; it must be {shape}"
    return ""


@dataclass(frozen=True)
class ModelSpec:
    """Names and shapes of a model's layers: all that encoding and decoding messages needs."""

    layers: tuple[Layer, ...]

    @property
    def edges(self) -> int:
        return sum(layer.edges for layer in self.layers)

    def only(self, names: Collection[str] | None) -> "ModelSpec":
        """Return the layers with these names; None: all."""
        if names is None:
            return self
        return ModelSpec(tuple(layer for layer in self.layers if layer.name in names))

    @cached_property
    def fingerprint(self) -> bytes:
        """Eight bytes that identify the names and shapes of the layers."""
        text = ";".join(f"{layer.name}:{layer.shape}" for layer in self.layers)
        return hashlib.blake2b(text.encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Supernet:
    """What the seed determines for a run: frozen weights, initial scores and initial ranking."""

    weights: Params
    sorted_scores: dict[str, Floats]  # ascending and distinct
    ranking: Ranking

    def scores(self, ranking: Ranking) -> dict[str, Floats]:
        """Return the initial scores, assigned to edges in the order of this ranking."""
        return {
            layer: scores_from(rank, self.sorted_scores[layer]) for layer, rank in ranking.items()
        }

    def subnetwork(self, mask: Mask) -> Params:
        """Return the frozen weights of the kept edges, zero elsewhere."""
        return {
            name: weight * torch.from_numpy(mask[name]).view(weight.shape)
            for name, weight in self.weights.items()
        }


class Model:
    """A network as a function of named weight tensors, which it does not own.

    build: builds the network again, with new initial weights; without it, `reset_parameters` of its
    layers is called.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        keep: Annotated[
            float, Doc("fraction of edges kept in a subnetwork: above 0, at most 1")
        ] = 0.5,
        weight_scale: Annotated[float, Doc("frozen weights, times the Kaiming constant")] = 1.0,
        build: Callable[[], nn.Module] | None = None,
    ):
        if not 0 < keep <= 1:
            raise ConfigError(
                f"model.keep is the fraction of edges kept: above 0 and at most 1, not {keep}"
            )
        if not 0 < weight_scale < math.inf:
            raise ConfigError(f"model.weight_scale must be above 0, not {weight_scale}")
        _require_trainable(network)
        self.network = network.requires_grad_(False)
        self.why_unranked = _why_unranked(network)  # empty: the network can be ranked
        # Whether training draws random numbers, as dropout does; assumed until `require_fit` has
        # checked.
        self.draws = bool(self.why_unranked) or any(
            isinstance(module, _DropoutNd) for module in network.modules()
        )
        self._own = threading.local()
        self._build = build
        self.keep = keep
        self.weight_scale = weight_scale
        self.spec = ModelSpec(
            tuple(Layer(name, tuple(weight.shape)) for name, weight in network.named_parameters())
        )
        self.classes = (*self.spec.layers[-1].shape, 1)[0]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _own=threading.local())  # networks of threads are made anew

    def outputs(self, params: Params, x: Tensor, *, training: bool = False) -> Tensor:
        """Return the logits [examples, classes]; training: with dropout and the like active."""
        # functional_call puts the weights into the module while it runs, so each thread needs its
        # own module.
        networks: dict[bool, nn.Module] = self._own.__dict__.setdefault("networks", {})
        if training not in networks:
            shared = (*self.network.parameters(), *self.network.buffers())
            networks[training] = copy.deepcopy(
                self.network, {id(tensor): tensor for tensor in shared}
            ).train(training)
        buffers = {name: value.to(x.device) for name, value in self.network.named_buffers()}
        result: Tensor = functional_call(networks[training], params | buffers, (x,))
        return result

    def require_fit(self, shape: tuple[int, ...], classes: int, name: str) -> None:
        """Raise `ConfigError` unless the network fits inputs of this shape and these classes."""
        params: Params = dict(self.network.named_parameters())
        examples = torch.zeros((2, *shape))
        before = {buffer: value.clone() for buffer, value in self.network.named_buffers()}
        try:
            with torch.no_grad():
                outputs = self.outputs(params, examples)
                draws = self._draws_in(params, examples)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            embeds = any(isinstance(module, nn.Embedding) for module in self.network.modules())
            hint = "; inputs are float32, so look up an embedding with x.long()" if embeds else ""
            raise ConfigError(
                f"model '{name}' does not accept inputs of shape {shape}: "
                f"{type(error).__name__}: {error}{hint}"
            ) from error
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != 2:
            kind = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ConfigError(
                f"model '{name}' must return logits [examples, classes], not {kind} for 2 examples"
            )
        width = f"model '{name}' has {outputs.shape[1]} outputs"
        if outputs.shape[1] < classes:
            raise ConfigError(f"{width}, but the data has {classes} classes")
        if outputs.shape[1] > classes:
            unused = "the others take part in training and are never predicted"
            warnings.warn(f"{width} for {classes} classes; {unused}", E2flWarning, stacklevel=2)
        for buffer, value in self.network.named_buffers():
            if not torch.equal(value, before[buffer]):
                raise ConfigError(
                    f"model '{name}' changes its buffer '{buffer}' while it runs; buffers are "
                    "never sent, so they must be constants: make it a parameter or leave it out"
                )
        self.draws, self.classes = draws, classes

    def _draws_in(self, params: Params, examples: Tensor) -> bool:
        """Return whether a training pass over these examples draws random numbers."""
        # Entering a dispatch mode of torch imports its compiler, which takes two seconds.
        if all(type(module) in DETERMINISTIC_LAYERS for module in self.network.modules()):
            return False
        with TorchStream(stream(0, "trial")) as trial:
            self.outputs(params, examples, training=True)
        return bool(trial.drawn)

    def require_rankable(self) -> None:
        """Raise `ConfigError` if an algorithm that ranks edges cannot use this network."""
        if self.why_unranked:
            raise ConfigError(
                f"{self.why_unranked}; or choose an algorithm that trains weights, such as fedavg"
            )

    def initial_weights(self, seed: int, which: int = 0) -> Params:
        """Return initial weights for dense training. which: another draw from the same seed.

        Kaiming uniform with a = sqrt(5), torch's default, if the network can be ranked; otherwise
        what the network's own initialisation draws.
        """
        if self.why_unranked:
            return self._initialised(seed, which)
        params = {}
        for layer, drawn in self._drawn(seed, "initial weights", which):
            weights = (2 * drawn - 1) * np.float32(1 / math.sqrt(layer.fan_in))
            params[layer.name] = torch.from_numpy(weights).view(layer.shape)
        return params

    def _drawn(self, seed: int, purpose: str, *keys: int) -> Iterator[tuple[Layer, Floats]]:
        """Yield each layer with numbers from 0 to 1 for its edges."""
        for number, layer in enumerate(self.spec.layers):
            random = stream(seed, purpose, *keys, number)
            yield layer, random.random(layer.edges, dtype=np.float32)

    def _initialised(self, seed: int, which: int) -> Params:
        with torch_seeded(stream(seed, "initial weights", which)):
            network = copy.deepcopy(self.network) if self._build is None else self._build()
            for module in network.modules() if self._build is None else ():
                usual = getattr(module, "_reset_parameters", None)
                reset = getattr(module, "reset_parameters", usual)
                if callable(reset):
                    reset()
        return {name: weight.detach().clone() for name, weight in network.named_parameters()}

    def supernet(self, seed: int) -> Supernet:
        """Return signed Kaiming constants, and scores drawn from 0 to the Kaiming bound."""
        self.require_rankable()
        weights: Params = {}
        sorted_scores: dict[str, Floats] = {}
        ranking: Ranking = {}
        for number, (layer, drawn) in enumerate(self._drawn(seed, "supernet scores")):
            random = stream(seed, "supernet weights", number)
            plus = random.integers(0, 2, layer.edges, dtype=np.int8) == 1
            magnitude = np.float32(self.weight_scale * math.sqrt(2 / layer.fan_in))
            signed = torch.from_numpy(np.where(plus, magnitude, -magnitude))
            weights[layer.name] = signed.view(layer.shape)
            ranking[layer.name] = rank_of(drawn)
            bound = np.float32(1 / math.sqrt(layer.fan_in))
            sorted_scores[layer.name] = _distinct(np.sort(drawn) * bound)
        return Supernet(weights, sorted_scores, ranking)

    def random_ranking(self, seed: int, purpose: str, *keys: int) -> Ranking:
        """Return a ranking drawn uniformly: a group starts from one before its first vote."""
        self.require_rankable()
        return {layer.name: rank_of(drawn) for layer, drawn in self._drawn(seed, purpose, *keys)}


def _distinct(rising: Floats) -> Floats:
    """Return sorted non-negative scores, repeats increased by as few ulps as makes them distinct.

    Equal scores would be ranked by edge number, so assigning them by a ranking would not give that
    ranking back.
    """
    steps = np.arange(len(rising), dtype=np.int64)
    bits = np.maximum.accumulate(rising.view(np.int32).astype(np.int64) - steps) + steps
    return bits.astype(np.int32).view(np.float32)


# Layers that draw no random numbers and behave in training as they do in evaluation.
_DETERMINISTIC = (
    "Sequential Identity Flatten Linear Conv1d Conv2d Conv3d ReLU LeakyReLU GELU ELU SiLU Tanh "
    "Sigmoid MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d "
    "LayerNorm GroupNorm Embedding"
)
DETERMINISTIC_LAYERS = {getattr(nn, name) for name in _DETERMINISTIC.split()}


def _require_trainable(network: nn.Module) -> None:
    """Raise `ConfigError` unless messages can carry what training changes: float32 weights."""
    for name, module in network.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise ConfigError(
                f"layer '{name}' ({type(module).__name__}) keeps running statistics, which are not "
                "weights; use GroupNorm or LayerNorm, or set track_running_stats=False"
            )
    for name, weight in network.named_parameters():
        if is_lazy(weight):
            raise ConfigError(f"layer '{name}' has no shape yet: give its size, not a Lazy layer")
        if weight.dtype != torch.float32:
            raise ConfigError(f"layer '{name}' is of type {weight.dtype}; use float32")
        if not weight.numel():
            raise ConfigError(f"layer '{name}' has no edges: its shape is {tuple(weight.shape)}")
    if not any(True for _ in network.parameters()):
        raise ConfigError("the network has no weights to train")


def _why_unranked(network: nn.Module) -> str:
    """Return why the edges cannot be ranked, and what to change; empty if they can."""
    for name, module in network.named_modules():
        layer = f"layer '{name}' ({type(module).__name__})"
        weights = ", ".join(weight for weight, _ in module.named_parameters(recurse=False))
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            if module.bias is not None:
                return f"{layer} has a bias; only edges can be ranked: build it with bias=False"
        elif weights:
            affine = next((name for name in vars(module) if name.endswith("affine")), None)
            remedy = f"build it with {affine}=False" if affine else "leave it out"
            return f"{layer} has weights that cannot be masked ({weights}): {remedy}"
    return ""
