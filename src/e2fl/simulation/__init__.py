"""Clients simulated in this process, in parallel threads, or in tasks of Ray."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from e2fl.algorithms import AnyAlgorithm
from e2fl.config.experiment import Experiment
from e2fl.data import FederatedData
from e2fl.errors import ConfigError
from e2fl.models import Model
from e2fl.simulation.attacked import AttackedFederation
from e2fl.simulation.client_memory import Memories
from e2fl.simulation.simulator import SimulatedFederation

SLOW = 10.0  # seconds; loading compiled code takes less, compiling it takes more
COMPILING = "compiling for this machine; this happens once and takes about a minute"


def simulated(
    experiment: Experiment,
    data: FederatedData,
    algorithm: AnyAlgorithm,
    model: Model,
    *,
    warn: Callable[[str], None],
    memories: Path | None = None,
) -> SimulatedFederation:
    """Return the simulated federation of a run. memories: the folder of what clients keep."""
    # With fewer clients than the default of clients_per_round, all of them take part.
    few = len(data.population) < algorithm.clients_per_round
    if few and algorithm.clients_per_round != type(algorithm).clients_per_round:
        raise ConfigError(
            f"algorithm.clients_per_round is {algorithm.clients_per_round}, "
            f"but there are only {len(data.population)} clients"
        )
    make: Callable[..., SimulatedFederation] = SimulatedFederation
    attack, runtime = experiment.build.attack(), experiment.build.runtime()
    if attack is not None:
        attackers = attack.attackers(data.population, experiment.seed)
        make = partial(AttackedFederation, attack=attack, attackers=attackers)
    elif runtime is not None:
        try:
            from e2fl.simulation.cluster import RayFederation
        except ModuleNotFoundError as error:
            raise ConfigError("runtime 'ray' needs Ray: pip install 'e2fl[ray]'") from error
        make = partial(RayFederation, runtime=runtime)
    learner = experiment.build.learner(model)
    slow = threading.Timer(SLOW, warn, [COMPILING])
    slow.start()
    try:
        learner.engine.warm()
    finally:
        slow.cancel()
    threads = experiment.threads
    return make(data, algorithm, learner, threads=threads, memories=Memories(memories))
