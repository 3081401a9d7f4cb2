"""Screening of replies: no client outweighs all others by the size of its update or its claim.

The update of a client is its reply minus the weights it was sent. An update whose norm is far above
the median of the round is scaled down to the smallest of the round, so that a false size gains
nothing, and the history says so; `update_limit` of an experiment says how far. With fewer than
three updates the norm of the weights that were sent takes the place of the median. The loss that
comes with a clipped update counts as at most the median of the round: AFL, TERM and q-FFL give
weight to clients with a high loss, and a sign-flipped update keeps its own client's loss high. So
does a claimed loss that is far above the median and above what any honest client has.

The median of a round may be small for a good reason: most clients have learnt all they can, and a
client of a minority has not. So a typical update counts as at least a share of the weights that
were sent, large enough that by default no update below twice the norm of the model is clipped.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from e2fl.algorithms.base import squared_norm
from e2fl.data.federated import ClientId
from e2fl.models import Params
from e2fl.wire import Message

MIN_UPDATES_FOR_MEDIAN = 3  # updates; a median of fewer says little
HIGH_LOSS = 10.0  # per example; guessing among 20,000 classes has a cross-entropy of 10
MIN_TYPICAL_SHARE = 0.3  # the least typical update, as a share of the norm of the weights sent
MIN_LOSS = 0.01  # a gradient is compared as if its loss were at least this


def capped(reply: Any, most: int) -> tuple[Message, str]:
    """Return the reply, claiming at most so many examples, and what was changed; 0: no limit."""
    claimed = getattr(reply, "examples", None)
    if not most or not isinstance(claimed, int) or claimed <= most:
        return reply, ""
    return replace(reply, examples=most), f"claims {claimed} examples, counted as {most}"


@dataclass(frozen=True)
class Size:
    """The norms of an update and of the weights that were sent, and the loss that is claimed."""

    update: float  # a gradient with a loss: relative to the largest one that its loss allows
    sent: float
    loss: float = 0.0
    is_gradient: bool = False


def size_of(reply: Message, origin: Params | None, sent: Message) -> Size | None:
    """Return the size of the update in a reply.

    None if the algorithm does not say what it is measured from.
    """
    field = reply.weights_field()
    if origin is None or field is None:
        return None
    weights = getattr(reply, field)
    moved = {name: weights[name].double() - start for name, start in origin.items()} or weights
    whole = origin or getattr(sent, sent.weights_field() or "", {})
    update, sent_norm = math.sqrt(squared_norm(moved)), math.sqrt(squared_norm(whole))
    loss = getattr(reply, "loss", 0.0)
    if not origin and hasattr(reply, "loss"):
        update /= -math.expm1(-max(loss, MIN_LOSS))  # as that of a cross-entropy: 1 - exp(-loss)
    return Size(update, sent_norm, loss, is_gradient=not origin)


@dataclass(frozen=True)
class Clip:
    """How a reply is reduced, and why."""

    factor: float  # its update is divided by this
    loss: float  # it claims at most this
    reason: str


def clips_of(
    sizes: Mapping[ClientId, Size], limit: float, *, weighs_losses: bool = True
) -> dict[ClientId, Clip]:
    """Return the clips of replies with an update, or a loss, above `limit` times the typical one.

    An update is brought down to the smallest one that is left.
    """
    if not limit or not sizes:
        return {}
    updates = [size.update for size in sizes.values()]
    few = len(sizes) < MIN_UPDATES_FOR_MEDIAN
    median = max(size.sent for size in sizes.values()) if few else statistics.median(updates)
    weights = max((size.sent for size in sizes.values() if not size.is_gradient), default=0.0)
    typical = max(median, MIN_TYPICAL_SHARE * weights)
    smallest = min((update for update in updates if 0 < update <= limit * typical), default=typical)
    loss = statistics.median(size.loss for size in sizes.values())
    loud = math.inf if few or not weighs_losses else limit * max(loss, HIGH_LOSS)
    most_loss = loss if weighs_losses else math.inf
    clips = {}
    for client, size in sizes.items():
        if size.update > limit * typical > 0:
            factor = size.update / smallest
            reason = f"its update is {factor:.3g} times the smallest of the round"
            clips[client] = Clip(factor, most_loss, reason)
        elif size.loss > loud:
            reason = f"claims a loss of {size.loss:.3g}, counted as {loss:.3g}"
            clips[client] = Clip(1.0, most_loss, reason)
    return clips


def clipped(reply: Any, origin: Params, clip: Clip) -> Message:
    """Return the reply with its update and its loss reduced."""
    field = reply.weights_field()
    weights: Params = {}
    for name, value in getattr(reply, field).items():
        start = origin[name].double() if origin else 0.0
        weights[name] = (start + (value.double() - start) / clip.factor).float()
    changed: dict[str, Any] = {field: weights}
    if hasattr(reply, "loss"):
        changed["loss"] = min(reply.loss, clip.loss)
    reduced: Message = replace(reply, **changed)
    return reduced
