"""The client app: what a node does with a message.

Each message may be handled by a new process, so a node builds what it needs, replies, and stores on
disk what the next process needs. Torch is imported when there is something to compute, not when
Flower loads the app.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from e2fl.data.federated import Client
    from e2fl.flower.node import Node

LoadClient = Callable[[Context], "Client | Iterable[Client]"]


def client_app(experiment: str | Path, load_client: LoadClient | None = None) -> ClientApp:
    """Return the app for the nodes of this experiment, a TOML file or the name of a shipped one.

    load_client: loads the node's own data, as one client or several. Default: the clients of the
    experiment's data set whose ids are `partition-id` or `partition-ids` in the node configuration.
    """
    app = ClientApp()

    def answer(
        message: Message, context: Context, work: "Callable[[Node, RecordDict], RecordDict]"
    ) -> Message:
        from e2fl.flower.node import Node

        node = Node.from_context(experiment, context, load_client)
        return Message(work(node, message.content), reply_to=message)

    @app.query("population")
    def population(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, content: node.identify(content))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, content: node.train(content))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer(message, context, lambda node, content: node.evaluate(content))

    return app
