"""The time and memory of whole rounds, also when many more clients exist than take part."""

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figure, Goal, ratios, seconds
from benchmarks.work import Pictures, logistic, paper_lenet
from e2fl.algorithms import AnyAlgorithm
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fedavg import FedAvg
from e2fl.data.federated import FederatedData
from e2fl.data.sets.fair_mnist_rotate import FairMNISTRotate
from e2fl.errors import DataError
from e2fl.learning import Learner, Settings
from e2fl.learning.compiled_engine import engine_for
from e2fl.models import Model
from e2fl.rounds import Server
from e2fl.simulation.simulator import SimulatedFederation

Results = tuple[list[Figure], list[Goal]]
LENET = Settings(learning_rate=0.01, epochs=2, batch_size=8)
LOGISTIC = Settings(learning_rate=0.03, momentum=0.0, weight_decay=0.0, epochs=1, batch_size=10)


def learner_for(model: Model, settings: Settings) -> Learner:
    return Learner(
        model, engine_for(model), model.supernet(0), model.initial_weights(0), settings, 0
    )


class Rounds:
    """A federation after its first round, so that one-time work is not measured."""

    def __init__(
        self, algorithm: AnyAlgorithm, data: FederatedData, model: Model, settings: Settings
    ):
        self.algorithm, self.data = algorithm, data
        self.federation = SimulatedFederation(data, algorithm, learner_for(model, settings))
        self.server = Server(
            algorithm, model, data.population, rounds=10**9, seed=0, evaluate_every=10**9
        )
        self.next()

    def next(self) -> None:
        """One round: ask, train, take the replies."""
        replies = self.federation.train(self.server.ask())
        if replies.faults:
            raise RuntimeError(f"not every client trained: {replies.faults}")
        self.server.take(replies)

    def close(self) -> None:
        self.federation.pool.shutdown()


def timed(
    algorithm: AnyAlgorithm, data: Pictures, model: Model, settings: Settings, repeats: int
) -> list[float]:
    rounds = Rounds(algorithm, data, model, settings)
    found = seconds(rounds.next, repeats)
    rounds.close()
    return found


def fedavg_lenet(repeats: int) -> list[float]:
    """FedAvg at paper scale: 25 of 1000 clients, 233 images, two epochs in batches of 8."""
    return timed(FedAvg(clients_per_round=25), Pictures(), paper_lenet(), LENET, repeats)


def fedavg_logistic(repeats: int) -> list[float]:
    """FedAvg on a tiny model: 10 of 1000 clients, 60 images, one epoch in batches of 10."""
    return timed(FedAvg(clients_per_round=10), Pictures(samples=60), logistic(), LOGISTIC, repeats)


def growth(repeats: int) -> tuple[list[float], list[float]]:
    """Rounds of ten clients out of 1,000 and out of 100,000, measured alternately."""
    few, many = (
        Rounds(
            E2FL(clients_per_round=10), Pictures(clients=clients, samples=60), logistic(), LOGISTIC
        )
        for clients in (1_000, 100_000)
    )
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        found[0].append(statistics.median(seconds(few.next, 5)))
        found[1].append(statistics.median(seconds(many.next, 5)))
    few.close()
    many.close()
    return found


def rounds(quick: bool) -> Results:
    """Rounds at paper scale, and rounds with many more clients in the population."""
    repeats = 2 if quick else 5
    e2fl = timed(
        E2FL(clients_per_round=25),
        Pictures(),
        paper_lenet(),
        Settings(epochs=2, batch_size=8),
        repeats,
    )
    dense = fedavg_lenet(repeats)
    few, many = growth(4 * repeats)
    figures = [
        Figure("round of E2FL, LeNet, 25 of 1000 clients", "s", tuple(e2fl)),
        Figure("round of FedAvg, LeNet, 25 of 1000 clients", "s", tuple(dense)),
        Figure("round of E2FL, logistic regression, 10 of 1,000 clients", "s", tuple(few)),
        Figure("round of E2FL, logistic regression, 10 of 100,000 clients", "s", tuple(many)),
    ]
    grown = Figure("time of a round, 100,000 clients to 1,000", "x", ratios(many, few))
    return figures, [Goal(grown, 1.2, 1.05, smaller_is_better=True)]


def memory() -> Results:
    """Peak memory of one round and one evaluation of E2FL at paper scale, in its own process."""
    code = "from benchmarks.federation import peak_of_a_round; peak_of_a_round()"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(shown.stdout)
    peak = Figure(
        "peak memory, E2FL at paper scale", "GB", (found["peak"],), f"data: {found['data']}"
    )
    return [], [Goal(peak, 2, 1, smaller_is_better=True)]


def peak_of_a_round() -> None:
    """Run one round, evaluate every client, and print the peak memory of this process in GB."""
    data: FederatedData
    try:
        data = FairMNISTRotate()
    except DataError:
        data = Pictures()  # without MNIST's files; the same memory in training, less for the data
    rounds = Rounds(
        E2FL(clients_per_round=25), data, paper_lenet(), Settings(epochs=1, batch_size=8)
    )
    rounds.federation.evaluate(1, rounds.algorithm.serve(rounds.server.state, data.population.ids))
    print(json.dumps({"peak": _peak_bytes() / 1e9, "data": data.name}))


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux a child inherits its parent's peak in getrusage; VmHWM is the process's own.
        return 1024 * int(
            next(
                line for line in status.read_text().splitlines() if line.startswith("VmHWM")
            ).split()[1]
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
