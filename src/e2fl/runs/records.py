"""The records of a run, typed: an evaluated round (a line of history.jsonl) and summary.json.

Keys on disk are the names of these fields; a field that has its default is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Spread = Mapping[str, float]  # `METRICS` of accuracies: mean, worst10 and so on

FAILED = (
    "training diverged: its loss rose far above that of guessing, and models are no better than "
    "always predicting the commonest class; lower learner.learning_rate (or score_rate)"
)

# Which groups the group measures are over: those that the data declares or, where it declares
# none, those that the algorithm found.
GroupsAre = Literal["declared", "found"]


@dataclass(frozen=True, kw_only=True)
class View:
    """The results of clients with one of the models they evaluate."""

    clients: Spread
    group: Spread | None  # over groups; None where there are none
    groups: Mapping[str, Mapping[str, float]]  # by name: clients, accuracy, loss; f1 of two classes
    groups_are: GroupsAre | None = None
    diverged: int = 0  # clients whose model has a loss that is absurd or not finite
    protected: Mapping[str, float] | None = None  # unprivileged minus privileged group
    loss: Mapping[str, Mapping[str, float] | None] | None = None  # of a summary: mean and std
    measures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the user's own


@dataclass(frozen=True, kw_only=True)
class Measures(View):
    """Every metric of one evaluation: of the clients' own models, and of others they evaluate."""

    views: Mapping[str, View] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Evaluation(Measures):
    """One evaluated round: a line of history.jsonl."""

    round: int
    bytes: Mapping[str, int]  # since the run began: up_total, down_total, served_total
    asked: int  # clients asked to train in this round
    answered: int
    faults: Mapping[str, int]  # by kind, since the previous line
    metadata: Mapping[str, Any]  # measures that the algorithm adds
    inference: Mapping[str, Any] | None = None  # how well groups were recovered, if inferred
    validation: Measures | None = None  # on validation examples, if the data has any
    # The share of the mask that one voter could change, in each group and in the global vote.
    influence: Mapping[str, Any] | None = None
    training_loss: float | None = None  # mean over the clients that trained in this round


@dataclass(frozen=True)
class Budget:
    """The amount of training of a run, for a comparison of methods."""

    client_trainings: int  # how often a client trained
    client_epochs: float  # passes over a client's own training data, over all trainings
    examples: int  # training examples processed, with repetitions


@dataclass(frozen=True, kw_only=True)
class Summary(Measures):
    """The summary of a finished run: summary.json."""

    algorithm: str
    label: str
    dataset: str
    rounds: int
    seed: int
    version: str
    membership: GroupsAre | None  # how the algorithm knows the group of a client; None: no groups
    trains_alone: bool  # clients send nothing
    metadata: Mapping[str, Any]  # measures that the algorithm adds
    bytes: Mapping[str, float]
    seconds: Mapping[str, float]  # total, per_round
    data: Mapping[str, Any]
    inputs: Mapping[str, Any]  # shape, classes, groups, and names of groups and labels
    environment: Mapping[str, str]
    client_models: str  # what happened to the models that clients keep: none, kept, or dropped
    title: str = ""  # the algorithm's name in tables
    order: int = 0  # its position in tables
    warnings: Sequence[str] = ()  # of the algorithm, about this data
    own_measures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # title, unit, ...
    budget: Budget | None = None
    bits: Mapping[str, float | None] | None = None  # per edge and in total; None: nothing is sent
    participation: Mapping[str, Mapping[str, float]] | None = None  # how often clients were asked
    inference: Mapping[str, Any] | None = None
    validation: Measures | None = None  # on validation examples, if the data has any
    attack: Mapping[str, Any] | None = None  # malicious clients, and how well they are served
    unseen: Mapping[str, Any] | None = None  # results of clients kept out of training
    failed: bool = False  # training diverged to a model that is no better than guessing


def divergence_warnings(measured: Mapping[str, Any]) -> list[str]:
    """Return warnings about diverged models in a line of history or a summary."""
    views = {"": measured, **(measured.get("views") or {})}
    failed = [FAILED] if measured.get("failed") else []
    counts = {name: int(view.get("diverged", 0)) for name, view in views.items()}
    return failed + [
        f"the models of {'1 client' if count == 1 else f'{count:,} clients'}"
        f"{f' (view {name})' if name else ''} have losses that are absurd or not finite, so their "
        "accuracy means nothing: training diverged; lower learner.learning_rate (or score_rate), "
        "or check the data of these clients"
        for name, count in counts.items()
        if count
    ]


def numbers_of(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return every number of a record by its path, such as group/worst10 or groups/G1/accuracy."""
    numbers: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            numbers |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{prefix}{key}"] = value
    return numbers
