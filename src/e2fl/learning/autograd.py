"""Local training of any network with torch's autograd."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from e2fl import kernels
from e2fl.data.federated import Examples
from e2fl.errors import ConfigError
from e2fl.kernels.score_step import Rates, ScoreStep
from e2fl.models import Model, Params, Supernet
from e2fl.rankings.ballots import BALLOTS, Reference
from e2fl.rankings.coder import MIN_EDGES_FOR_LEVELS
from e2fl.rankings.order import Floats, dropped, rank_of, scores_from
from e2fl.rankings.votes import elect
from e2fl.torch_streams import TorchStream

# A custom loss: takes the outputs [examples, classes] and the labels, and returns one number.
Loss = Callable[[Tensor, Tensor], Tensor]
# The derivative of a function of the outputs: takes the outputs of some examples, and their rows.
Slope = Callable[[Tensor, slice], Tensor]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: for small work, waking the others costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Losses:
    """The training loss of a client, summed over the examples of all its steps."""

    total: float | Tensor = 0.0
    examples: int = 0

    def add(self, loss: float | Tensor, examples: int) -> None:
        """Add the mean loss of a step over this many examples."""
        # Kept as a tensor: reading its value would synchronise with the GPU in every step.
        mean = loss.detach().double() if isinstance(loss, Tensor) else loss
        self.total = self.total + mean * examples
        self.examples += examples

    @property
    def mean(self) -> float | None:
        """The mean over all examples; None if there was no step."""
        return float(self.total) / self.examples if self.examples else None


class Batch(NamedTuple):
    """The examples of one step, or of several in a row, and how to train on them."""

    x: Tensor
    y: Tensor
    rates: NDArray[np.float64]  # of each step: learning rate, momentum, weight decay
    ends: NDArray[np.int64]  # of the examples of each step
    noise: TorchStream | None = None  # what dropout draws from; None: the network draws nothing
    loss: Loss | None = None  # None: cross-entropy
    losses: Losses | None = None  # counts the loss of the step

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first step."""
        return float(self.rates[0, 0])


@dataclass(frozen=True)
class Schedule:
    """The batches of a whole fit."""

    examples: Examples
    epochs: Sequence[tuple[NDArray[np.int64], float]]  # the order of the examples, and the rate
    batch_size: int
    momentum: float
    weight_decay: float
    noise: TorchStream | None = None
    loss: Loss | None = None
    losses: Losses | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self.steps(1)

    def steps(self, count: int) -> Iterator[Batch]:
        """Yield this many steps together."""
        size = self.batch_size
        left = (
            (order[start : start + size], rate)
            for order, rate in self.epochs
            for start in range(0, len(order), size)
        )
        while steps := list(islice(left, count)):
            rows = np.concatenate([rows for rows, _ in steps])
            ends = np.cumsum([len(rows) for rows, _ in steps])
            rates = np.array([(rate, self.momentum, self.weight_decay) for _, rate in steps])
            x, y = self.examples.inputs(rows), self.examples.labels(rows)
            yield Batch(x, y, rates, ends, self.noise, self.loss, self.losses)


