"""What every algorithm and grouping promises; the registries are read by themselves."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from e2fl.algorithms import ALGORITHMS
from e2fl.algorithms.e2fl import E2FL
from e2fl.algorithms.fairfed import FairFed
from e2fl.algorithms.fedavg import FedAvg, Shared
from e2fl.algorithms.fedpm import FedPM
from e2fl.algorithms.frl import FRL
from e2fl.algorithms.groupavg import GroupAvg
from e2fl.algorithms.ifca import IFCA
from e2fl.algorithms.term import TERM
from e2fl.construct import fields_of
from e2fl.grouping import GROUPINGS, LowestLoss
from e2fl.rankings.ballots import Buckets
from e2fl.testing import check_algorithm
from e2fl.testing.contract import CHECKS, Problem
from e2fl.testing.toy import Toy

SETTINGS = {
    "local": {"epochs": 4},
    "afl": {"learning_rate": 1.0},
    "ifca": {"groups": 2},
}  # a little problem's own


def grouping(name):
    make = GROUPINGS[name]
    settings = {"groups": 2, "warm": True}
    return make(**{key: value for key, value in settings.items() if key in fields_of(make)})


INSIDE = Toy(clients=6, groups=2, classes=2, inside=True, styles=True)
PROBLEMS = {
    name: Problem(
        make(clients_per_round=5, **SETTINGS.get(name, {})), rounds=25 if name == "afl" else 10
    )
    for name, make in ALGORITHMS.items()
}
PROBLEMS |= {
    f"e2fl-{name}": Problem(E2FL(clients_per_round=5, grouping=grouping(name)))
    for name in GROUPINGS
}
PROBLEMS |= {
    f"e2fl-weights-{name}": Problem(
        E2FL(clients_per_round=5, reading="weights", grouping=grouping(name))
    )
    for name in GROUPINGS
}
PROBLEMS |= {
    "e2fl-inside": Problem(E2FL(clients_per_round=5, absent="present_only"), INSIDE),
    "e2fl-own_vote": Problem(
        E2FL(
            clients_per_round=5,
            own_vote=(0.5, 1.0),
            absent="members",
            grouping=LowestLoss(groups=2),
        )
    ),
    "e2fl-clustered": Problem(
        E2FL(clients_per_round=5, grouping=LowestLoss(groups=2, clustered=2))
    ),
    "e2fl-weights-clustered": Problem(
        E2FL(
            clients_per_round=5,
            reading="weights",
            ballot=Buckets(16),
            grouping=LowestLoss(groups=2, clustered=2),
        )
    ),
    "frl-weights": Problem(FRL(clients_per_round=5, reading="weights", smoothing=2.0)),
    "e2fl-weights-coarse": Problem(
        E2FL(
            clients_per_round=5,
            reading="weights",
            ballot=Buckets(16),
            downlink=Buckets(64),
            own_vote=(0.5, 1.0),
            grouping=LowestLoss(groups=2),
        )
    ),
    "e2fl-weights-inside": Problem(E2FL(clients_per_round=5, reading="weights"), INSIDE),
    "e2fl-majority": Problem(
        E2FL(clients_per_round=5, inside="majority", absent="init_vote"), INSIDE
    ),
    "fairfed-inside": Problem(FairFed(clients_per_round=6, reweighing=True), INSIDE),
    "ifca-gradient": Problem(
        IFCA(clients_per_round=8, groups=2, averaging="gradient"), rounds=40, accuracy=55.0
    ),
    "ifca-restarts": Problem(IFCA(clients_per_round=5, groups=2, restarts=2, trial_rounds=2)),
    "fedpm-sample": Problem(FedPM(clients_per_round=5, inference="sample"), rounds=25),
    "fedavg-finetune": Problem(FedAvg(clients_per_round=5, finetune_epochs=2)),
    "ifca-finetune": Problem(IFCA(clients_per_round=5, groups=2, finetune_epochs=2)),
    "groupavg-lowest_loss": Problem(
        GroupAvg(clients_per_round=5, smoothing=2, grouping=LowestLoss(groups=2))
    ),
    "ifca-oracle": Problem(IFCA(clients_per_round=5, oracle_groups=True)),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_contract(name, check):
    CHECKS[check](PROBLEMS[name])


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
        return Shared(list(replies.values())[-1].params) if replies else state


@dataclass(frozen=True)
class Impatient(FedAvg):
    def aggregate(self, state, replies):
        return Shared(next(iter(replies.values())).params)


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
        (Impatient(), "aggregate_accepts_no_replies"),
        (Trusting(), "absurd_numbers_do_no_harm"),
        (Dicing(), "equal_seeds_give_equal_runs"),
        (Remembering(), "resumed_equals_uninterrupted"),
    ],
)
def test_a_broken_promise_is_found(broken, check):
    with pytest.raises((AssertionError, StopIteration)):
        CHECKS[check](Problem(replace(broken, clients_per_round=5)))


def test_the_suite_is_offered_to_other_peoples_algorithms():
    check_algorithm(FedAvg(clients_per_round=5))
    with pytest.raises(AssertionError, match="accuracy is only"):
        check_algorithm(Untrained(clients_per_round=5))
