"""Studies made by hand, for tests of what the page says about them."""

import numpy as np

from e2fl import metrics
from e2fl.report.study import Clients, Method, Outcome, Study


def outcome(groups, *, seed=0, clients_each=10, mib=1.0, protected=None, **more):
    """All clients of a group reach the accuracy given for it, or the accuracies given for them."""
    names = list(groups)
    lists = [np.atleast_1d(value) for value in groups.values()]
    lists = [values if len(values) > 1 else np.repeat(values, clients_each) for values in lists]
    accuracy = np.concatenate(lists).astype(float)
    group = np.concatenate([[name] * len(values) for name, values in zip(names, lists, strict=True)])
    found = metrics.fairness(accuracy, group)
    order = {name: found["groups"][name] for name in names}
    clients = Clients(
        np.array([f"c{place}" for place in range(len(accuracy))], dtype=object),
        group.astype(object),
        accuracy,
        np.full(len(accuracy), 50.0),
        {n: {f"c{k}": float(accuracy[k]) for k in np.flatnonzero(group == n)} for n in names},
    )
    sent = {"up_per_client_round": mib * 2**20, "down_per_client_round": mib * 2**20, "total": mib * 2**24}
    return Outcome(seed, found["user"], found["group"], order, clients, sent, protected=protected, **more)


def method(label, *by_seed, alone=False, mib=1.0, **more):
    outcomes = tuple(
        outcome(groups, seed=seed, mib=0.0 if alone else mib, **more) for seed, groups in enumerate(by_seed)
    )
    return Method(label, outcomes, alone=alone)


def study(*methods, **more):
    return Study("made by hand", "no data", tuple(methods), **more)
