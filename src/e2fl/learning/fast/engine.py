"""CompiledEngine: training of common networks with compiled loops instead of autograd.

It accepts an `nn.Sequential` of Conv2d (stride 1), ReLU, MaxPool2d, Flatten and Linear, of any number and size, on the
CPU; `engine_for` gives every other network the autograd engine.  The results of both differ only by rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from e2fl.compiled import Float32
from e2fl.learning.autograd import AutogradEngine, Batch, Slope, custom_loss
from e2fl.learning.fast.stages import Convolution, ConvolutionSizes, Linear, LinearSizes, Rates, Shape, Signs, Stage
from e2fl.learning.fast.vectors import row_length
from e2fl.learning.score_step import ScoreStep, WeightStep
from e2fl.models import Model, Params, Supernet
from e2fl.ranking import Floats, dropped

SCORED_TOGETHER = 32  # examples of one forward pass: with more, activations no longer fit the caches


@dataclass(frozen=True)
class Block:
    """A convolution or linear layer with the ReLU, max-pool and flattening that follow it."""

    name: str  # of its weight tensor
    layer: ConvolutionSizes | LinearSizes
    relu: bool = False
    pool: tuple[int, int] | None = None


def blocks_of(network: nn.Module) -> list[Block] | None:
    """Return the blocks of a network, or None if this engine does not accept it."""
    if not isinstance(network, nn.Sequential):
        return None
    found: list[Block] = []
    flat = False
    for name, module in _leaves(network):
        last = found[-1] if found else None
        if isinstance(module, nn.Conv2d) and not flat and (sizes := _convolution(module)):
            found.append(Block(f"{name}.weight", sizes))
        elif isinstance(module, nn.Linear) and module.bias is None and flat:
            found.append(Block(f"{name}.weight", LinearSizes(module.in_features, module.out_features)))
        elif isinstance(module, nn.ReLU) and last:
            found[-1] = Block(last.name, last.layer, True, last.pool)
        elif isinstance(module, nn.MaxPool2d) and last and not last.pool and not flat and (pool := _pool(module)):
            found[-1] = Block(last.name, last.layer, last.relu, pool)
        elif isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            flat = True
        else:
            return None
    return found if found and isinstance(found[-1].layer, LinearSizes) and not found[-1].relu and flat else None


def _leaves(network: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, module in network.named_children():
        if isinstance(module, nn.Sequential):
            yield from _leaves(module, f"{prefix}{name}.")
        else:
            yield prefix + name, module


def _convolution(module: nn.Conv2d) -> ConvolutionSizes | None:
    plain = (
        module.stride == (1, 1)
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.bias is None
        and module.padding_mode == "zeros"
    )
    if not plain or isinstance(module.padding, str):
        return None
    (kernel_height, kernel_width), (above, beside) = module.kernel_size, module.padding
    return ConvolutionSizes(
        module.in_channels, module.out_channels, (kernel_height, kernel_width), (int(above), int(beside))
    )


def _pool(module: nn.MaxPool2d) -> tuple[int, int] | None:
    kernel, stride = _pair(module.kernel_size), _pair(module.stride)
    plain = kernel == stride and _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1)
    return kernel if plain and not module.ceil_mode and not module.return_indices else None


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class Plan:
    """The stages of a network for inputs of one shape, with buffers for batches of at most `batch` examples."""

    def __init__(self, blocks: list[Block], shape: tuple[int, ...], batch: int):
        self.batch = batch
        self.input = shape
        image = Shape(*shape) if len(shape) == 3 else Shape(int(np.prod(shape)), 1, 1)
        self.stages: dict[str, Convolution | Linear] = {}
        for number, block in enumerate(blocks):
            first = number == 0
            stage: Convolution | Linear
            if isinstance(block.layer, ConvolutionSizes):
                stage = Convolution(block.layer, image, batch, relu=block.relu, pool=block.pool, first=first)
                image = stage.output
            else:
                stage = Linear(block.layer, image, batch, relu=block.relu, first=first)
                image = Shape(block.layer.outputs, 1, 1)
            self.stages[block.name] = stage
        self._steps: dict[str, WeightStep] = {}  # of the convolutions, while dense weights are trained
        self._chain: list[Convolution | Linear] = list(self.stages.values())
        self._after: list[Stage | None] = [*self._chain[1:], None]
        self._inputs = self._view_of_inputs()
        self._shares: Float32 = np.ones(batch, np.float32)

    def put_weights(self, params: Params, toward: Params | None = None, proximal: float = 0.0) -> None:
        """Set dense weights; training changes those of convolutions in place, and `take` copies out the others."""
        for name, stage in self.stages.items():
            weights = _flat(params[name])
            anchor = _flat(toward[name]) if toward is not None and proximal else None
            if isinstance(stage, Linear):
                stage.put_weights(weights, anchor, proximal)
            else:
                self._steps[name] = WeightStep(weights, weights if anchor is None else anchor, proximal)
                stage.put_edges(self._steps[name])

    def take(self, trained: Mapping[str, Float32]) -> None:
        """Copy out the trained scores or weights of the linear layers."""
        for name, stage in self.stages.items():
            if isinstance(stage, Linear):
                stage.take(trained[name])

    def step(self, batch: Batch, momentum: float, weight_decay: float) -> None:
        """Take one step on all layers."""
        x, y = batch.x.numpy(), batch.y.numpy()
        n = len(y)
        if n > self.batch:
            raise ValueError(f"a batch of {n} after a first one of {self.batch}: the first must be the largest")
        last = self._forward(x)
        loss: float | Tensor
        if batch.loss is None:
            loss = last.slope_of_loss(y, self._shares[:n] if batch.weight is None else batch.weight.numpy())
        else:
            outputs = torch.from_numpy(last.outputs_of(n).copy()).requires_grad_()
            loss = custom_loss(batch.loss, outputs, batch.y)
            last.put_slope(torch.autograd.grad(loss, outputs)[0].numpy())
        if batch.losses is not None:
            batch.losses.add(loss, n)
        rates = Rates(batch.learning_rate, momentum, weight_decay)
        for stage, following in zip(reversed(self._chain), reversed(self._after), strict=True):
            stage.backward(n, following, rates)

    def outputs(self, x: Float32) -> Float32:
        """Return the logits [examples, classes] of at most one batch."""
        return self._forward(x).outputs_of(len(x))

    def backward(self, slope: Float32) -> None:
        """Accumulate gradients from this derivative at the outputs: steps with learning rate 0 and momentum 1."""
        last = self._chain[-1]
        assert isinstance(last, Linear)
        last.put_slope(slope)
        for stage, following in zip(reversed(self._chain), reversed(self._after), strict=True):
            stage.backward(len(slope), following, Rates(0.0, 1.0, 0.0))

    def take_gradient(self, gradient: Mapping[str, Float32]) -> None:
        """Copy out the gradients accumulated since `put_weights`."""
        for name, stage in self.stages.items():
            if isinstance(stage, Linear):
                stage.take_velocity(gradient[name])
            else:
                gradient[name][:] = self._steps[name].velocity

    def _forward(self, x: Float32) -> Linear:
        self._place(x)
        for stage, following in zip(self._chain, self._after, strict=True):
            stage.forward(len(x), following)
        last = self._chain[-1]
        assert isinstance(last, Linear)
        return last

    def _place(self, x: Float32) -> None:
        self._inputs[: len(x)] = x.reshape(len(x), *self._inputs.shape[1:])

    def _view_of_inputs(self) -> Float32:
        """Return a view of the batch inside the first stage's buffer."""
        first = self._chain[0]
        if isinstance(first, Linear):
            return first.x.reshape(self.batch, first.stride)[:, : first.inputs]
        by_example, _, by_row, by_column, start = first.strides
        strides = tuple(4 * stride for stride in (by_example, 1, by_row, by_column))
        return np.lib.stride_tricks.as_strided(first.x[start:], (self.batch, *self.input), strides)


