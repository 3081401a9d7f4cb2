"""The simulator and Flower agree: same seed, same bits; for every algorithm, see test_runs."""

from dataclasses import replace

import numpy as np
import pytest

from e2fl.grouping import GROUPINGS
from e2fl.participation import PARTICIPATION
from e2fl.runs.runner import run_experiment
from tests.flower.grid import assert_equal, on_flower

STEADY = {"name": "e2fl_steady", "clients_per_round": 4}
CLUSTERED = STEADY | {"grouping": {"name": "rank_clustering", "groups": 2}}
VARIANTS = {
    "recommended ballots": {
        "algorithm": STEADY
        | {
            "ballot": {"name": "moves", "steps": 12},
            "downlink": {"name": "buckets", "buckets": 8, "finer": 8, "near": 0.08},
        }
    },
    "coded ballots": {
        "algorithm": STEADY
        | {
            "ballot": {"name": "buckets", "buckets": 5},
            "downlink": {"name": "buckets", "buckets": 16},
            "grouping": {"name": "lowest_loss", "groups": 2, "clustered": 2},
        }
    },
    "ranked weights": {"algorithm": CLUSTERED | {"reading": "weights", "own_vote": [1.0]}},
    "dropout": {
        "algorithm": {"name": "ditto", "clients_per_round": 4},
        "model": {"name": "tests.learning.test_own_networks:Recurrent"},
        "rounds": 2,
    },
    "fine-tuning": {"algorithm": {"name": "fedavg", "clients_per_round": 4, "finetune_epochs": 1}},
    "a turn for each": {"algorithm": {"name": "local", "clients_per_round": 2}, "rounds": 2},
    "a clustering that some miss": {
        "algorithm": CLUSTERED,
        "participation": {"name": "by_group", "away": 0.4},
    },
} | {
    f"participation {name}": {"algorithm": STEADY, "participation": {"name": name, "away": 0.2}}
    for name in PARTICIPATION
    if name != "uniform"
}


VARIANTS |= {
    f"grouping {name}": {
        "algorithm": STEADY | {"name": "e2fl", "grouping": {"name": name, "groups": 2}}
    }
    for name in GROUPINGS
    if name not in ("known", "one")
}


@pytest.mark.parametrize("name", VARIANTS)
def test_both_runtimes_give_the_same_bits(name, toy, tmp_path):
    experiment = replace(toy, **VARIANTS[name])
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


def confident(y_true, outputs):
    """Serve as a user's own measure; not defined for some clients."""
    return float("nan") if y_true[0] == 0 else float(np.ptp(outputs, axis=1).mean())


def test_nodes_send_own_measures_and_validation(toy, tmp_path):
    own = ("tests.flower.test_runtimes_agree:confident",)
    experiment = replace(toy, measures=own, data=toy.data | {"validation_share": 0.2})
    run = on_flower(experiment, tmp_path)
    assert_equal(run, run_experiment(experiment))
    assert run.history[-1]["validation"]["measures"]["confident"]["clients"]["mean"] > 0
