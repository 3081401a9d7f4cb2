"""A simulated federation in which some clients are malicious."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from e2fl.algorithms.e2fl import E2FL
from e2fl.attacks import Attack, Collusion
from e2fl.data.federated import Client, ClientId
from e2fl.evaluation import Score
from e2fl.grouping import OneGroup
from e2fl.learning import Learner
from e2fl.rankings.messages import ExactInvitation, Invitation
from e2fl.rankings.order import mask_layers
from e2fl.rounds import Replies, RoundRequest
from e2fl.simulation.simulator import SimulatedFederation
from e2fl.wire import Message


class AttackedFederation(SimulatedFederation):
    """A simulated federation in which some clients are malicious."""

    def __init__(
        self, *parts: Any, attack: Attack, attackers: frozenset[ClientId], **settings: Any
    ) -> None:
        super().__init__(*parts, **settings)
        self.attack, self.attackers = attack, attackers
        self.forged: Mapping[ClientId, Any] = {}
        self.malicious: dict[ClientId, Score] = {}  # their scores at the last evaluation

    def train(self, request: RoundRequest) -> Replies:
        """Let the malicious clients agree on what they reply; then let every client train.

        They are honest while groups are being found, so as not to be recognised.
        """
        asked = sorted(self.attackers & set(request.inbox))
        self.forged = self._forged(asked, request) if asked and request.ask.kind == "train" else {}
        return super().train(request)

    def evaluate(
        self, round_number: int, inbox: Mapping[ClientId, Message], then: RoundRequest | None = None
    ) -> Mapping[ClientId, Score]:
        """Let all clients evaluate, and return the scores of the honest ones."""
        scores = dict(super().evaluate(round_number, inbox, then))
        self.malicious = {client: scores.pop(client) for client in self.attackers & scores.keys()}
        return scores

    def _forged(self, asked: Sequence[ClientId], request: RoundRequest) -> Mapping[ClientId, Any]:
        delivered, _ = self._deliver({client: request.inbox[client] for client in asked})

        def honest(client_id: ClientId) -> Any:
            client = self._client(client_id, request.round_number)
            learner = self._learner(client_id, request.round_number)
            return self.algorithm.train(delivered[client_id], client, learner)

        replies = dict(self._each("train", honest, asked))
        origins = {
            client: self.algorithm.origin(delivered[client], reply) or {}
            for client, reply in replies.items()
        }
        return self.attack.forge(
            Collusion(
                replies,
                origins,
                self._invitation(delivered[asked[0]]),
                self._share(asked, request),
                self.learner.model.keep,
            )
        )

    def _invitation(self, message: Message) -> ExactInvitation | None:
        if isinstance(message, Invitation) and isinstance(self.algorithm, E2FL):
            sent = self.algorithm.decoded(message, self.learner)
            rankings, keep = sent.rankings.values(), self.learner.model.keep
            masks = [mask_layers(own, keep) for own in rankings] or sent.models.values()
            return ExactInvitation(sent.ranking, tuple(masks))
        return None

    def _share(self, asked: Sequence[ClientId], request: RoundRequest) -> float:
        """Return the share of the global vote of these clients: with groups, each has one vote."""
        groups = self.population.declared_groups
        if isinstance(getattr(self.algorithm, "grouping", None), OneGroup):
            groups = {}
        sizes = Counter(groups.get(client, 0) for client in request.inbox)
        shares = sum(1 / sizes[groups.get(client, 0)] for client in asked)
        return shares / max(1, len(set(groups.values())))

    def _reply(self, message: Message, client: Client, learner: Learner) -> Message:
        if client.id in self.forged:
            forged: Message = self.forged[client.id]
            return forged
        return super()._reply(message, client, learner)

    def _client(self, client: ClientId, before: int) -> Client:
        whole = super()._client(client, before)
        malicious = client in self.attackers
        return self.attack.poison(whole, self.data.classes) if malicious else whole
