"""CompiledEngine: training of common networks with compiled loops instead of autograd.

It accepts an `nn.Sequential` of Conv2d (stride 1), ReLU, MaxPool2d, Flatten and Linear, of any
number and size, on the CPU; `engine_for` gives every other network the autograd engine.  The
results of both differ only by rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from e2fl.data.federated import Examples
from e2fl.kernels import Float32, one_process
from e2fl.kernels.score_step import Rates
from e2fl.kernels.stages import Block, Frozen, Plan, frozen
from e2fl.learning.autograd import AutogradEngine, Batch, Schedule, Slope, custom_loss
from e2fl.models import Model, Params, Supernet
from e2fl.rankings.order import Floats, dropped

ROWS = 2048  # examples of several steps, held in memory as the network reads them
SCORED_TOGETHER = 32  # examples of a forward pass: activations of more do not fit the caches


def engine_for(model: Model, device: str = "cpu") -> AutogradEngine:
    """Return the fastest engine that accepts this network on this device."""
    blocks = blocks_of(model.network) if device == "cpu" else None
    return CompiledEngine(model, blocks) if blocks else AutogradEngine(model, device)


def blocks_of(network: nn.Module) -> list[Block] | None:
    """Return the blocks of a network, or None if this engine does not accept it."""
    if not isinstance(network, nn.Sequential):
        return None
    blocks: list[Block] = []
    flat = False
    for name, module in _leaves(network):
        if isinstance(module, nn.Conv2d) and not flat and _is_plain(module):
            sizes = (module.in_channels, module.out_channels)
            kernel, padding = _pair(module.kernel_size), _pair(module.padding)
            blocks.append(Block(f"{name}.weight", *sizes, kernel, padding))
        elif isinstance(module, nn.Linear) and module.bias is None and flat:
            blocks.append(Block(f"{name}.weight", module.in_features, module.out_features))
        elif isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            flat = True
        elif isinstance(module, nn.ReLU) and blocks:
            blocks[-1] = replace(blocks[-1], relu=True)
        elif isinstance(module, nn.MaxPool2d) and blocks and not flat and _is_plain(module):
            if blocks[-1].pool:
                return None
            blocks[-1] = replace(blocks[-1], pool=_pair(module.kernel_size))
        else:
            return None
    known = [block.name for block in blocks] == [name for name, _ in network.named_parameters()]
    return blocks if known and blocks[-1].kernel is None and not blocks[-1].relu else None


def _leaves(network: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, module in network._modules.items():  # named_children leaves out repeated modules
        if isinstance(module, nn.Sequential):
            yield from _leaves(module, f"{prefix}{name}.")
        else:
            yield prefix + name, module


def _is_plain(module: nn.Conv2d | nn.MaxPool2d) -> bool:
    """Return whether a convolution or pool has none of the options that the loops lack."""
    if isinstance(module, nn.MaxPool2d):
        stride, padding = _pair(module.kernel_size), (0, 0)
        usual = _pair(module.padding) == padding and not (module.ceil_mode or module.return_indices)
    else:
        stride = (1, 1)
        usual = module.groups == 1 and module.bias is None and module.padding_mode == "zeros"
        usual = usual and not isinstance(module.padding, str)
    return usual and _pair(module.stride) == stride and _pair(module.dilation) == (1, 1)


def _pair(value: int | str | tuple[int, ...]) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple) else (value, value)
    return int(first), int(second)


class CompiledEngine(AutogradEngine):
    """The autograd engine with compiled loops in place of autograd."""

    def __init__(self, model: Model, blocks: list[Block]):
        super().__init__(model)
        self._blocks = blocks
        self._own = threading.local()
        self._frozen: tuple[Supernet, dict[str, Frozen | None]] | None = None

    def warm(self) -> None:
        """Compile all loops, or load them from the cache; one process compiles at a time.

        The loops do not depend on the sizes of a network, so a tiny network compiles them all.
        """
        super().warm()
        model = Model(nn.Sequential(*_layers_of_every_kind()))
        supernet = model.supernet(0)
        engine = engine_for(model)
        one, none = torch.ones(1, 1, 4, 4), torch.zeros(1, dtype=torch.int64)
        work = [Batch(one, none, np.array([[0.1, 0.0, 0.0]]), np.array([1]))]
        with one_process():
            engine.fit_scores(supernet, supernet.scores(supernet.ranking), work)
            engine.fit(model.initial_weights(0), work)

    def fit_scores(
        self, supernet: Supernet, scores: dict[str, Floats], batches: Iterable[Batch]
    ) -> dict[str, Floats]:
        weights = self._frozen_weights(supernet)
        if weights is None:
            return super().fit_scores(supernet, scores, batches)
        drops = {name: dropped(score.size, self.model.keep) for name, score in scores.items()}
        self._train(batches, lambda plan: plan.put_scores(scores, weights, drops), scores)
        return scores

    def fit(
        self,
        params: Params,
        batches: Iterable[Batch],
        *,
        toward: Params | None = None,
        proximal: float = 0.0,
    ) -> Params:
        trained = _copied(params)
        flat, anchor = _flat(trained), _flat(toward or {})
        self._train(batches, lambda plan: plan.put_weights(flat, anchor, proximal), flat)
        return trained

    def _train(
        self, batches: Iterable[Batch], put: Callable[[Plan], None], trained: dict[str, Float32]
    ) -> None:
        """Take all steps: those of a schedule without a loss of its own in one compiled call."""
        if isinstance(batches, Schedule) and batches.loss is None:
            batches = batches.steps(max(1, ROWS // batches.batch_size))
        plan: Plan | None = None
        for batch in batches:
            if plan is None:
                plan = self._plan("training", batch.x.shape[1:], int(batch.ends[0]))
                put(plan)
            _step(plan, batch)
        if plan is not None:
            plan.take(trained)

    def outputs_of(self, params: Params, inputs: Iterable[Tensor]) -> list[Tensor]:
        """Return the logits; those of an example do not depend on how many examples are passed."""
        plan: Plan | None = None
        outputs = []
        for images in (x.numpy() for x in inputs):
            if plan is None:
                plan = self._plan("scoring", images.shape[1:], SCORED_TOGETHER)
                plan.put_weights(_flat(params))
            starts = range(0, max(1, len(images)), SCORED_TOGETHER)
            parts = [plan.outputs(images[at : at + SCORED_TOGETHER]).copy() for at in starts]
            outputs.append(torch.from_numpy(np.concatenate(parts)))
        return outputs

    def gradient(self, params: Params, examples: Examples, rows: slice, slope: Slope) -> Params:
        images = examples.inputs(rows).numpy()
        plan = self._plan("scoring", images.shape[1:], SCORED_TOGETHER)
        plan.put_weights(_flat(_copied(params)))
        for start in range(0, len(images), SCORED_TOGETHER):
            outputs = torch.from_numpy(plan.outputs(images[start : start + SCORED_TOGETHER]))
            first = rows.start + start
            plan.backward(slope(outputs, slice(first, first + len(outputs))).float().numpy())
        gradient = {name: torch.empty(weight.shape) for name, weight in params.items()}
        plan.take(_flat(gradient), "velocity")
        return gradient

    def _plan(self, purpose: str, shape: Sequence[int], batch: int) -> Plan:
        """Return this thread's plan for such batches, kept because allocating it is slow."""
        plans: dict[str, Plan] = self._own.__dict__.setdefault("plans", {})
        plan = plans.get(purpose)
        if plan is None or plan.input != tuple(shape) or plan.batch < batch:
            plan = plans[purpose] = Plan(self._blocks, tuple(shape), batch)
        return plan

    def _frozen_weights(self, supernet: Supernet) -> dict[str, Frozen] | None:
        """Return the weights under the scores, or None if a layer has several magnitudes."""
        if self._frozen is None or self._frozen[0] is not supernet:
            weights = {block.name: supernet.weights[block.name] for block in self._blocks}
            tables = {
                name: weight.numpy().reshape(len(weight), -1) for name, weight in weights.items()
            }
            self._frozen = supernet, {name: frozen(table) for name, table in tables.items()}
        known = {name: weights for name, weights in self._frozen[1].items() if weights is not None}
        return known if len(known) == len(self._blocks) else None


