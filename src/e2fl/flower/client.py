"""The client app: what a node does with a message.

Torch is imported when there is something to compute, not when Flower loads the app.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from e2fl.data.federated import Client

LoadClient = Callable[[Context], "Client | Iterable[Client]"]


def client_app(experiment: str | Path, load_client: LoadClient | None = None) -> ClientApp:
    """Return the app for the nodes of this experiment, a TOML file or the name of a shipped one.

    load_client: loads the node's own data, as one client or several. Default: the clients of the
    experiment's data set whose ids are `partition-id` or `partition-ids` in the node configuration.
    """
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        from e2fl.flower.messages import POPULATION
        from e2fl.flower.node import Node

        node = Node(experiment, context, load_client)
        query = message.metadata.message_type == POPULATION
        work = node.identify if query else node.handle
        return Message(work(message.content), reply_to=message)

    app.query("population")(handle)
    app.train()(handle)
    app.evaluate()(handle)
    return app
