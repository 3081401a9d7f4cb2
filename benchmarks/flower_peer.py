# mypy: ignore-errors
"""FedAvg in Flower's simulation; a script that takes the folder of the task and its data.

Flower's workers import this file by name, so they get the folder from the environment.
"""

import json
import os
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

FOLDER = Path(os.environ.setdefault("E2FL_PEER_TASK", sys.argv[-1]))
TASK = json.loads((FOLDER / "task.json").read_text())


def network() -> nn.Module:
    from e2fl.networks import lenet, mlp

    return lenet((1, 28, 28), 10) if TASK["model"] == "lenet" else mlp((1, 28, 28), 10, hidden=())


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    return np.load(FOLDER / "x.npy", mmap_mode="r"), np.load(FOLDER / "y.npy", mmap_mode="r")


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client: the usual PyTorch loop."""
    torch.set_num_threads(1)
    images, labels = data()
    number = int(context.node_config["partition-id"])
    x = torch.from_numpy(images[number].astype(np.float32)) * TASK["scale"] + TASK["shift"]
    y = torch.from_numpy(np.array(labels[number]))
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=TASK["learning_rate"],
        momentum=TASK["momentum"],
        weight_decay=TASK["weight_decay"],
    )
    for _ in range(TASK["epochs"]):
        for rows in torch.randperm(len(y)).split(TASK["batch_size"]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    """FedAvg that records the time of each round."""

    seconds: list[float] = []  # noqa: RUF012  # one list for the one instance there is

    def configure_train(self, *arguments, **named):
        self.start_of_round = time.perf_counter()
        return super().configure_train(*arguments, **named)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        trained = sum(not reply.has_error() for reply in replies)
        if trained != TASK["clients_per_round"]:
            raise RuntimeError(
                f"{trained} of {TASK['clients_per_round']} clients trained in round {server_round}"
            )
        result = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.start_of_round)
        return result


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    share = TASK["clients_per_round"] / TASK["clients"]
    strategy = Timed(
        fraction_train=share, fraction_evaluate=0.0, min_available_nodes=TASK["clients"]
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        train_config=ConfigRecord({}),
        num_rounds=TASK["rounds"] + 1,
    )
    (FOLDER / "seconds.json").write_text(json.dumps(strategy.seconds))


if __name__ == "__main__":
    import flower_peer

    run_simulation(
        server_app=flower_peer.server_app,
        client_app=flower_peer.client_app,
        num_supernodes=TASK["clients"],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": TASK["cores"]},
        },
    )
