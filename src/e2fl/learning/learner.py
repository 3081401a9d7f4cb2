"""The learner: training and evaluation of a model on the data of one client."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, one_hot, softmax
from typing_extensions import Doc

from e2fl.construct import Checked, Limits
from e2fl.data.federated import Examples
from e2fl.errors import DataError
from e2fl.evaluation import Tally, total
from e2fl.learning.autograd import AutogradEngine, Loss, Losses, Schedule, Slope
from e2fl.learning.compiled_engine import engine_for
from e2fl.metrics.measures import OwnMeasure
from e2fl.models import Model, Params, Supernet
from e2fl.randomness import stream
from e2fl.rankings.order import Mask, Ranking, rank_of
from e2fl.torch_streams import TorchStream

SCORING_BATCH = 500  # fixed, because sums must not depend on the memory of the machine


@dataclass(frozen=True)
class Settings(Checked):
    """Settings of local training."""

    section: ClassVar[str] = "learner"

    learning_rate: Annotated[
        float, Doc("of SGD on weights: FedAvg and all other dense methods"), Limits(above=0)
    ] = 0.01
    score_rate: Annotated[
        float, Doc("of training on the scores of edges: E2FL, FRL, FedPM"), Limits(above=0)
    ] = 0.1
    momentum: Annotated[float, Doc("of SGD; at least 0, below 1"), Limits(least=0, below=1)] = 0.9
    weight_decay: Annotated[
        float, Doc("added to the gradient as a multiple of the weights or scores"), Limits(least=0)
    ] = 1e-4
    epochs: Annotated[
        int, Doc("passes over its own data that a client makes in a round"), Limits(least=1)
    ] = 2
    batch_size: Annotated[int, Doc("examples in a training step"), Limits(least=1)] = 8
    round_decay: Annotated[
        float, Doc("both rates are multiplied by this after every round"), Limits(above=0, most=1)
    ] = 1.0
    local_cosine: Annotated[bool, Doc("both rates follow a cosine over the local epochs")] = False

    def rate(self, round_number: int, epoch: int, epochs: int, *, scores: bool = False) -> float:
        """Return the rate of weights or scores in one local epoch (from 0) of a round (from 1)."""
        rate = self.score_rate if scores else self.learning_rate
        rate *= self.round_decay ** max(0, round_number - 1)
        if self.local_cosine:
            rate *= (1 + math.cos(math.pi * epoch / epochs)) / 2
        return rate


@dataclass
class Meter:
    """The work a client has done, for the report."""

    examples: int = 0  # processed in training steps, counted each time
    grouping_passes: float = 0.0  # passes over its training data, spent to find its group
    # Entropy of its ballots, the least that a coder with the same model would need.
    ballot_bits: float = 0.0
    losses: Losses = field(default_factory=Losses)  # of its training steps


@dataclass(frozen=True)
class Learner:
    """A model, the settings of training, and the random streams of one client in one round."""

    model: Model
    engine: AutogradEngine
    supernet: Supernet
    initial: Params  # dense weights before the first round
    settings: Settings
    seed: int
    round_number: int = 0
    client_id: int = 0
    meter: Meter = field(default_factory=Meter)  # the work done so far
    measures: Sequence[OwnMeasure] = ()  # the user's own, computed where models are evaluated

    @property
    def rate(self) -> float:
        """The learning rate of weights in the first local epoch of this round."""
        return self.settings.rate(self.round_number, 0, self.settings.epochs)

    def fit_scores(
        self, ranking: Ranking, examples: Examples, *, part: int = 0, loss: Loss | None = None
    ) -> Ranking:
        """Train scores from the order of this ranking, and return their ranking (edge-popup).

        part: numbers several fits of one client in one round; each has its own order of batches.
        loss: as in `fit`.
        """
        self.model.require_rankable()
        batches = self.batches(examples, part=part, loss=loss, scores=True)
        scores = self.engine.fit_scores(self.supernet, self.supernet.scores(ranking), batches)
        if not all(np.isfinite(score).all() for score in scores.values()):
            raise diverged("scores")
        return {name: rank_of(score) for name, score in scores.items()}

    def fit(
        self,
        params: Params,
        examples: Examples,
        *,
        epochs: int | None = None,
        toward: Params | None = None,
        proximal: float = 0.0,
        purpose: str = "batches",
        loss: Loss | None = None,
    ) -> Params:
        """Train dense weights by SGD from `params`, which are not changed, and return them.

        toward, proximal: adds `proximal / 2` times the squared distance to `toward` to the loss, as
        in Ditto.
        purpose: names the random stream of the batches; fits with different purposes see different
        orders.
        loss: called with the outputs of a batch [examples, classes] and its labels; returns what to
        minimise, one number; it must not draw random numbers. Default: the mean cross-entropy.
        Compiled loops are used with any loss.
        """
        batches = self.batches(examples, epochs=epochs, purpose=purpose, loss=loss)
        return self.engine.fit(params, batches, toward=toward, proximal=proximal)

    def batches(
        self,
        examples: Examples,
        *,
        epochs: int | None = None,
        purpose: str = "batches",
        part: int = 0,
        loss: Loss | None = None,
        scores: bool = False,
    ) -> Schedule:
        """Return the batches of a fit, for algorithms with their own training loop.

        scores: the batches carry the rate of scores, not that of weights.
        """
        settings, place = self.settings, (self.round_number, self.client_id, part)
        epochs = epochs or settings.epochs
        rng = stream(self.seed, purpose, *place)
        noise = None
        if self.model.draws:
            draws = stream(self.seed, f"dropout in {purpose}", *place)
            noise = TorchStream(draws, self.engine.device)
        self.meter.examples += epochs * len(examples)
        rates = [settings.rate(self.round_number, n, epochs, scores=scores) for n in range(epochs)]
        orders = [(rng.permutation(len(examples)), rate) for rate in rates]
        constant = (settings.batch_size, settings.momentum, settings.weight_decay)
        return Schedule(examples, orders, *constant, noise, loss, self.meter.losses)

    def gradient(self, params: Params, examples: Examples) -> Params:
        """Return the gradient of the mean loss over all examples."""

        def slope(outputs: Tensor, rows: slice) -> Tensor:
            labels = examples.labels(rows)
            classes, low, high = outputs.shape[1], labels.min(), labels.max()
            if not 0 <= low <= high < classes:
                raise DataError(f"labels must be 0 to {classes - 1}, not {low} to {high}")
            labels = labels.to(outputs.device)
            self.meter.losses.add(cross_entropy(outputs.double(), labels), len(labels))
            right = one_hot(labels, classes)
            return (softmax(outputs.double(), dim=1) - right) / len(examples)

        self.meter.examples += len(examples)
        return self._gradient(params, examples, slope)

    def _gradient(self, params: Params, examples: Examples, slope: Slope) -> Params:
        """Return the gradient of a function of the outputs; slope: its derivative."""
        total: Params = {name: torch.zeros_like(value) for name, value in params.items()}
        for rows in _chunks(slice(0, len(examples))):
            for name, value in self.engine.gradient(params, examples, rows, slope).items():
                total[name] += value
        return total

    def loss(self, params: Params, examples: Examples) -> float:
        """Return the mean loss over all examples."""
        return self.tally(params, examples).mean_loss

    def tally(self, params: Params, examples: Examples) -> Tally:
        """Return the counts of correct predictions and errors, and the sum of the loss."""
        return self.tallies(params, [(examples, slice(0, len(examples)))])[0]

    def tallies(self, params: Params, pieces: Sequence[tuple[Examples, slice]]) -> list[Tally]:
        """Return the counts of one model on rows of several sets of examples."""
        chunks = [(examples, chunk) for examples, rows in pieces for chunk in _chunks(rows)]
        inputs = (examples.inputs(chunk) for examples, chunk in chunks)
        outputs = iter(self.engine.outputs_of(params, inputs))
        return [
            total(_tally(next(outputs), examples.labels(chunk)) for chunk in _chunks(rows))
            for examples, rows in pieces
        ]

    def own_measures(self, params: Params, examples: Examples) -> dict[str, float]:
        """Return the user's own measures on all of these examples."""
        rows = slice(0, len(examples))
        inputs = (examples.inputs(chunk) for chunk in _chunks(rows))
        outputs = torch.cat(self.engine.outputs_of(params, inputs)).double().cpu().numpy()
        labels = examples.labels(rows).cpu().numpy()
        return {measure.name: measure(labels, outputs) for measure in self.measures}

    def weights_of(self, model: Params | Mask) -> Params:
        """Return the weights themselves, or the subnetwork that a mask selects."""
        first = next(iter(model.values()))
        if isinstance(first, torch.Tensor):
            return cast(Params, model)  # a model is all tensors or all masks
        return self.supernet.subnetwork(cast(Mask, model))

    def entropy_gradient(
        self, models: Sequence[Mask] | Sequence[Params], examples: Examples
    ) -> NDArray[np.float64]:
        """Return the gradient of the mean output entropy by the share of each model in a uniform
        mixture of models, all masks or all weights.

        One forward and backward pass over the examples, for any number of models; labels are not
        used.
        """
        masks = [
            {name: np.ravel(np.asarray(part)) for name, part in model.items()} for model in models
        ]
        frozen = self.supernet.weights
        if isinstance(next(iter(models[0].values())), torch.Tensor):  # shares of weights of 1
            frozen = {name: torch.ones_like(weight) for name, weight in self.initial.items()}
        mixed = {
            name: weight * _shares(masks, name).view(weight.shape)
            for name, weight in frozen.items()
        }

        def slope(outputs: Tensor, rows: slice) -> Tensor:
            logs = log_softmax(outputs.double(), dim=1)
            entropy = -(logs.exp() * logs).sum(dim=1, keepdim=True)
            return -logs.exp() * (logs + entropy) / len(examples)

        found = self._gradient(mixed, examples, slope)
        gradient = np.zeros(len(masks))
        for name, weight in frozen.items():
            # Summed in double precision, because the masks, and so their gradients, differ little.
            edges = (found[name] * weight).view(-1).double().numpy()
            gradient += [float(np.dot(edges, mask[name].astype(np.float64))) for mask in masks]
        return gradient


