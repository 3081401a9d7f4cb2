# mypy: ignore-errors
"""FedAvg in Apple's pfl; run as a script with the folder of the task and its data as argument.

As its guide to fast simulations recommends, one process per core shares the cohort.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
TASK = json.loads((FOLDER / "task.json").read_text())


def start_workers() -> None:
    """Run this script once per core."""
    addresses = ",".join(
        f"localhost:{18_000 + os.getpid() % 1000 + i}" for i in range(TASK["cores"])
    )
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, str(FOLDER)],
            env=os.environ
            | {
                "PFL_WORKER_ADDRESSES": addresses,
                "PFL_WORKER_RANK": str(rank),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(TASK["cores"])
    ]
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):
            for worker in workers:
                worker.kill()  # the others would wait for the failed one
        time.sleep(0.2)
    sys.exit(max(worker.wait() for worker in workers))


def work(rank: int) -> None:
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from torch import nn

    from e2fl.networks import lenet, mlp

    torch.set_num_threads(1)
    np.random.seed(0)  # the same on all workers, so that they draw the same cohort
    images, labels = (np.load(FOLDER / name, mmap_mode="r") for name in ("x.npy", "y.npy"))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            shape = (1, 28, 28)
            self.inner = lenet(shape, 10) if TASK["model"] == "lenet" else mlp(shape, 10, hidden=())

        def forward(self, x):
            return self.inner(x)

        def loss(self, x, y, **_):
            return nn.functional.cross_entropy(self(x), y.long())

        def metrics(self, x, y, **_):
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    def user(number):
        x = torch.from_numpy(images[number].astype(np.float32)) * TASK["scale"] + TASK["shift"]
        return Dataset(raw_data=[x, torch.from_numpy(np.array(labels[number]))])

    class Watch(TrainingProcessCallback):
        def on_train_begin(self, *, model):
            self.marks = [time.perf_counter()]
            return Metrics()

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            self.marks.append(time.perf_counter())
            return False, Metrics()

    users = list(range(TASK["clients"]))
    data = FederatedDataset(user, get_user_sampler("random", users))
    network = Network()
    model = PyTorchModel(
        network,
        lambda parameters, lr: torch.optim.SGD(
            parameters, lr=lr, momentum=TASK["momentum"], weight_decay=TASK["weight_decay"]
        ),
        torch.optim.SGD(network.parameters(), lr=1.0),
    )
    watch = Watch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=TASK["rounds"] + 1,
            evaluation_frequency=10**6,
            train_cohort_size=TASK["clients_per_round"],
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=TASK["epochs"],
            local_learning_rate=TASK["learning_rate"],
            local_batch_size=TASK["batch_size"],
        ),
        callbacks=[watch],
    )
    if rank == 0:
        seconds = [after - before for before, after in itertools.pairwise(watch.marks)]
        (FOLDER / "seconds.json").write_text(json.dumps(seconds))


if __name__ == "__main__":
    if "PFL_WORKER_RANK" in os.environ:
        work(int(os.environ["PFL_WORKER_RANK"]))
    else:
        start_workers()
