"""A ledger in memory, and tiny runs of the demo."""

from functools import cache

import pytest

from paper.ledger import Run, read_ledger

ORIGIN = {"command": "e2fl run demo", "commit": "c0ffee", "machine": {"instructions": "AVX2"}}
TINY = [  # changes to FairMNISTRotate
    "data.source=bundled",
    "data.clients=10",
    "data.samples_per_client=8",
    "model.channels=[2, 2]",
    "model.hidden=4",
    "learner.epochs=1",
    "algorithm.clients_per_round=10",
    "rounds=3",
    "evaluate_every=1",
]


@cache
def _ledger():
    return read_ledger()


@pytest.fixture
def ledger():
    return list(_ledger())


def line(number, mean, **more):
    return {"round": number, "clients": {"mean": mean, "variance": 1.0}, "bytes": {}} | more


def make_run(method="e2fl", seed=0, rounds=((1, 50.0),), **more):
    """A run with a mean over clients at each of these rounds."""
    values = {
        "experiment": "demo",
        "method": method,
        "seed": seed,
        "overrides": {},
        "settings": {},
        "planned": 60,
        "finished": True,
        "rounds": tuple(line(*values) for values in rounds),
        "summary": {"bytes": {}, "bits": {}},
        "origin": ORIGIN,
    }
    return Run(**values | more)
