"""The small experiment that tests change; it takes a fraction of a second."""

from e2fl.config.experiment import from_dict

TOY = {
    "name": "toy",
    "rounds": 6,
    "evaluate_every": 2,
    "checkpoint_seconds": 0.0,
    "data": {"name": "e2fl.testing.toy:Toy"},
    "model": {"name": "mlp", "hidden": [24]},
    "learner": {"learning_rate": 0.1, "batch_size": 8, "epochs": 2},
    "algorithm": {"name": "e2fl", "clients_per_round": 4},
}


def toy_with(*, data=None, algorithm=None, **others):
    """Return the experiment with these settings added to data and algorithm, and others replaced.

    An algorithm of another name has the same number of clients in a round.
    """
    added = {"data": data, "algorithm": algorithm}
    sections = {name: TOY[name] | (section or {}) for name, section in added.items()}
    return from_dict(TOY | sections | others)
