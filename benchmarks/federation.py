"""The time and memory of whole rounds, also when many more clients exist than take part."""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figure, ratios, seconds
from benchmarks.work import Pictures, logistic, paper_lenet
from e2fl.algorithms import AnyAlgorithm
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fedavg import FedAvg
from e2fl.data.federated import FederatedData
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.errors import DataError
from e2fl.learning import Settings, build_learner
from e2fl.models import Model
from e2fl.rounds import Server
from e2fl.simulation.simulator import SimulatedFederation

LENET = Settings(learning_rate=0.01, epochs=2, batch_size=8)
LOGISTIC = Settings(learning_rate=0.03, momentum=0.0, weight_decay=0.0, epochs=1, batch_size=10)


class Rounds:
    """A federation after its first round, so that one-time work is not measured."""

    def __init__(
        self, algorithm: AnyAlgorithm, data: FederatedData, model: Model, settings: Settings
    ):
        self.algorithm = algorithm
        self.federation = SimulatedFederation(data, algorithm, build_learner(model, settings, 0))
        self.server = Server(
            algorithm, model, data.population, rounds=10**9, seed=0, evaluate_every=10**9
        )
        self.next()

    def next(self) -> None:
        """Run one round: ask, train, take the replies."""
        replies = self.federation.train(self.server.ask())
        if replies.faults:
            raise RuntimeError(f"not every client trained: {replies.faults}")
        self.server.take(replies)

    def timed(self, repeats: int) -> list[float]:
        """Return the seconds of some rounds, and end."""
        times = seconds(self.next, repeats)
        self.federation.pool.shutdown()
        return times


def fedavg_lenet(repeats: int) -> list[float]:
    """Time FedAvg at paper scale: 25 of 1000 clients, 233 images, two epochs in batches of 8."""
    return Rounds(FedAvg(clients_per_round=25), Pictures(), paper_lenet(), LENET).timed(repeats)


def fedavg_logistic(repeats: int) -> list[float]:
    """Time FedAvg on a tiny model: 10 of 1000 clients, 60 images, one epoch in batches of 10."""
    data = Pictures(samples=60)
    return Rounds(FedAvg(clients_per_round=10), data, logistic(), LOGISTIC).timed(repeats)


def growth(repeats: int) -> tuple[list[float], list[float]]:
    """Return the processor time of rounds with ten of 1,000 and ten of 100,000 clients, in turn."""
    few, many = (
        Rounds(E2FL(clients_per_round=10), Pictures(clients, 60), logistic(), LOGISTIC)
        for clients in (1_000, 100_000)
    )
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for rounds, column in zip((few, many), times, strict=True):
            column.append(statistics.median(seconds(rounds.next, 5, time.process_time)))
    few.federation.pool.shutdown()
    many.federation.pool.shutdown()
    return times


def rounds(quick: bool) -> list[Figure]:
    """Measure rounds at paper scale, and rounds with many more clients in the population."""
    repeats = 2 if quick else 5
    e2fl = Rounds(E2FL(clients_per_round=25), Pictures(), paper_lenet(), LENET).timed(repeats)
    few, many = growth(4 * repeats)
    small = "round of E2FL, logistic regression, 10 of"
    grown = ratios(many, few)
    return [
        Figure("round of E2FL, LeNet, 25 of 1000 clients", "s", e2fl),
        Figure("round of FedAvg, LeNet, 25 of 1000 clients", "s", fedavg_lenet(repeats)),
        Figure(f"{small} 1,000 clients", "s", few),
        Figure(f"{small} 100,000 clients", "s", many),
        Figure("processor time of a round, 100,000 clients to 1,000", "x", grown, goal=(1.2, 1.05)),
    ]


def memory(quick: bool) -> list[Figure]:
    """Measure the memory of one round and one evaluation of E2FL, in a process of its own."""
    code = "from benchmarks.federation import peak_of_a_round; peak_of_a_round()"
    shown = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    note, peak = f"data: {shown['data']}", [shown["peak"]]
    return [Figure("peak memory, E2FL at paper scale", "GB", peak, note, goal=(2, 1))]


def peak_of_a_round() -> None:
    """Run one round, evaluate every client, and print the peak memory of this process in GB."""
    data: FederatedData
    try:
        data = FairMNISTRotate()
    except DataError:
        data = Pictures()  # without MNIST's files; the same memory in training, less for the data
    settings = Settings(epochs=1, batch_size=8)
    run = Rounds(E2FL(clients_per_round=25), data, paper_lenet(), settings)
    run.federation.evaluate(1, run.algorithm.serve(run.server.state, data.population.ids))
    print(json.dumps({"peak": _peak_bytes() / 1e9, "data": data.name}))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux a child inherits its parent's peak in getrusage; VmHWM is the process's own.
        lines = status.read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