class AutogradEngine:
    """Training and evaluation of any network.

    `CompiledEngine` is faster and differs only by rounding.
    """

    def __init__(self, model: Model, device: str = "cpu"):
        self.model = model
        self.device = torch.device(device)

    def warm(self) -> None:
        """Compile all loops, or load them from the cache; one process compiles at a time."""
        if not self.model.why_unranked:
            with kernels.one_process():
                warm()

    def fit_scores(
        self, supernet: Supernet, scores: dict[str, Floats], batches: Iterable[Batch]
    ) -> dict[str, Floats]:
        """Train the scores in place (edge-popup) and return them; the weights do not change."""
        frozen = {name: supernet.weights[name] for name in scores}
        steps = {}
        for name, score in scores.items():
            drop = dropped(len(score), self.model.keep)
            steps[name] = ScoreStep(score, frozen[name].numpy().reshape(-1), drop)
        for batch in batches:
            rates = Rates(*batch.rates[0].astype(np.float32))
            effective = {
                name: torch.from_numpy(step.effective).view(frozen[name].shape).to(self.device)
                for name, step in steps.items()
            }
            gradients = self.gradients(effective, batch)
            for name, step in steps.items():
                step.advance(gradients[name].cpu().contiguous().numpy().reshape(-1), rates)
        return scores

    def fit(
        self,
        params: Params,
        batches: Iterable[Batch],
        *,
        toward: Params | None = None,
        proximal: float = 0.0,
    ) -> Params:
        """Train dense weights by SGD from `params`, which are not changed.

        `proximal` keeps them close to `toward`.
        """
        weights = {name: weight.to(self.device, copy=True) for name, weight in params.items()}
        anchor = {name: weight.to(self.device) for name, weight in (toward or {}).items()}
        velocity: Params = {}
        for batch in batches:
            gradients = self.gradients(weights, batch)
            rate, momentum, decay = batch.rates[0].tolist()
            for name, weight in weights.items():
                gradient = gradients[name].add_(weight, alpha=decay)
                if anchor and proximal:
                    gradient.add_(weight - anchor[name], alpha=proximal)
                if name in velocity:
                    velocity[name].mul_(momentum).add_(gradient)
                else:
                    velocity[name] = gradient
                weight.sub_(velocity[name], alpha=rate)
        return {name: weight.cpu() for name, weight in weights.items()}

    def gradients(self, params: Params, batch: Batch) -> Params:
        """Return the gradients of the mean loss of one batch."""
        leaves = {name: weight.detach().requires_grad_() for name, weight in params.items()}
        with batch.noise or nullcontext():
            outputs = self.model.outputs(leaves, batch.x.to(self.device), training=True)
        labels = batch.y.to(self.device)
        if batch.loss is not None:
            loss = custom_loss(batch.loss, outputs, labels)
        else:
            loss = cross_entropy(outputs, labels)
        if batch.losses is not None:
            batch.losses.add(loss, len(labels))
        return _gradients(loss, leaves)

    def gradient(self, params: Params, examples: Examples, rows: slice, slope: Slope) -> Params:
        """Return the gradient of the function with this slope, summed over these rows."""
        leaves = {
            name: weight.to(self.device).detach().requires_grad_()
            for name, weight in params.items()
        }
        outputs = self.model.outputs(leaves, examples.inputs(rows).to(self.device))
        back = slope(outputs.detach(), rows).to(outputs.dtype)
        return {name: value.cpu() for name, value in _gradients(outputs, leaves, back).items()}

    def outputs_of(self, params: Params, inputs: Iterable[Tensor]) -> list[Tensor]:
        """Return the logits of several sets of examples, on the CPU."""
        moved = {name: weight.to(self.device) for name, weight in params.items()}
        with torch.inference_mode():
            return [self.model.outputs(moved, x.to(self.device)).cpu() for x in inputs]


@cache
def warm() -> None:
    """Use every loop of rankings and scores once, so that it is compiled, or found in the cache."""
    rank = np.arange(MIN_EDGES_FOR_LEVELS, dtype=np.int32)  # some loops are only for large layers
    ranking, reference = {"layer": rank}, Reference({"layer": rank}, {"layer": 2})
    for kind in BALLOTS.values():
        kind().decode(kind().encode(ranking, reference), reference)
    scores = scores_from(elect([ranking])["layer"], rank.astype(np.float32))
    ScoreStep(scores, scores.copy(), 1).advance(scores.copy(), Rates(*np.zeros(3, np.float32)))
    rank_of(scores)
    kernels.footrule(rank, rank)
    kernels.footrules(rank[None], rank[None])


def custom_loss(loss: Loss, outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the value of a user's loss.

    Raise `ConfigError` if it is not one number computed from the outputs.
    """
    value = loss(outputs, labels)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        raise ConfigError(
            f"the loss passed to learner.fit returned {type(value).__name__}{shape}; it must be "
            "one number, as a tensor that is computed from the outputs, such as a mean"
        )
    return value.reshape(())


def _gradients(of: Tensor, leaves: Params, back: Tensor | None = None) -> Params:
    """Return the gradient with respect to each weight, zero for one that the network ignores."""
    values = torch.autograd.grad(
        of, list(leaves.values()), back, allow_unused=True, materialize_grads=True
    )
    return dict(zip(leaves, values, strict=True))