class CompiledEngine(AutogradEngine):
    """The autograd engine with compiled loops in place of autograd."""

    def __init__(self, model: Model, blocks: list[Block]):
        super().__init__(model)
        self._blocks = blocks
        self._own = threading.local()
        self._signs: dict[str, tuple[Tensor, Signs | None]] = {}

    def warm(self, tell: Callable[[str], None]) -> None:
        """Compile all loops, or load them from the cache; `tell` is called with the name of each part first.

        The loops do not depend on the sizes of a network, so a tiny network compiles them all.
        """
        super().warm(tell)
        network = nn.Sequential(
            nn.Conv2d(1, 1, 1, bias=False),
            nn.Conv2d(1, 1, 1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(1),
            nn.Flatten(),
            nn.Linear(1, 1, bias=False),
        )
        model = Model(network)
        supernet = model.supernet(0)
        engine = engine_for(model)
        work = [Batch(torch.ones(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64), 0.1)]
        tell("training of scores")
        engine.fit_scores(supernet, supernet.scores(supernet.ranking), work, momentum=0.0, weight_decay=0.0)
        tell("training of weights")
        engine.fit(model.initial_weights(0), work, momentum=0.0, weight_decay=0.0)

    def fit_scores(
        self,
        supernet: Supernet,
        scores: dict[str, Floats],
        batches: Iterable[Batch],
        *,
        momentum: float,
        weight_decay: float,
    ) -> dict[str, Floats]:
        """Train the scores in place (edge-popup) and return them; the weights do not change."""
        signs = {block.name: self._signs_of(block, supernet) for block in self._blocks}
        if None in signs.values():
            return super().fit_scores(supernet, scores, batches, momentum=momentum, weight_decay=weight_decay)
        plan: Plan | None = None
        for batch in batches:
            if plan is None:
                plan = self._plan(batch)
                for name, stage in plan.stages.items():
                    drop = dropped(scores[name].size, self.model.keep)
                    sign = signs[name]
                    if isinstance(stage, Linear):
                        assert sign is not None
                        stage.put_scores(scores[name], sign, drop)
                    else:
                        stage.put_edges(ScoreStep(scores[name], _flat(supernet.weights[name]), drop))
            plan.step(batch, momentum, weight_decay)
        if plan is not None:
            plan.take(scores)
        return scores

    def fit(
        self,
        params: Params,
        batches: Iterable[Batch],
        *,
        momentum: float,
        weight_decay: float,
        toward: Params | None = None,
        proximal: float = 0.0,
    ) -> Params:
        """Train dense weights by SGD from `params`, which are not changed; `proximal` keeps them close to `toward`."""
        trained = _own(params)
        plan: Plan | None = None
        for batch in batches:
            if plan is None:
                plan = self._plan(batch)
                plan.put_weights(trained, toward, proximal)
            plan.step(batch, momentum, weight_decay)
        if plan is not None:
            plan.take({name: _flat(weight) for name, weight in trained.items()})
        return trained

    def outputs(self, params: Params, x: Tensor) -> Tensor:
        """Return the logits; those of an example do not depend on how many examples are passed."""
        plan = self._plan_for("scoring", x.shape[1:], SCORED_TOGETHER)
        plan.put_weights({name: weight.contiguous() for name, weight in params.items()})
        images = x.numpy()
        parts = (images[at : at + SCORED_TOGETHER] for at in range(0, max(1, len(images)), SCORED_TOGETHER))
        return torch.from_numpy(np.concatenate([plan.outputs(part).copy() for part in parts]))

    def gradient(self, params: Params, x: Tensor, slope: Slope) -> Params:
        """Return the gradient of a function of the outputs, summed over the examples; slope: its derivative."""
        plan = self._plan_for("scoring", x.shape[1:], SCORED_TOGETHER)
        plan.put_weights(_own(params))
        images = x.numpy()
        for at in range(0, len(images), SCORED_TOGETHER):
            rows = slice(at, min(at + SCORED_TOGETHER, len(images)))
            plan.backward(slope(torch.from_numpy(plan.outputs(images[rows])), rows).float().numpy())
        found = {name: torch.empty(weight.shape) for name, weight in params.items()}
        plan.take_gradient({name: _flat(weight) for name, weight in found.items()})
        return found

    def _plan(self, batch: Batch) -> Plan:
        return self._plan_for("training", batch.x.shape[1:], len(batch.y))

    def _plan_for(self, purpose: str, shape: Sequence[int], batch: int) -> Plan:
        """Return this thread's plan for such batches, reused because allocating its buffers is slow."""
        plans: dict[str, Plan] = self._own.__dict__.setdefault("plans", {})
        plan = plans.get(purpose)
        if plan is None or plan.input != tuple(shape) or plan.batch < batch:
            plan = plans[purpose] = Plan(self._blocks, tuple(shape), batch)
        return plan

    def _signs_of(self, block: Block, supernet: Supernet) -> Signs | None:
        """Return the signs of a layer whose weights all have one magnitude, otherwise None; cached by supernetwork."""
        weight = supernet.weights[block.name]
        known = self._signs.get(block.name)
        if known is None or known[0] is not weight:
            known = self._signs[block.name] = (weight, _signs(weight))
        return known[1]


def _signs(weight: Tensor) -> Signs | None:
    table = weight.numpy().reshape(len(weight), -1)
    magnitude = np.abs(table[0, 0])
    if not (np.abs(table) == magnitude).all():
        return None
    minus = np.zeros((len(table), row_length(table.shape[1])), np.bool_)
    minus[:, : table.shape[1]] = table < 0
    return Signs(np.float32(magnitude), np.packbits(minus, bitorder="little").view(np.uint16))


def _own(params: Params) -> Params:
    """Return a contiguous copy that may be changed in place."""
    return {name: weight.clone(memory_format=torch.contiguous_format) for name, weight in params.items()}


def _flat(weight: Tensor) -> Float32:
    """Return a one-dimensional view."""
    flat: Float32 = weight.numpy().reshape(-1)
    return flat


def engine_for(model: Model, device: str = "cpu") -> AutogradEngine:
    """Return the fastest engine that accepts this network on this device."""
    blocks = blocks_of(model.network)
    return CompiledEngine(model, blocks) if blocks and device == "cpu" else AutogradEngine(model, device)
