"""The client app: what a node does with a message.

Each message may be handled by a new process, so a node builds what it needs, replies, and stores on disk what the next
process needs. Torch is imported when there is something to compute, not when Flower loads the app.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from e2fl.data.federated import Client
    from e2fl.flower.node import Node

LoadClient = Callable[[Context], "Client"]


def client_app(experiment: str | Path, load_client: "LoadClient | None" = None) -> ClientApp:
    """Return the app for the nodes of this experiment, a TOML file or the name of a shipped one.

    load_client: loads the node's own data. Default: the client of the experiment's data set whose id is `partition-id`
    in the node configuration.
    """
    app = ClientApp()

    def node(context: Context) -> "Node":
        from e2fl.flower.node import Node

        return Node.from_context(experiment, context, load_client)

    @app.query("population")
    def population(message: Message, context: Context) -> Message:
        return Message(node(context).identify(message.content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(node(context).train(message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(node(context).evaluate(message.content), reply_to=message)

    return app
