"""Participation: which clients take part in a round.

The paper draws clients uniformly (`uniform`). `by_group` reserves seats for every group, so that no
group is without a client in a round; clients of small groups are then asked more often, which the
report shows. Every policy can be combined with a model of availability: clients that are away at
random, or at certain hours of the day. A client that is away is asked for nothing, whatever the
algorithm.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from typing_extensions import Doc

from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import ConfigError, expect, require_setting
from e2fl.randomness import stream

Draw = Callable[[int], list[ClientId]]  # draws this many clients for the coming round
Groups = Mapping[ClientId, GroupId]


@dataclass(frozen=True)
class Ask:
    """Which clients are asked in a round, and for what."""

    clients: Sequence[ClientId]
    layers: tuple[str, ...] | None = None  # of the replies, by name; None: the whole model
    # A preparation only finds groups; what it trains is not used later.
    kind: Literal["train", "prepare"] = "train"
    evaluate: bool = True  # False: do not evaluate this round unless it is the last


@dataclass(frozen=True)
class Participation(ABC):
    """A participation policy. Its fields are its settings.

    The same seed draws the same clients for every algorithm.
    """

    away: Annotated[float, Doc("probability that a client is away in a round")] = 0.0
    day: Annotated[
        int,
        Doc("rounds in a day, if clients are available only at certain hours; 0: they always are"),
    ] = 0
    hours: Annotated[
        float, Doc("of 24 in which a client is available; each group has its own time zone")
    ] = 12.0

    def __post_init__(self) -> None:
        self._require(0 <= self.away < 1, "away", "at least 0 and below 1")
        self._require(self.day >= 0, "day", "0 or more rounds")
        self._require(0 < self.hours <= 24, "hours", "above 0 and at most 24")

    def _require(self, allowed: bool, setting: str, rule: str) -> None:
        require_setting(allowed, f"participation.{setting}", rule, getattr(self, setting))

    def draw(
        self,
        count: int,
        population: Population,
        groups: Groups,
        *,
        round_number: int,
        seed: int,
    ) -> list[ClientId]:
        """Draw at most `count` clients, in rising order, none of them twice.

        groups: the group of each client as far as the server knows it: declared, clustered, or last
        reported.
        """
        present = self.present(population, round_number, seed)
        chosen = self.choose(count, present, groups, stream(seed, "select", round_number))
        everyone = present is population.ids
        return sorted(self._checked(chosen, population.declared if everyone else set(present)))

    def _checked(self, chosen: Any, present: Container[ClientId]) -> set[ClientId]:
        """Return the chosen clients if all are present and distinct; errors name the wrong one."""
        chosen = expect(chosen, Collection, self, "choose")  # type: ignore[type-abstract]
        name = f"{type(self).__name__}.choose"
        seen: set[ClientId] = set()
        for client in chosen:
            if client not in present:
                raise ConfigError(
                    f"{name} returned client {client!r}, which is not among those that are present"
                )
            if client in seen:
                raise ConfigError(f"{name} returned client {client} twice")
            seen.add(int(client))
        return seen

    def present(self, population: Population, round_number: int, seed: int) -> Sequence[ClientId]:
        """Return the clients that are available in a round.

        This does not depend on what the server knows of groups.
        """
        clients: Sequence[ClientId] = population.ids
        if self.day:
            groups = population.declared_groups
            zones = 1 + max(groups.values(), default=0)
            # Clients that declare no group live anywhere.
            spread = stream(seed, "time zones").random(len(clients)).tolist()
            # In fractions, because rounding would shift some hours from one day to the next.
            now = Fraction(round_number % self.day, self.day)
            length = Fraction(str(self.hours)) / 24
            clients = [
                client
                for client, anywhere in zip(clients, spread, strict=True)
                if (now + _zone(groups.get(client), zones, anywhere)) % 1 < length
            ]
        if self.away:
            here = stream(seed, "availability", round_number).random(len(clients)) >= self.away
            clients = [client for client, is_here in zip(clients, here, strict=True) if is_here]
        return clients

    @abstractmethod
    def choose(
        self, count: int, present: Sequence[ClientId], groups: Groups, rng: np.random.Generator
    ) -> list[ClientId]:
        """Choose at most `count` of the clients that are present."""


@dataclass(frozen=True)
class Uniform(Participation):
    """Every client is equally likely to take part, as in the paper."""

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Groups, rng: np.random.Generator
    ) -> list[ClientId]:
        drawn = rng.choice(len(present), size=min(count, len(present)), replace=False)
        return [present[position] for position in drawn]


@dataclass(frozen=True)
class ByGroup(Participation):
    """Every group gets seats in every round; the remaining seats are drawn uniformly.

    With fewer seats than groups, the groups are drawn. Clients whose group is not known compete for
    the remaining seats only; where no group is known, this is `uniform`.
    """

    seats: Annotated[int, Doc("reserved for each group")] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.seats >= 1, "seats", "at least 1")

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Groups, rng: np.random.Generator
    ) -> list[ClientId]:
        members: dict[GroupId, list[ClientId]] = {}
        for client in present:
            if client in groups:
                members.setdefault(groups[client], []).append(client)
        chosen: list[ClientId] = []
        for seat in range(min(self.seats, count)):
            waiting = [group for group in sorted(members) if len(members[group]) > seat]
            if seat == 0:
                queues = {group: rng.permutation(members[group]).tolist() for group in waiting}
            for position in rng.permutation(len(waiting)).tolist():
                if len(chosen) < count:
                    chosen.append(queues[waiting[position]][seat])
        taken = set(chosen)
        rest = [client for client in present if client not in taken]
        return chosen + Uniform().choose(count - len(chosen), rest, groups, rng)


@dataclass(frozen=True)
class Everyone(Participation):
    """Every client that is present takes part, whatever `clients_per_round` says."""

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Groups, rng: np.random.Generator
    ) -> list[ClientId]:
        return list(present)


def _zone(group: GroupId | None, zones: int, anywhere: float) -> Fraction:
    return Fraction(anywhere) if group is None else Fraction(group, zones)


PARTICIPATION: dict[str, type[Participation]] = {
    "uniform": Uniform,
    "by_group": ByGroup,
    "everyone": Everyone,
}
