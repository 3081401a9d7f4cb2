"""The client app: what a node does when it is asked.

Each message may be handled by a new process, so a node builds what it needs, answers, and keeps on its disk what must
outlive it. Torch is imported when there is something to compute, not when Flower looks at the app.
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
    """The app for nodes of this experiment, a TOML file or the name of a shipped one.

    load_client: brings the node's own data. Default: the experiment's data set, its client of the number that the node
    configuration gives as `partition-id`.
    """
    app = ClientApp()

    def node(context: Context) -> "Node":
        from e2fl.flower.node import Node

        return Node.of(experiment, context, load_client)

    @app.query("population")
    def population(message: Message, context: Context) -> Message:
        return Message(node(context).present(message.content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(node(context).train(message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(node(context).evaluate(message.content), reply_to=message)

    return app
