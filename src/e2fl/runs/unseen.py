"""Unseen clients: the group and the model for a client that took no part in a run."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from e2fl.algorithms import ClientModel, types_of
from e2fl.algorithms.validate import expect_models
from e2fl.data.encoding import Encoded
from e2fl.data.federated import Client, Examples, GroupId
from e2fl.errors import DataError, RunError
from e2fl.evaluation import Tally, total
from e2fl.models import Model, Params
from e2fl.runs import checkpoint
from e2fl.runs.resume import Progress, require_identity
from e2fl.runs.trained import NO_LABEL, TrainedRun
from e2fl.simulation.evaluator import Scoreboard, run_job

UNSEEN = -1  # no client of a run has this number


@dataclass(frozen=True)
class Assignment:
    """The group and the model that an unseen client gets; no group if the algorithm has none.

    params: dense weights, ready for `model.outputs(params, x)`. Where groups lie inside the client,
    `by_group` has the weights for the rows of each group. score: the counts on the client's test
    examples, if it has any.
    """

    group: GroupId | None
    params: Params
    by_group: dict[GroupId, Params]
    model: Model
    score: Tally | None


class UnlabelledExamples(Examples):
    """Examples without labels, for algorithms that do not need any."""

    def labels(self, rows: NDArray[np.int64] | slice = slice(None)) -> Tensor:
        raise DataError(
            "the training rows have no labels, but this run's algorithm needs them to find the "
            "group of an unseen client or to train its model; add labels"
        )

    def take(self, rows: NDArray[np.int64]) -> Examples:
        return _without_labels(super().take(rows))


def _without_labels(examples: Examples) -> Examples:
    return UnlabelledExamples(
        examples.x, examples.y, examples.group, examples.scale, examples.shift
    )


def assign(
    folder: str | Path,
    train: Examples,
    *,
    test: Examples | None = None,
    group: GroupId | None = None,
    trust: bool = False,
) -> Assignment:
    """Return the group and the model for an unseen client, from the folder of a finished run.

    train: its examples. Their labels may all be -1, unknown, unless the algorithm uses losses or
    trains. group: the group it declares, for algorithms that use declared groups. trust: import
    the code that the run's config.toml names; without it, such a run is refused. The folder is not
    changed, and the same data always gives the same answer.
    """
    if not len(train):
        raise DataError("an unseen client needs at least one training example to find its group")
    run = TrainedRun(Path(folder), trust=trust)
    run.require_trust(run.experiment.algorithm_names())
    unlabelled = _require_examples(run, train, test, group)
    algorithm = run.experiment.build_algorithm()
    state = _last_state(run, types_of(algorithm).state)
    learner = run.experiment.build_learner(run.model)
    learner = dataclasses.replace(learner, round_number=0, client_id=UNSEEN)
    train = _without_labels(train) if unlabelled else train
    client = Client(UNSEEN, train, test if test is not None else train, group)
    models = expect_models(
        algorithm.for_unseen(state, client, learner), run.model.spec, algorithm, "for_unseen"
    )
    own: ClientModel = next(iter(models.views.values()))
    score = None
    if test is not None and len(test):
        board = Scoreboard()
        board.plan(own, test)
        for job in board.jobs():
            board.add(job, run_job(job, learner))
        score = total(board.result(own, test, group).values())
    return Assignment(
        models.group,
        learner.weights_of(own.model),
        {inside: learner.weights_of(params) for inside, params in own.by_group.items()},
        run.model,
        score,
    )


def _last_state(run: TrainedRun, kind: type[Any]) -> Any:
    """Return the state that the finished run ended with."""
    found = checkpoint.latest(
        run.folder.checkpoints,
        kind,
        Progress,
        require=lambda found: require_identity(found, run.experiment),
    )
    if found is None or found.round_number != run.summary["rounds"]:
        raise RunError(
            f"{run.folder.path} has no complete checkpoint of its last round; repeat the run"
        )
    return found.state


def _require_examples(
    run: TrainedRun, train: Examples, test: Examples | None, group: GroupId | None
) -> bool:
    """Raise an error for examples that do not fit the run; return whether no label is known."""
    groups = int(run.summary["inputs"].get("groups", 0))
    unlabelled = bool((train.y == NO_LABEL).all())
    for name, examples in (("training", train), ("test", test)):
        if examples is not None:
            _require_same_table(name, examples, run.summary.get("data", {}))
            _require_fit(name, examples, run.shape, groups)
            if name == "test" or not unlabelled:
                _require_known_labels(name, examples, run.classes)
    if group is not None and not _are_groups(np.asarray(group), groups):
        raise DataError(f"an unseen client cannot declare group {group}; {_which(groups)}")
    return unlabelled


def _require_same_table(name: str, examples: Examples, recorded: Mapping[str, Any]) -> None:
    """Raise an error for rows that were encoded by another table than the run's."""
    for fact, value in (examples.made_by if isinstance(examples, Encoded) else {}).items():
        if recorded.get(fact, value) != value:
            raise DataError(
                f"the {name} rows were encoded by a table that is not the one of the run, or has "
                f"changed since (another {fact}); use the table and the configuration of the run"
            )


def _require_fit(name: str, examples: Examples, shape: tuple[int, ...], groups: int) -> None:
    """Raise an error for examples that are not like those of the run; `name` says which."""
    x, y = examples.x, examples.y
    if tuple(x.shape[1:]) != shape:
        raise DataError(f"{name} examples have the shape {tuple(x.shape[1:])}; the run has {shape}")
    if y.shape != (len(x),):
        raise DataError(f"there are {len(x)} {name} examples for labels of shape {y.shape}")
    if y.dtype.kind not in "iu":
        raise DataError(f"labels of {name} examples must be integers, not {y.dtype}")
    finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    if not finite.all():
        raise DataError(f"{name} row {finite.argmin()} has an input that is missing or not finite")
    if examples.group is not None:
        if examples.group.shape != y.shape:
            raise DataError(
                f"there are {len(y)} {name} examples for groups of shape {examples.group.shape}"
            )
        if not _are_groups(examples.group, groups):
            raise DataError(
                f"{name} examples have a group that the run does not know; {_which(groups)}"
            )


def _require_known_labels(name: str, examples: Examples, classes: int) -> None:
    y = examples.y
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if len(wrong):
        raise DataError(
            f"{name} row {wrong[0]} has the label {y[wrong[0]]}; the run has classes 0 to "
            f"{classes - 1}"
        )


def _are_groups(group: NDArray[Any], groups: int) -> bool:
    if group.dtype.kind not in "iu":
        return False
    return bool((group >= 0).all()) and (not groups or bool((group < groups).all()))


def _which(groups: int) -> str:
    return f"the run has groups 0 to {groups - 1}" if groups else "groups are integers, 0 or more"