def _layers_of_every_kind() -> list[nn.Module]:
    """Return layers for images of 4 x 4 pixels that use every loop."""
    wide = [nn.Conv2d(n, 16, 3, padding=1, bias=False) for n in (1, 16, 16)]
    pools = [nn.MaxPool2d(2), nn.Conv2d(16, 1, 1, bias=False), nn.MaxPool2d(1)]
    return [*wide, nn.ReLU(), *pools, nn.Flatten(), nn.Linear(4, 1, bias=False)]


def _copied(params: Params) -> Params:
    """Return a contiguous copy that may be changed in place."""
    return {
        name: weight.clone(memory_format=torch.contiguous_format) for name, weight in params.items()
    }


def _flat(params: Params) -> dict[str, Float32]:
    """Return one-dimensional views, or copies of what is not contiguous."""
    return {name: weight.contiguous().numpy().reshape(-1) for name, weight in params.items()}


def _step(plan: Plan, batch: Batch) -> None:
    """Take the steps of a batch, and count their losses; with a loss of its own, it has one."""
    losses: Sequence[float | Tensor] | NDArray[np.float64]
    rates = batch.rates.astype(np.float32)
    if batch.loss is not None:
        leaf = torch.from_numpy(plan.outputs(batch.x.numpy()).copy()).requires_grad_()
        loss = custom_loss(batch.loss, leaf, batch.y)
        plan.backward(torch.autograd.grad(loss, leaf)[0].numpy(), Rates(*rates[0]))
        losses = [loss]
    else:
        losses = plan.fit(batch.x.numpy(), batch.y.numpy(), batch.ends, rates)
    if batch.losses is not None:
        for mean, examples in zip(losses, np.diff(batch.ends, prepend=0), strict=True):
            batch.losses.add(mean, int(examples))
