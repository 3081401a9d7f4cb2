"""Screening of replies: no client outweighs all others by the size of its update or its claim.

The update of a client is its reply minus the weights it was sent. An update whose norm is far above
the median of the round is scaled down to that median, and the history says so; `update_limit` of an
experiment says how far. With fewer than three updates the norm of the weights that were sent takes
the place of the median. The loss that comes with a clipped gradient counts as at most the median of
the round: in AFL, a client whose loss stays high gains weight round after round, and a sign-flipped
gradient keeps its own client's loss high.

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

FEW = 3  # updates; a median of fewer says little
SMALLEST = 0.3  # the least typical update, as a share of the norm of the weights sent


def capped(reply: Any, most: int) -> tuple[Message, str]:
    """Return the reply with its field `examples` at most `most`, and what was changed; 0: no limit
    is known.
    """
    claimed = getattr(reply, "examples", None)
    if not most or not isinstance(claimed, int) or claimed <= most:
        return reply, ""
    return replace(reply, examples=most), f"claims {claimed} examples, counted as {most}"


@dataclass(frozen=True)
class Size:
    """The norms of an update and of the weights that were sent, and the loss that is claimed."""

    update: float
    sent: float
    loss: float = 0.0


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
    norms = math.sqrt(squared_norm(moved)), math.sqrt(squared_norm(whole))
    return Size(*norms, getattr(reply, "loss", 0.0))


def outliers(sizes: Mapping[ClientId, Size], limit: float) -> dict[ClientId, float]:
    """Return the clients with an update above `limit` times the typical one.

    The value is the factor that brings the update down to the median of the round.
    """
    sent = max((size.sent for size in sizes.values()), default=0.0)
    updates = [size.update for size in sizes.values()]
    median = statistics.median(updates) if len(updates) >= FEW else sent
    typical = max(median, SMALLEST * sent)
    if not limit or not typical:
        return {}
    return {
        client: size.update / (median or typical)
        for client, size in sizes.items()
        if size.update > limit * typical
    }


def scaled_down(reply: Any, origin: Params, factor: float, most_loss: float) -> Message:
    """Return the reply with its update divided by `factor`; with a gradient, its loss is at most
    `most_loss`.
    """
    field = reply.weights_field()
    weights: Params = {}
    for name, value in getattr(reply, field).items():
        start = origin[name].double() if origin else 0.0
        weights[name] = (start + (value.double() - start) / factor).float()
    changed: dict[str, Any] = {field: weights}
    if not origin and hasattr(reply, "loss"):
        changed["loss"] = min(reply.loss, most_loss)
    scaled: Message = replace(reply, **changed)
    return scaled
