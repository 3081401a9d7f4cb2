"""Participation: which clients take part in a round.

The paper draws clients uniformly (`uniform`). `by_group` reserves seats for every group, so that no
group is without a client in a round; clients of small groups are then asked more often, which the
report shows. With every policy, clients may be unavailable at random; an unavailable client is
never asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from typing_extensions import Doc

from e2fl.construct import Checked, Limits
from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.errors import ConfigError, expect
from e2fl.randomness import stream

Draw = Callable[[int], list[ClientId]]  # draws this many clients for the coming round
Assignments = Mapping[ClientId, GroupId]


@dataclass(frozen=True)
class Ask:
    """Which clients are asked in a round, and for what."""

    clients: Sequence[ClientId]
    layers: tuple[str, ...] | None = None  # of the replies, by name; None: the whole model
    # A preparation only finds groups; what it trains is not used later.
    kind: Literal["train", "prepare"] = "train"
    evaluate: bool = True  # False: do not evaluate this round unless it is the last


@dataclass(frozen=True)
class Participation(Checked, ABC):
    """A participation policy. Its fields are its settings.

    The same seed draws the same clients for every algorithm.
    """

    section: ClassVar[str] = "participation"

    away: Annotated[
        float, Doc("probability that a client is away in a round"), Limits(least=0, below=1)
    ] = 0.0

    def draw(
        self,
        count: int,
        population: Population,
        groups: Assignments,
        *,
        round_number: int,
        seed: int,
    ) -> list[ClientId]:
        """Draw at most `count` clients, in rising order, none of them twice.

        groups: the group of each client as far as the server knows it: declared, clustered, drawn,
        or last reported.
        """
        present = self.present(population, round_number, seed)
        chosen = self.choose(count, present, groups, stream(seed, "select", round_number))
        everyone = present is population.ids
        return sorted(self._checked(chosen, population.declared if everyone else set(present)))

    def _checked(self, chosen: Any, present: Container[ClientId]) -> set[ClientId]:
        """Return the chosen clients if all are present and distinct; errors name the wrong one."""
        chosen = expect(chosen, Collection, self, "choose")  # type: ignore[type-abstract]
        seen: set[ClientId] = set()
        for client in chosen:
            if client not in present or client in seen:
                what = " twice" if client in seen else ", which is not among those present"
                raise ConfigError(f"{type(self).__name__}.choose returned client {client!r}{what}")
            seen.add(int(client))
        return seen

    def present(self, population: Population, round_number: int, seed: int) -> Sequence[ClientId]:
        """Return the clients that are available in a round.

        This does not depend on what the server knows of groups.
        """
        clients: Sequence[ClientId] = population.ids
        if not self.away:
            return clients
        here = stream(seed, "availability", round_number).random(len(clients)) >= self.away
        return [client for client, is_here in zip(clients, here, strict=True) if is_here]

    @abstractmethod
    def choose(
        self, count: int, present: Sequence[ClientId], groups: Assignments, rng: np.random.Generator
    ) -> list[ClientId]:
        """Choose at most `count` of the clients that are present."""


@dataclass(frozen=True)
class Uniform(Participation):
    """Every client is equally likely to take part, as in the paper."""

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Assignments, rng: np.random.Generator
    ) -> list[ClientId]:
        drawn = rng.choice(len(present), size=min(count, len(present)), replace=False)
        return [present[position] for position in drawn]


@dataclass(frozen=True)
class StratifiedSampling(Participation):
    """Every group gets seats in every round; the remaining seats are drawn uniformly.

    With fewer seats than groups, the groups are drawn. Clients whose group is not known compete for
    the remaining seats only; where no group is known, this is `uniform`.
    """

    seats: Annotated[int, Doc("reserved for each group"), Limits(least=1)] = 1

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Assignments, rng: np.random.Generator
    ) -> list[ClientId]:
        members: dict[GroupId, list[ClientId]] = {}
        for client in present:
            if client in groups:
                members.setdefault(groups[client], []).append(client)
        queues = [rng.permutation(members[group]).tolist() for group in sorted(members)]
        seated: list[ClientId] = []
        for seat in range(min(self.seats, count)):
            waiting = [queue[seat] for queue in queues if len(queue) > seat]
            seated += rng.permutation(waiting).tolist()
        chosen = seated[:count]
        taken = set(chosen)
        rest = [client for client in present if client not in taken]
        return chosen + Uniform().choose(count - len(chosen), rest, groups, rng)


@dataclass(frozen=True)
class Everyone(Participation):
    """Every client that is present takes part, whatever `clients_per_round` says."""

    def choose(
        self, count: int, present: Sequence[ClientId], groups: Assignments, rng: np.random.Generator
    ) -> list[ClientId]:
        return list(present)


PARTICIPATION: dict[str, type[Participation]] = {
    "uniform": Uniform,
    "by_group": StratifiedSampling,
    "everyone": Everyone,
}
