"""The loop of one run, and all that the runner asks an algorithm: the only module of this package that does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Experiment
from e2fl.data import Client, ClientId, GroupId
from e2fl.models import Model, Params
from e2fl.ranking import Mask
from e2fl.rounds import Federation, Round, Traffic, UnseenScores, run
from e2fl.runs.records import GroupsAre
from e2fl.wire import Nothing


class Runtime(Federation, Protocol):
    """A federation whose run can be interrupted and resumed."""

    traffic: Traffic

    def rewind(self, number: int) -> None:
        """Clients continue as they were after this round."""
        ...

    def forget(self, before: int) -> None:
        """The run will not be resumed from any round before this one."""
        ...

    def welcome(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Score clients that never took part; a fault of one of them is recorded, never raised."""
        ...

    def notices(self) -> list[str]:
        """What went wrong besides training since the last call: a kind, a colon, the reason."""
        ...


@dataclass(frozen=True)
class Loop:
    """One run's algorithm, clients and model."""

    experiment: Experiment
    algorithm: AnyAlgorithm
    federation: Runtime
    model: Model

    @property
    def first(self) -> int:
        """The number of the first round: 1, or 0 for an algorithm that prepares."""
        return self.algorithm.first_round

    @property
    def last(self) -> int:
        return self.last_of(self.experiment.rounds)

    def last_of(self, asked: int) -> int:
        """The number of the last round if this many are asked for."""
        return self.algorithm.rounds(asked, self.federation.population)

    def is_regular(self, number: int) -> bool:
        """Whether this round is evaluated also when it is not the last one."""
        return self.algorithm.improves and number > 0 and number % self.experiment.evaluate_every == 0

    @cached_property
    def fresh(self) -> Round:
        """The state before the first round."""
        start = self.algorithm.start(self.model, self.federation.population, self.experiment.seed)
        return Round(self.first - 1, start)

    def rounds(self, resume: Round | None) -> Iterator[Round]:
        return run(
            self.algorithm,
            self.federation,
            self.model,
            rounds=self.experiment.rounds,
            seed=self.experiment.seed,
            evaluate_every=self.experiment.evaluate_every,
            resume=resume or self.fresh,
        )

    def models(self, state: Any) -> Mapping[str, Params | Mask]:
        return self.algorithm.models(state)

    def metadata(self, state: Any) -> Mapping[str, Any]:
        return self.algorithm.notes(state)

    def assignments(self, state: Any) -> Mapping[ClientId, GroupId] | None:
        """The last known group of each client; None where groups are declared, or there are none."""
        return self.algorithm.found(state)

    def assignments_before(self, state: Any) -> Mapping[ClientId, GroupId]:
        """The groups that clients are in when the round after this state begins."""
        return self.algorithm.carried(state) or {}

    def membership(self, state: Any, served: Mapping[ClientId, GroupId]) -> GroupsAre | None:
        """How the algorithm knows the group of a client. served: the groups that clients were served as."""
        if self.assignments(state) is not None:
            return "found"
        return "declared" if served else None

    @property
    def warning(self) -> str:
        """Why results on such data need care; empty if nothing is wrong."""
        return self.algorithm.caution(self.model, self.federation.population)

    @property
    def trains_alone(self) -> bool:
        """Whether clients send nothing."""
        return self.algorithm.up is Nothing
