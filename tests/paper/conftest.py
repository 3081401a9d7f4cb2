"""A ledger in memory, and tiny runs of FairMNISTRotate."""

import pytest

from paper.ledger import LedgerRun, frame, read_ledger

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


@pytest.fixture(scope="session")
def ledger():
    return tuple(read_ledger())


@pytest.fixture(scope="session")
def ledger_frame(ledger):
    return frame(ledger)


def make_run(method="e2fl", seed=0, rounds=((1, 50.0),), **more):
    """A run with a mean over clients at each of these rounds."""
    lines = [{"round": n, "clients": {"mean": m}, "bytes": {}} for n, m in rounds]
    values = {
        "experiment": "demo",
        "method": method,
        "seed": seed,
        "overrides": {},
        "settings": {},
        "planned": 60,
        "finished": True,
        "rounds": tuple(lines),
        "summary": {"bytes": {}, "bits": {}},
        "origin": ORIGIN,
    }
    return LedgerRun(**values | more)
