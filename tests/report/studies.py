"""Studies made by hand, for tests of what the page says about them."""

import numpy as np
import pandas as pd

from e2fl import metrics
from e2fl.report.study import Method, Study, with_derived
from e2fl.runs.records import numbers_of


def parts_of(groups, clients_each=10, test_rows=100_000):
    """All clients of a group reach the accuracy given for it, or the accuracies given for them."""
    lists = [np.atleast_1d(value) for value in groups.values()]
    lists = [values if len(values) > 1 else np.repeat(values, clients_each) for values in lists]
    accuracy = np.concatenate(lists).astype(float)
    names = [[name] * len(values) for name, values in zip(groups, lists, strict=True)]
    return pd.DataFrame(
        {
            "client": [f"c{place}" for place in range(len(accuracy))],
            "group": np.concatenate(names).astype(object),
            "n": float(test_rows),
            "accuracy": accuracy,
        }
    )


def row_of(parts, *, seed=0, mib=1.0, grouped=True, **more):
    """Return the row of a frame: measures of these clients, and other records by their names."""
    found = metrics.fairness(parts["accuracy"], parts["group"] if grouped else None)
    groups = {name: found["groups"][name] for name in parts["group"].unique() if grouped}
    sent = {
        "up_per_client_round": mib * 2**20,
        "down_per_client_round": mib * 2**20,
        "up_total": mib * 2**23,
        "down_total": mib * 2**23,
    }
    record = {"clients": found["clients"], "group": found["group"], "groups": groups, "bytes": sent}
    return {"seed": seed, "round": 1, **with_derived(numbers_of(record | more))}


def method(
    label,
    *by_seed,
    alone=False,
    view=False,
    grouped=True,
    first_seed=0,
    mib=1.0,
    test_rows=100_000,
    **more,
):
    seeds = range(first_seed, first_seed + len(by_seed))
    frames = [parts_of(groups, test_rows=test_rows) for groups in by_seed]
    rows = [
        row_of(parts, seed=seed, mib=0.0 if alone else mib, grouped=grouped, **more)
        for seed, parts in zip(seeds, frames, strict=True)
    ]
    parts = pd.concat([p.assign(seed=seed) for seed, p in zip(seeds, frames, strict=True)])
    parts = parts if grouped else parts.assign(group="")
    return Method(label, pd.DataFrame(rows), parts, alone=alone, view=view)


def study(*methods, **more):
    return Study("made by hand", "no data", tuple(methods), **more)
