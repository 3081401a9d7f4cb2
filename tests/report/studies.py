"""Studies made by hand, for tests of what the page says about them."""

from dataclasses import replace

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
    names = np.repeat(np.array(list(groups), dtype=object), [len(values) for values in lists])
    clients = [f"c{position}" for position in range(len(accuracy))]
    parts = {"client": clients, "group": names, "n": float(test_rows), "accuracy": accuracy}
    return pd.DataFrame(parts)


def row_of(parts, *, seed=0, mib=1.0, grouped=True, **more):
    """Return the row of a frame: measures of these clients, and other records by their names."""
    found = metrics.fairness(parts["accuracy"], parts["group"] if grouped else None)
    groups = {name: found["groups"][name] for name in parts["group"].unique() if grouped}
    ways = {
        f"{way}_{of}": mib * 2**20 for way in ("up", "down") for of in ("per_client_round", "total")
    }
    record = {"clients": found["clients"], "group": found["group"], "groups": groups, "bytes": ways}
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
    alone = next((one for one in methods if one.alone), None)
    compared = (one if one is alone else replace(one, baseline=alone) for one in methods)
    return Study("made by hand", "no data", tuple(compared), **more)
