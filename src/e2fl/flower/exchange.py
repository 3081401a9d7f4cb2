"""One exchange with clients: what is encoded for them, and what is decoded from their replies.

`FlowerFederation` and `AlgorithmStrategy` differ in how messages travel; what is in them is decided here, once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, RecordDict

from e2fl.data.federated import ClientId, Population
from e2fl.errors import WireError
from e2fl.evaluation import Score
from e2fl.flower.evaluation_message import EvaluationMessage, comparable, offered_groups
from e2fl.flower.records import ImpostorError, Reply, RequestMetadata, payload, read_reply, request_content
from e2fl.flower.run_config import RunConfig
from e2fl.flower.transport import NodeId, NodeReplies
from e2fl.models import ModelSpec
from e2fl.rounds import Replies
from e2fl.wire import Message


@dataclass(frozen=True)
class Exchange:
    """The messages of one exchange, ready to send."""

    metadata: RequestMetadata
    inbox: Mapping[ClientId, Message]
    nodes: Mapping[ClientId, NodeId]  # of the clients that can be reached, in rising order of client
    contents: Mapping[NodeId, RecordDict]
    sizes: Mapping[ClientId, int]  # bytes sent to each client

    def read(self, received: NodeReplies) -> "ReceivedReplies":
        """Return the replies of the clients that were asked."""
        replies: dict[ClientId, Reply] = {}
        faults: dict[ClientId, str] = {}
        for client, node in self.nodes.items():
            if node in received.faults:
                faults[client] = received.faults[node]
            elif node in received.replies:
                try:
                    replies[client] = read_reply(received.replies[node], client, self.metadata.round_number)
                except ImpostorError as error:
                    faults[client] = f"impostor: {error}"
                except WireError as error:
                    faults[client] = f"malformed: {error}"
        absent = sorted(self.inbox.keys() - self.nodes.keys())
        return ReceivedReplies(replies, faults | dict.fromkeys(absent, "missing: no node is connected for this client"))


@dataclass(frozen=True)
class ReceivedReplies:
    """Replies that are addressed correctly but not decoded, and why others are missing."""

    replies: Mapping[ClientId, Reply]  # in rising order of client
    faults: Mapping[ClientId, str]  # "kind: reason"

    def decode(self, kind: type[Message], spec: ModelSpec, population: Population, config: RunConfig) -> Replies:
        """Return the replies to a training request, as far as the run configuration lets them count."""
        answers: dict[ClientId, Message] = {}
        malformed: dict[ClientId, str] = {}
        for client, reply in self.replies.items():
            try:
                answers[client] = kind.from_bytes(reply.raw, spec)
            except WireError as error:
                malformed[client] = f"malformed: {error}"
        few = _too_few(answers, population, config)
        counted = {client: answer for client, answer in answers.items() if client not in few}
        losses = {client: reply.meter.losses.mean for client, reply in self.replies.items()}
        return Replies(
            counted,
            dict(sorted((few | dict(self.faults) | malformed).items())),
            {client: loss for client, loss in losses.items() if loss is not None},
        )

    def decode_scores(
        self, inbox: Mapping[ClientId, Message], spec: ModelSpec, population: Population
    ) -> tuple[dict[ClientId, Score], dict[ClientId, str]]:
        """Return the scores of clients that evaluated the models in `inbox`, and what is wrong with the others."""
        offered = {client: offered_groups(inbox[client]) for client in self.replies}
        scores: dict[ClientId, Score] = {}
        malformed: dict[ClientId, str] = {}
        for client, reply in self.replies.items():
            try:
                message = EvaluationMessage.from_bytes(reply.raw, spec)
                scores[client] = message.to_score(client, population, offered[client])
            except WireError as error:
                malformed[client] = f"malformed: {error}"
        kept, different = comparable(scores, offered)
        return kept, dict(sorted((dict(self.faults) | malformed | different).items()))


def prepare(
    inbox: Mapping[ClientId, Message], nodes: Mapping[ClientId, NodeId], spec: ModelSpec, metadata: RequestMetadata
) -> Exchange:
    """Encode the inbox for the clients whose nodes are known. A message that clients share is encoded once."""
    reachable = {client: node for client, node in sorted(nodes.items()) if client in inbox}
    encoded: dict[int, tuple[ArrayRecord, int]] = {}
    for client in reachable:
        message = inbox[client]
        if id(message) not in encoded:
            raw = message.to_bytes(spec)
            encoded[id(message)] = (payload(raw), len(raw))
    return Exchange(
        metadata,
        inbox,
        reachable,
        {node: request_content(encoded[id(inbox[client])][0], metadata) for client, node in reachable.items()},
        {client: encoded[id(inbox[client])][1] for client in reachable},
    )


def _too_few(answers: Mapping[ClientId, Message], population: Population, config: RunConfig) -> dict[ClientId, str]:
    """Return the clients whose replies do not count because the round or their group has too few."""
    if len(answers) < config.least_answers:
        return dict.fromkeys(answers, f"few: {len(answers)} replies; least-answers is {config.least_answers}")
    group = population.declared
    present = Counter(group[client] for client in answers)
    least = config.least_answers_per_group
    return {
        client: f"few: {present[group[client]]} replies of group {group[client]}; least-answers-per-group is {least}"
        for client in answers
        if group[client] is not None and present[group[client]] < least
    }
