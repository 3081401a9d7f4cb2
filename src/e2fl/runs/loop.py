"""The loop of one run, and all calls of an algorithm: no other module of this package makes them."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from e2fl.algorithms import AnyAlgorithm, types_of
from e2fl.config.experiment import Experiment
from e2fl.data import Client, ClientId, GroupId
from e2fl.models import Model, Params
from e2fl.ranking import Mask
from e2fl.rounds import Federation, Round, Server, Traffic, UnseenScores, run
from e2fl.runs.records import GroupsAre
from e2fl.wire import Nothing


class Runtime(Federation, Protocol):
    """A federation whose run can be interrupted and resumed."""

    traffic: Traffic

    def rewind(self, round_number: int) -> None:
        """Restore the clients to their state after this round."""
        ...

    def forget(self, before: int) -> None:
        """Drop what is only needed to resume from a round before this one."""
        ...

    def evaluate_unseen(self, state: Any, clients: Mapping[ClientId, Client]) -> UnseenScores:
        """Score unseen clients; a fault of one of them is recorded, never raised."""
        ...

    def warnings(self) -> list[str]:
        """Return what went wrong outside training since the last call, as "kind: reason"."""
        ...


class Loop:
    """One run's algorithm, clients and model."""

    def __init__(self, experiment: Experiment, algorithm: AnyAlgorithm, federation: Runtime, model: Model):
        self.experiment, self.algorithm, self.federation, self.model = experiment, algorithm, federation, model
        self.server = self._server(None)
        self.fresh = self.server.done  # the state before the first round
        self.state_type = types_of(algorithm).state
        self.trains_alone = types_of(algorithm).up is Nothing  # clients send nothing
        # Why results on such data need care; empty if nothing is wrong.
        self.warning = "; ".join(algorithm.describe(self.fresh.state).warnings)

    def _server(self, resume: Round | None) -> Server:
        return self.experiment.build_server(self.algorithm, self.model, self.federation.population, resume)

    @property
    def first(self) -> int:
        """The number of the first round: 1, or 0 for an algorithm that prepares."""
        return self.fresh.number + 1

    @property
    def last(self) -> int:
        return self.server.last

    def last_of(self, asked: int) -> int:
        """Return the number of the last round if this many are asked for."""
        return self.algorithm.rounds(asked, self.federation.population)

    def rounds(self, resume: Round | None) -> Iterator[Round]:
        self.server = self._server(resume or self.fresh)
        return run(self.server, self.federation)

    def models(self, state: Any) -> Mapping[str, Params | Mask]:
        return self.algorithm.describe(state).models()

    def metadata(self, state: Any) -> Mapping[str, Any]:
        return self.algorithm.describe(state).metadata

    def assignments(self, state: Any) -> Mapping[ClientId, GroupId] | None:
        """Return the last known group of each client; None if groups are declared, or there are none."""
        return self.algorithm.describe(state).assignments

    def assignments_before(self, state: Any) -> Mapping[ClientId, GroupId]:
        """Return the groups that clients are in when the round after this state begins."""
        described = self.algorithm.describe(state)
        return (described.assignments if described.next_assignments is None else described.next_assignments) or {}

    def membership(self, state: Any, served: Mapping[ClientId, GroupId]) -> GroupsAre | None:
        """Return how the algorithm knows the group of a client. served: the groups that clients were served as."""
        if self.assignments(state) is not None:
            return "found"
        return "declared" if served else None
