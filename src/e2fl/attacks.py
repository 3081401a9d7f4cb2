"""Malicious clients, for experiments: who they are, and what they do.

An attack changes the data of malicious clients, or their replies; the server does not know who they
are. They collude: those asked in a round share their honest replies before they send anything. They
know what they were sent, not the ballots of honest clients.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from typing_extensions import Doc

from e2fl.construct import Checked, Limits
from e2fl.data.federated import Client, ClientId, Population
from e2fl.errors import ConfigError
from e2fl.models import Params
from e2fl.randomness import stream
from e2fl.rankings.messages import ExactInvitation
from e2fl.rankings.order import Ranking, Ranks, dropped, footrule, invert, mask_layers
from e2fl.rankings.votes import elect


@dataclass(frozen=True)
class Collusion:
    """What the malicious clients of a round know together."""

    replies: Mapping[ClientId, Any]  # what each would honestly reply
    origins: Mapping[ClientId, Params]  # the weights that an update is measured from; {}: zero
    invitation: ExactInvitation | None  # what was sent to one of them, if they train rankings
    share: float  # of the global vote that these clients hold
    keep: float

    @property
    def ballots(self) -> list[Ranking]:
        """The honest rankings of these clients; none if replies hold no rankings."""
        replies = self.replies.values()
        return [ranking for reply in replies for ranking in getattr(reply, "rankings", ())]


@dataclass(frozen=True)
class Attack(Checked):
    """Baseline: the designated clients behave honestly, but are excluded from measures.

    The base class of all attacks. Fields are settings.
    """

    section: ClassVar[str] = "attack"

    place: Annotated[
        Literal["smallest", "random", "largest"], Doc("the groups that malicious clients are in")
    ] = "smallest"
    groups: Annotated[int, Doc("number of groups with malicious clients"), Limits(least=1)] = 1
    clients: Annotated[int, Doc("malicious clients in each of these groups"), Limits(least=1)] = 1
    fraction: Annotated[
        float,
        Doc("share of all clients that is malicious, drawn at random; 0: by place"),
        Limits(least=0, below=1),
    ] = 0.0

    def attackers(self, population: Population, seed: int) -> frozenset[ClientId]:
        """Return the malicious clients; the same for every attack with the same placement."""
        rng = stream(seed, "attackers")
        shuffled = [population.ids[position] for position in rng.permutation(len(population))]
        if self.fraction:
            return frozenset(shuffled[: math.ceil(self.fraction * len(population))])
        members: dict[int, list[ClientId]] = {}
        for client in shuffled:
            members.setdefault(population.declared_groups.get(client, 0), []).append(client)
        groups = sorted(members, key=lambda group: (len(members[group]), group))
        if self.place == "largest":
            groups.reverse()
        elif self.place == "random":
            groups = [groups[position] for position in rng.permutation(len(groups))]
        chosen = frozenset(
            client for group in groups[: self.groups] for client in members[group][: self.clients]
        )
        if len(chosen) == len(population):
            raise ConfigError("attack: every client is malicious; leave some honest")
        return chosen

    def poison(self, client: Client, classes: int) -> Client:
        """Return a malicious client with the data it trains on."""
        return client

    def forge(self, known: Collusion) -> Mapping[ClientId, Any]:
        """Return the replies of the malicious clients of a round."""
        return known.replies


class LabelFlip(Attack):
    """Honest training on wrong labels: class c becomes classes - 1 - c."""

    def poison(self, client: Client, classes: int) -> Client:
        labels = client.train.y
        flipped = np.where(labels >= 0, classes - 1 - labels, labels)
        return replace(client, train=replace(client.train, y=flipped))


@dataclass(frozen=True)
class Scale(Attack):
    """An update many times too large; only for methods whose replies hold weights."""

    factor: Annotated[float, Doc("what an update is multiplied by")] = 900.0

    def forge(self, known: Collusion) -> Mapping[ClientId, Any]:
        return {
            client: self._scaled(reply, known.origins.get(client, {}))
            for client, reply in known.replies.items()
        }

    def _scaled(self, reply: Any, origin: Params) -> Any:
        field = reply.weights_field()
        if field is None:
            return reply
        weights = {
            name: origin.get(name, 0.0) + self.factor * (value - origin.get(name, 0.0))
            for name, value in getattr(reply, field).items()
        }
        return replace(reply, **{field: weights})


@dataclass(frozen=True)
class SignFlip(Scale):
    """The negative of the honest update, enlarged; only for methods whose replies hold weights."""

    factor: Annotated[float, Doc("what an update is multiplied by")] = -30.0


@dataclass(frozen=True)
class Claim(Attack):
    """Claims of many examples and a high loss, for methods that weigh clients by them."""

    examples: Annotated[int, Doc("the number of examples claimed")] = 10**9
    loss: Annotated[float, Doc("the loss claimed")] = 1e6

    def forge(self, known: Collusion) -> Mapping[ClientId, Any]:
        claims = {"examples": self.examples, "loss": self.loss}
        return {
            client: replace(reply, **{key: claims[key] for key in claims if hasattr(reply, key)})
            for client, reply in known.replies.items()
        }


class Reverse(Attack):
    """The reverse of the ranking that the malicious clients would honestly elect."""

    def forge(self, known: Collusion) -> Mapping[ClientId, Any]:
        ballots = known.ballots
        if not ballots:
            return known.replies
        ranking = {
            layer: self.changed(rank, known, [ballot[layer] for ballot in ballots], layer)
            for layer, rank in elect(ballots).items()
        }
        return {
            client: replace(reply, rankings=(ranking,) * len(reply.rankings))
            for client, reply in known.replies.items()
        }

    def changed(self, rank: Ranks, known: Collusion, honest: Sequence[Ranks], layer: str) -> Ranks:
        """Return the forged ranks of a layer. rank: those that their honest ballots elect."""
        return len(rank) - 1 - rank


@dataclass(frozen=True)
class BoundarySwap(Reverse):
    """Edges just below the cut between dropped and kept edges change places with those just above.

    Of their honest vote, the edges nearest below the cut get the highest ranks, and the nearest
    above it the lowest. This moves most edges across the cut for a given share of the vote.
    """

    stealth: Annotated[
        bool, Doc("move no edge further than honest training does, in sum over a layer")
    ] = False

    def changed(self, rank: Ranks, known: Collusion, honest: Sequence[Ranks], layer: str) -> Ranks:
        edges, cut = len(rank), dropped(len(rank), known.keep)
        share = min(known.share, 0.5)
        most = min(round(edges / 2 * share / (1 - share)), cut, edges - cut)
        if self.stealth and known.invitation is not None:
            start = known.invitation.ranking[layer]
            limit = max(footrule(ballot, start) for ballot in honest)
            # The distance grows with the number of edges.
            counts = range(1, most + 1)
            most = bisect_right(counts, limit, key=lambda c: footrule(_swap(rank, cut, c), rank))
        return _swap(rank, cut, most)


@dataclass(frozen=True)
class GroupSpoof(BoundarySwap):
    """Boundary swap in the name of another group, where clients find their group themselves.

    The group is one whose mask is the global one, so that it has no votes yet, or else the
    one that differs most from the global mask.
    """

    def forge(self, known: Collusion) -> Mapping[ClientId, Any]:
        forged = super().forge(known)
        if known.invitation is None or len(known.invitation.masks) < 2:
            return forged
        whole = mask_layers(known.invitation.ranking, known.keep)
        distances = [
            sum(int((mask[layer] != whole[layer]).sum()) for layer in whole)
            for mask in known.invitation.masks
        ]
        group = int(np.argmin(distances) if min(distances) == 0 else np.argmax(distances))
        return {client: replace(reply, groups=(group,)) for client, reply in forged.items()}


ATTACKS: Mapping[str, type[Attack]] = {
    "none": Attack,
    "reverse": Reverse,
    "boundary_swap": BoundarySwap,
    "group_spoof": GroupSpoof,
    "label_flip": LabelFlip,
    "sign_flip": SignFlip,
    "scale": Scale,
    "claim": Claim,
}


def _swap(rank: Ranks, cut: int, count: int) -> Ranks:
    """Exchange this many edges on each side of the cut; all others move together."""
    honest = np.arange(len(rank), dtype=np.int32)
    low, below, above, high = np.split(honest, [cut - count, cut, cut + count])
    return invert(np.concatenate([above, low, high, below]))[rank]
