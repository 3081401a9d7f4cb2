"""What every algorithm and grouping promises; the registries are read by themselves."""

from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fairfed import FairFed
from e2fl.algorithms.fedavg import FedAvg, Shared
from e2fl.algorithms.frl import FRL
from e2fl.algorithms.groupavg import GroupAvg
from e2fl.algorithms.ifca import IFCA
from e2fl.algorithms.term import TERM
from e2fl.construct import fields_of
from e2fl.grouping import GROUPINGS, LowestLoss, RankClustering
from e2fl.rankings.ballots import Buckets, Moves
from e2fl.testing import check_algorithm
from e2fl.testing.contract import CHECKS, Problem
from e2fl.testing.toy import Toy

SETTINGS = {
    "local": {"epochs": 4},
    "afl": {"learning_rate": 1.0},
    "ifca": {"groups": 2},
}  # a little problem's own
INSIDE = Toy(clients=6, groups=2, classes=2, inside=True, styles=True)
INFERRED = LowestLoss(groups=2)
CLUSTERED = LowestLoss(groups=2, clustered=2)


def grouping(name):
    make = GROUPINGS[name]
    settings = {"groups": 2, "clustered": 2 if name != "lowest_loss" else 0}
    return make(**{key: value for key, value in settings.items() if key in fields_of(make)})


weights = partial(E2FL, reading="weights")
coded = partial(E2FL, downlink=Buckets(64))
ALGORITHMS_WITH_SETTINGS = {
    **{name: make(**SETTINGS.get(name, {})) for name, make in ALGORITHMS.items()},
    **{f"e2fl {name}": E2FL(grouping=grouping(name)) for name in GROUPINGS},
    "e2fl clustered": E2FL(grouping=CLUSTERED),
    "e2fl forced": E2FL(grouping=LowestLoss(groups=2, forced=2)),
    "own vote": E2FL(own_vote=(0.5, 1.0), absent="members", grouping=INFERRED),
    "weights rank_clustering": weights(grouping=RankClustering(groups=2)),
    "weights coarse": weights(
        ballot=Buckets(16), downlink=Buckets(64), own_vote=(0.5, 1.0), grouping=INFERRED
    ),
    "frl weights": FRL(reading="weights", smoothing=2.0),
    "buckets": coded(ballot=Buckets(5), grouping=INFERRED),
    "buckets clustered": coded(ballot=Buckets(16), grouping=RankClustering(groups=2)),
    "moves": E2FL(ballot=Moves(), downlink=Buckets(8), incumbents=2.0),
    "moves recommended": E2FL(
        ballot=Moves(), downlink=Buckets(12, finer=8, near=0.08), smoothing=5.0
    ),
    "fedavg finetune": FedAvg(finetune_epochs=2),
    "ifca finetune": IFCA(groups=2, finetune_epochs=2),
    "ifca oracle": IFCA(oracle_groups=True),
    "groupavg lowest_loss": GroupAvg(smoothing=2, grouping=INFERRED),
}
PROBLEMS = {
    name: Problem(
        replace(algorithm, clients_per_round=5),
        rounds=25 if name == "afl" else 10,
        accuracy=60.0 if "moves" in name or name == "buckets" else 70.0,  # 33 % by guessing
    )
    for name, algorithm in ALGORITHMS_WITH_SETTINGS.items()
}
PROBLEMS |= {
    "inside": Problem(E2FL(clients_per_round=5, absent="present_only"), INSIDE),
    "weights inside": Problem(weights(clients_per_round=5), INSIDE),
    "majority inside": Problem(
        coded(clients_per_round=5, ballot=Buckets(16), inside="majority"), INSIDE
    ),
    "fairfed inside": Problem(FairFed(clients_per_round=6), INSIDE),
    "ifca gradient": Problem(
        IFCA(clients_per_round=8, groups=2, averaging="gradient"), rounds=40, accuracy=55.0
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_contract(name):
    for check in CHECKS.values():
        check(PROBLEMS[name])


# The checks can fail.


@dataclass(frozen=True)
class Untrained(FedAvg):
    def aggregate(self, state, replies):
        return state


@dataclass(frozen=True)
class Overwriting(FedAvg):
    def aggregate(self, state, replies):
        for reply in replies.values():
            state.params["fc1.weight"].copy_(reply.params["fc1.weight"])
        return Shared(dict(state.params))


@dataclass(frozen=True)
class LastOneWins(FedAvg):
    def aggregate(self, state, replies):
        return Shared(list(replies.values())[-1].params)


@dataclass(frozen=True)
class Dicing(FedAvg):
    def train(self, message, client, learner):
        update = super().train(message, client, learner)
        return replace(update, params={k: v + torch.rand_like(v) for k, v in update.params.items()})


@dataclass(frozen=True)
class Remembering(FedAvg):
    seen: list = field(default_factory=list)

    def aggregate(self, state, replies):
        self.seen.append(len(replies))
        after = super().aggregate(state, replies)
        return Shared({name: value + len(self.seen) for name, value in after.params.items()})


@dataclass(frozen=True)
class Trusting(TERM):
    tilt: float = 10.0

    def check(self, state, client, reply):
        return reply


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Untrained(), "a_toy_task_is_learnt"),
        (Overwriting(), "aggregate_changes_none_of_its_arguments"),
        (LastOneWins(), "the_order_of_replies_does_not_matter"),
        (Trusting(), "absurd_numbers_do_no_harm"),
        (Dicing(), "equal_seeds_give_equal_runs"),
        (Remembering(), "resumed_equals_uninterrupted"),
    ],
)
def test_a_broken_promise_is_found(broken, check):
    with pytest.raises((AssertionError, StopIteration)):
        CHECKS[check](Problem(replace(broken, clients_per_round=5)))


def test_check_algorithm_names_the_broken_promise():
    with pytest.raises(AssertionError, match="accuracy is only"):
        check_algorithm(Untrained(clients_per_round=5))