def diverged(what: str) -> DataError:
    """Return the error for non-finite values after training, such as scores."""
    rate = "score_rate" if what == "scores" else "learning_rate"
    return DataError(
        f"training diverged (non-finite {what}); lower learner.{rate} or check this client's data"
    )


def build_learner(model: Model, settings: Settings, seed: int, device: str = "cpu") -> Learner:
    """Return the learner of a run, with the fastest engine that accepts the network."""
    # An algorithm that ranks edges rejects a network without supernetwork when it starts.
    supernet = Supernet({}, {}, {}) if model.why_unranked else model.supernet(seed)
    return Learner(
        model, engine_for(model, device), supernet, model.initial_weights(seed), settings, seed
    )


def _chunks(rows: slice) -> Iterator[slice]:
    """Yield slices of at most SCORING_BATCH examples."""
    for first in range(rows.start, rows.stop, SCORING_BATCH):
        yield slice(first, min(first + SCORING_BATCH, rows.stop))


def _tally(outputs: Tensor, labels: Tensor) -> Tally:
    predicted = outputs.argmax(dim=1)
    loss = float(cross_entropy(outputs.double(), labels, reduction="sum"))
    tally = Tally(len(labels), int((predicted == labels).sum()), loss)
    if outputs.shape[1] != 2:
        return tally
    return replace(
        tally,
        true_positive=int(((predicted == 1) & (labels == 1)).sum()),
        false_positive=int(((predicted == 1) & (labels == 0)).sum()),
        false_negative=int(((predicted == 0) & (labels == 1)).sum()),
    )


def _shares(masks: Sequence[Mapping[str, NDArray[Any]]], layer: str) -> torch.Tensor:
    """Return, for each edge of a layer, the fraction of masks that keep it, or its mean weight."""
    counts = np.zeros(len(masks[0][layer]), dtype=np.float32)
    for mask in masks:
        counts += mask[layer]
    return torch.from_numpy(counts / np.float32(len(masks)))
