"""CompiledEngine: training of common networks with compiled loops instead of autograd.

It accepts an `nn.Sequential` of Conv2d (stride 1), ReLU, MaxPool2d, Flatten and Linear, of any
number and size, on the CPU; `engine_for` gives every other network the autograd engine.  The
results of both differ only by rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from e2fl.kernels.machine_code import Float32, one_process
from e2fl.kernels.plan import Block, Plan
from e2fl.kernels.score_step import ScoreStep
from e2fl.kernels.shapes import ConvolutionSizes, LinearSizes, Rates, Signs
from e2fl.kernels.stages import Linear
from e2fl.kernels.vectors import row_length
from e2fl.learning.autograd import AutogradEngine, Batch, Slope, custom_loss
from e2fl.models import Model, Params, Supernet
from e2fl.rankings.order import Floats, dropped

SCORED_TOGETHER = 32  # examples of a forward pass: activations of more do not fit the caches


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
            found.append(
                Block(f"{name}.weight", LinearSizes(module.in_features, module.out_features))
            )
        elif isinstance(module, nn.ReLU) and last:
            found[-1] = Block(last.name, last.layer, True, last.pool)
        elif (
            isinstance(module, nn.MaxPool2d)
            and last
            and not last.pool
            and not flat
            and (pool := _pool(module))
        ):
            found[-1] = Block(last.name, last.layer, last.relu, pool)
        elif isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            flat = True
        else:
            return None
    return (
        found
        if found and isinstance(found[-1].layer, LinearSizes) and not found[-1].relu and flat
        else None
    )


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
        module.in_channels,
        module.out_channels,
        (kernel_height, kernel_width),
        (int(above), int(beside)),
    )


def _pool(module: nn.MaxPool2d) -> tuple[int, int] | None:
    kernel, stride = _pair(module.kernel_size), _pair(module.stride)
    plain = (
        kernel == stride and _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1)
    )
    return kernel if plain and not module.ceil_mode and not module.return_indices else None


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


class CompiledEngine(AutogradEngine):
    """The autograd engine with compiled loops in place of autograd."""

    def __init__(self, model: Model, blocks: list[Block]):
        super().__init__(model)
        self._blocks = blocks
        self._own = threading.local()
        self._signs: dict[str, tuple[Tensor, Signs | None]] = {}

    def warm(self, tell: Callable[[str], None]) -> None:
        """Compile all loops, or load them from the cache.

        `tell` is called with the name of each part first.

        The loops do not depend on the sizes of a network, so a tiny network compiles them all.
        """
        super().warm(tell)
        with one_process():
            self._warm_training(tell)

    @staticmethod
    def _warm_training(tell: Callable[[str], None]) -> None:
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
        engine.fit_scores(
            supernet, supernet.scores(supernet.ranking), work, momentum=0.0, weight_decay=0.0
        )
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
            return super().fit_scores(
                supernet, scores, batches, momentum=momentum, weight_decay=weight_decay
            )
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
                        stage.put_edges(
                            ScoreStep(scores[name], _flat(supernet.weights[name]), drop)
                        )
            _step(plan, batch, momentum, weight_decay)
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
        """Train dense weights by SGD from `params`, which are not changed.

        `proximal` keeps them close to `toward`.
        """
        trained = _own(params)
        plan: Plan | None = None
        for batch in batches:
            if plan is None:
                plan = self._plan(batch)
                plan.put_weights(
                    _all_flat(trained), None if toward is None else _all_flat(toward), proximal
                )
            _step(plan, batch, momentum, weight_decay)
        if plan is not None:
            plan.take(_all_flat(trained))
        return trained

    def outputs(self, params: Params, x: Tensor) -> Tensor:
        """Return the logits; those of an example do not depend on how many examples are passed."""
        plan = self._plan_for("scoring", x.shape[1:], SCORED_TOGETHER)
        plan.put_weights({name: _flat(weight.contiguous()) for name, weight in params.items()})
        images = x.numpy()
        parts = (
            images[at : at + SCORED_TOGETHER]
            for at in range(0, max(1, len(images)), SCORED_TOGETHER)
        )
        return torch.from_numpy(np.concatenate([plan.outputs(part).copy() for part in parts]))

    def gradient(self, params: Params, x: Tensor, slope: Slope) -> Params:
        """Return the gradient of a function of the outputs, summed over the examples; slope: its
        derivative.
        """
        plan = self._plan_for("scoring", x.shape[1:], SCORED_TOGETHER)
        plan.put_weights(_all_flat(_own(params)))
        images = x.numpy()
        for at in range(0, len(images), SCORED_TOGETHER):
            rows = slice(at, min(at + SCORED_TOGETHER, len(images)))
            plan.backward(slope(torch.from_numpy(plan.outputs(images[rows])), rows).float().numpy())
        found = {name: torch.empty(weight.shape) for name, weight in params.items()}
        plan.take_gradient(_all_flat(found))
        return found

    def _plan(self, batch: Batch) -> Plan:
        return self._plan_for("training", batch.x.shape[1:], len(batch.y))

    def _plan_for(self, purpose: str, shape: Sequence[int], batch: int) -> Plan:
        """Return this thread's plan for such batches, reused because allocating its buffers is
        slow.
        """
        plans: dict[str, Plan] = self._own.__dict__.setdefault("plans", {})
        plan = plans.get(purpose)
        if plan is None or plan.input != tuple(shape) or plan.batch < batch:
            plan = plans[purpose] = Plan(self._blocks, tuple(shape), batch)
        return plan

    def _signs_of(self, block: Block, supernet: Supernet) -> Signs | None:
        """Return the signs of a layer whose weights all have one magnitude, otherwise None.

        Cached by supernetwork.
        """
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
    return {
        name: weight.clone(memory_format=torch.contiguous_format) for name, weight in params.items()
    }


def _flat(weight: Tensor) -> Float32:
    """Return a one-dimensional view."""
    flat: Float32 = weight.numpy().reshape(-1)
    return flat


def _all_flat(params: Params) -> dict[str, Float32]:
    return {name: _flat(weight) for name, weight in params.items()}


def _step(plan: Plan, batch: Batch, momentum: float, weight_decay: float) -> None:
    """Take one step on a batch, and count its loss."""

    def own_loss(outputs: Float32) -> tuple[Tensor, Float32]:
        assert batch.loss is not None
        leaf = torch.from_numpy(outputs).requires_grad_()
        loss = custom_loss(batch.loss, leaf, batch.y)
        return loss, torch.autograd.grad(loss, leaf)[0].numpy()

    loss = plan.step(
        batch.x.numpy(),
        batch.y.numpy(),
        Rates(batch.learning_rate, momentum, weight_decay),
        None if batch.weight is None else batch.weight.numpy(),
        None if batch.loss is None else own_loss,
    )
    if batch.losses is not None:
        batch.losses.add(loss, len(batch.y))


def engine_for(model: Model, device: str = "cpu") -> AutogradEngine:
    """Return the fastest engine that accepts this network on this device."""
    blocks = blocks_of(model.network)
    return (
        CompiledEngine(model, blocks)
        if blocks and device == "cpu"
        else AutogradEngine(model, device)
    )
