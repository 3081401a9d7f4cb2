"""Isik et al., "Sparse Random Networks for Communication-Efficient Federated Learning", ICLR 2023.
The weights are those of the frozen supernetwork. A client turns the global probabilities into
scores (their logits), trains the scores with a newly drawn mask in every step (the gradient passes
through the draw unchanged), and sends one mask. The server counts masks in a Beta distribution for
each edge and resets it after as many rounds as it takes to ask every client once.

Departures: the global probability is the mean of the Beta distribution, not its mode, so that it is
never 0 or 1, where the score would be infinite; all probabilities start at 1/2; scores are trained
with Adam, whose steps do not depend on the scale of the weights, with `learner.momentum` as the
decay of its first moment; `learner.weight_decay` and `model.keep` do not apply; models keep the
edges with a probability of at least 1/2, not those of a drawn mask.

The entropy in the summary is that of the probabilities a mask was drawn from. No coder can need
fewer bits on average, and to reach it the server would have to know these probabilities, so the
figure favours FedPM.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Doc

from e2fl.algorithms.base import Algorithm, ClientModel, ClientModels, Description
from e2fl.construct import Limits
from e2fl.data.federated import Client, ClientId, Population
from e2fl.learning import Learner, diverged
from e2fl.models import Model, Params, is_finite
from e2fl.randomness import stream
from e2fl.rankings.order import Mask
from e2fl.wire import Message, Weights

MARGIN = 1e-4  # probabilities are kept this far from 0 and 1 when they become scores


@dataclass(frozen=True)
class Subnetwork(Message):
    """The edges that are kept."""

    mask: Mask


@dataclass(frozen=True)
class Posterior:
    """The counts of how often each edge was kept by the masks so far."""

    kept: Params
    masks: int
    rounds: int  # counted, since the run began
    reset: int  # rounds after which counting starts again

    @property
    def probabilities(self) -> Params:
        """The mean of Beta(1 + kept, 1 + dropped), edge by edge."""
        return {name: (1 + kept) / (2 + self.masks) for name, kept in self.kept.items()}

    @property
    def mask(self) -> Mask:
        """The edges with a probability of at least 1/2."""
        probabilities = self.probabilities.items()
        return {name: (value.flatten() >= 0.5).numpy() for name, value in probabilities}


@dataclass(frozen=True)
class FedPM(Algorithm[Posterior, Weights, Subnetwork, Subnetwork]):
    """FedPM: clients train probabilities of keeping edges and send a mask drawn from them."""

    reset: Annotated[
        int | None,
        Doc("rounds after which counting starts again; default: clients / clients_per_round"),
        Limits(least=1),
    ] = None

    trains_scores = True

    # On the server.

    def start(self, model: Model, population: Population, seed: int) -> Posterior:
        model.require_rankable()
        reset = self.reset or math.ceil(len(population) / self.clients_per_round)
        none = {layer.name: torch.zeros(layer.shape) for layer in model.spec.layers}
        return Posterior(none, 0, 0, reset)

    def broadcast(
        self, state: Posterior, clients: Sequence[ClientId]
    ) -> Mapping[ClientId, Weights]:
        return dict.fromkeys(clients, Weights(state.probabilities))

    def aggregate(self, state: Posterior, replies: Mapping[ClientId, Subnetwork]) -> Posterior:
        again = int(state.rounds % state.reset > 0)  # 0: counting starts anew
        kept = {name: again * value for name, value in state.kept.items()}
        for reply in replies.values():
            for name, value in kept.items():
                value += torch.from_numpy(reply.mask[name]).view(value.shape)
        masks = again * state.masks + len(replies)
        return replace(state, kept=kept, masks=masks, rounds=state.rounds + 1)

    def serve(self, state: Posterior, clients: Sequence[ClientId]) -> Mapping[ClientId, Subnetwork]:
        return dict.fromkeys(clients, Subnetwork(state.mask))

    def describe(self, state: Posterior) -> Description:
        kept = sum(float(value.sum(dtype=torch.float64)) for value in state.kept.values())
        edges = sum(value.numel() for value in state.kept.values())
        return Description(
            models=lambda: {"global": state.mask},
            metadata={"mean_probability": (edges + kept) / (edges * (2 + state.masks))},
        )

    # On a client.

    def train(self, message: Weights, client: Client, learner: Learner) -> Subnetwork:
        rng = stream(learner.seed, "fedpm", learner.round_number, learner.client_id)
        start = message.params.items()
        scores = {name: value.clamp(MARGIN, 1 - MARGIN).logit() for name, value in start}
        # Without weight decay, which would pull every probability to 1/2: gradients are small.
        betas = (learner.settings.momentum, 0.999)
        optimizer = torch.optim.Adam(list(scores.values()), betas=betas)
        for batch in learner.batches(client.train, scores=True):
            optimizer.param_groups[0]["lr"] = batch.learning_rate
            mask = draw({name: score.sigmoid() for name, score in scores.items()}, rng)
            subnetwork = learner.supernet.subnetwork(mask).items()
            moved = {name: weight.to(learner.engine.device) for name, weight in subnetwork}
            gradients = learner.engine.gradients(moved, batch)
            for name, score in scores.items():
                weight, probability = learner.supernet.weights[name], score.sigmoid()
                score.grad = gradients[name].cpu() * weight * probability * (1 - probability)
            optimizer.step()
        if not is_finite(scores):
            raise diverged("scores")
        trained = {name: score.sigmoid() for name, score in scores.items()}
        bits = (float(entropy(value.double()).sum()) for value in trained.values())
        learner.meter.ballot_bits += sum(bits)
        return Subnetwork(draw(trained, rng))

    def model_for(self, message: Subnetwork, client: Client, learner: Learner) -> ClientModels:
        return ClientModels({"global": ClientModel(message.mask)})


def draw(probabilities: Params, rng: np.random.Generator) -> Mask:
    """Draw a mask: each edge is kept with its probability, independently."""
    return {
        name: rng.random(value.numel(), dtype=np.float32) < value.numpy().reshape(-1)
        for name, value in probabilities.items()
    }


def entropy(probabilities: Tensor) -> Tensor:
    """Return the bits of each edge: those of a coin with its probability."""
    nats: Tensor = torch.special.entr(probabilities) + torch.special.entr(1 - probabilities)
    return nats / math.log(2)
