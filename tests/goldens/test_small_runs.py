"""Small runs of every algorithm, grouping and ballot give the measures and states they always did.

small_runs.json holds the numbers, from before the project was rebuilt. A digest of the state covers
every bit of what was learned; measures agree to 1e-12. Torch computes losses in float64, and on
another processor the last digits of its exponential differ; FedPM's sigmoid is in float32.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from e2fl.codec import encode
from e2fl.config.experiment import from_dict
from e2fl.runs.records import numbers_of
from e2fl.runs.runner import run_experiment

GOLDEN = json.loads((Path(__file__).parent / "small_runs.json").read_text())
DEMO = {
    "name": "demo",
    "seed": 3,
    "rounds": 3,
    "evaluate_every": 1,
    "data": {"name": "fair_mnist_rotate", "source": "bundled", "clients": 20},
    "model": {"name": "lenet", "channels": [4, 8], "hidden": 16, "keep": 0.5},
    "learner": {
        "learning_rate": 0.01,
        "score_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "epochs": 1,
        "batch_size": 8,
    },
}
TOY = {
    "name": "toy",
    "seed": 1,
    "rounds": 6,
    "evaluate_every": 2,
    "data": {"name": "e2fl.testing.toy:Toy"},
    "model": {"name": "mlp", "hidden": [24]},
    "learner": {"learning_rate": 0.1, "score_rate": 0.1, "batch_size": 8, "epochs": 2},
}
BUCKETS = {"name": "buckets", "buckets": 32}


def demo(name="e2fl", *, rounds=3, participation=None, **settings):
    algorithm = {"name": name, "clients_per_round": 6, **settings}
    return DEMO | {
        "rounds": rounds,
        "algorithm": algorithm,
        "participation": participation or {},
    }


CASES = {
    **{
        f"demo {name}": demo(name)
        for name in ("e2fl", "e2fl_steady", "frl", "fedavg", "qffl", "ifca", "ditto", "term")
    },
    "demo fedpm": demo("fedpm", reset=1),
    "demo local": DEMO | {"algorithm": {"name": "local", "epochs": 2}},
    "demo by_group": demo(participation={"name": "by_group"}),
    "demo everyone": demo(participation={"name": "everyone"}, rounds=1),
    "demo incumbents": demo(incumbents=2),
    "demo smoothing": demo(smoothing=5),
    "demo buckets": demo(ballot=BUCKETS | {"buckets": 16}, downlink=BUCKETS),
    "demo boundary": demo(ballot={"name": "boundary"}, downlink=BUCKETS),
    "demo moves": demo(
        ballot={"name": "moves"}, downlink={"name": "buckets", "buckets": 12, "finer": 8}
    ),
    **{
        f"demo {name}": demo(grouping={"name": name, "groups": 3})
        for name in ("lowest_loss", "one_shot", "binary", "rank_clustering")
    },
    "demo present_only": demo(absent="present_only"),
    **{
        f"toy {name}": TOY | {"algorithm": {"name": name}}
        for name in ("e2fl", "fedavg", "afl", "fairfed", "local")
    },
}
PARTS = [
    "clients",
    "group",
    "groups",
    "loss",
    "views",
    "protected",
    "inference",
    "bytes",
    "bits",
    "budget",
    "participation",
]


def digest_of(state):
    arrays = {}
    encode(state, arrays, "state")
    whole = hashlib.sha256()
    for name in sorted(arrays):
        whole.update(name.encode())
        whole.update(np.asarray(arrays[name]).tobytes())
    return whole.hexdigest()


def numbers(summary, history):
    found = numbers_of({part: summary.get(part) for part in PARTS if summary.get(part)})
    for line in history:
        for path, value in numbers_of(line).items():
            if path in ("clients/mean", "group/worst10", "bytes/up_total", "training_loss"):
                found[f"round {line['round']}: {path}"] = value
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_a_small_run_gives_what_it_always_did(name):
    run = run_experiment(from_dict(CASES[name]))
    assert digest_of(run.state) == GOLDEN[name]["state"]
    tolerance = 1e-8 if name == "demo fedpm" else 1e-12
    golden, measured = GOLDEN[name]["numbers"], numbers(run.summary, run.history)
    known = {path: measured.get(path) for path in golden}  # a newer measure has other paths
    assert known == pytest.approx(golden, rel=tolerance, abs=tolerance)
    without_losses = [
        {key: value for key, value in row.items() if not key.startswith("loss")}
        for row in run.clients
    ]
    rows = json.dumps(without_losses, sort_keys=True)
    assert hashlib.sha256(rows.encode()).hexdigest() == GOLDEN[name]["clients"]


def test_every_golden_run_is_a_case():
    assert set(GOLDEN) == set(CASES)
