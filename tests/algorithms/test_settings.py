"""Settings without meaning are refused where an object is made, by the name of the setting."""

import math

import numpy as np
import pytest

from e2fl.algorithms import ALGORITHMS
from e2fl.attacks import ATTACKS
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.participation import PARTICIPATION
from e2fl.rankings.ballots import BALLOTS, Boundary
from e2fl.rankings.votes import VOTES

KINDS = ALGORITHMS | GROUPINGS | PARTICIPATION | dict(BALLOTS) | dict(VOTES) | dict(ATTACKS)
WRONG = {
    "fedavg": {"clients_per_round": [0], "trim": [0.6, -0.1], "finetune_epochs": [-1]},
    "fedprox": {"proximal": [-1, math.inf]},
    "ditto": {"proximal": [-0.1]},
    "qffl": {"q": [-1, math.nan]},
    "term": {"tilt": [math.inf]},
    "afl": {"learning_rate": [0], "mixture_rate": [-1], "over": ["rows"]},
    "fairfed": {"beta": [-1]},
    "ifca": {"averaging": ["median"]},
    "propfair": {"baseline": [0.2]},
    "fedmgda": {"deviation": [-0.1], "server_rate": [0]},
    "fedfv": {"alpha": [1.1], "tau": [-1]},
    "aaggff": {"cdf": ["beta"]},
    "groupavg": {"smoothing": [1001]},
    "fedpm": {"reset": [0]},
    "local": {"epochs": [0]},
    "e2fl": {
        "absent": ["sometimes"],
        "inside": ["none"],
        "reading": ["signs"],
        "incumbents": [-1, 1e-4, 1001, math.nan, math.inf],
        "smoothing": [-1, 1e-4, 1001, math.nan],
        "own_vote": [(-1.0,), (1.0, 1e-4), (math.nan,), (1.0, 2000.0)],
        "downlink": [Boundary()],
    },
    "rank_clustering": {"groups": [0], "start": ["best"], "sample_edges": [-1]},
    "lowest_loss": {"clustered": [-1], "forced": [-1]},
    "by_group": {"seats": [0], "away": [1, -0.1]},
    "buckets": {
        "buckets": [1, 257],
        "finer": [0, 200],
        "near": [math.nan],
        "uneven": [(0.5, 0.4), (0.5, 1.0), (math.nan,), tuple(np.linspace(0.1, 0.9, 300))],
    },
    "moves": {"steps": [64], "near": [math.nan]},
    "boundary": {"band": [0.1], "reach": [0]},
    "trimmed_borda": {"trim": [0.5, -0.1], "least": [2]},
    "none": {"place": ["middle"], "groups": [0], "clients": [0], "fraction": [1]},
}
CASES = [
    (name, setting, value)
    for name, settings in WRONG.items()
    for setting, values in settings.items()
    for value in values
]


@pytest.mark.parametrize(("name", "setting", "value"), CASES)
def test_settings_without_meaning_are_refused(name, setting, value):
    kind = KINDS[name]
    with pytest.raises(ConfigError, match=rf"{kind.section}\.{setting} must be"):
        kind(**{setting: value})


def test_settings_that_exclude_each_other_are_refused():
    for settings in ({"finer": 2, "uneven": (0.5,)}, {"buckets": 8, "uneven": (0.5,)}):
        with pytest.raises(ConfigError, match="uneven"):
            KINDS["buckets"](**settings)
