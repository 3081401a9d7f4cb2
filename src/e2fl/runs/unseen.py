"""Unseen clients: the group and the model for a client that took no part in a run."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

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
from e2fl.runs.trained import NO_LABEL, TrainedRun, require_inputs
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
    unlabelled = bool((train.y == NO_LABEL).all())
    _require_fit(run, "training", train, labelled=not unlabelled)
    if test is not None:
        _require_fit(run, "test", test)
    if group is not None:
        _require_groups(run, "an unseen client", np.asarray(group))
    algorithm = run.experiment.build_algorithm()
    last = checkpoint.latest(
        run.folder.checkpoints,
        types_of(algorithm).state,
        checkpoint.Progress,
        require=lambda found: checkpoint.require_identity(found, run.experiment),
    )
    if last is None or last.round_number != run.summary["rounds"]:
        raise RunError(f"{folder} has no complete checkpoint of its last round; repeat the run")
    learner = run.experiment.build_learner(run.model)
    learner = dataclasses.replace(learner, round_number=0, client_id=UNSEEN)
    train = _without_labels(train) if unlabelled else train
    client = Client(UNSEEN, train, test if test is not None else train, group)
    models = algorithm.for_unseen(last.state, client, learner)
    models = expect_models(models, run.model.spec, algorithm, "for_unseen")
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


def _require_fit(run: TrainedRun, name: str, examples: Examples, labelled: bool = True) -> None:
    """Raise an error for examples that are not like those of the run; `name` says which."""
    x, y = examples.x, examples.y
    recorded = run.summary.get("data", {})
    for fact, value in (examples.made_by if isinstance(examples, Encoded) else {}).items():
        if recorded.get(fact, value) != value:
            raise DataError(
                f"the {name} rows were encoded by a table that is not the one of the run, or has "
                f"changed since (another {fact}); use the table and the configuration of the run"
            )
    require_inputs(x, run.shape, f"{name} examples")
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise DataError(
            f"labels of the {len(x)} {name} examples must be as many integers, not {y.dtype} of "
            f"shape {y.shape}"
        )
    wrong = np.flatnonzero((y < 0) | (y >= run.classes))
    if labelled and len(wrong):
        label = y[wrong[0]]
        known = f"the run has classes 0 to {run.classes - 1}"
        raise DataError(f"{name} row {wrong[0] + 1} has the label {label}; {known}")
    if examples.group is not None:
        if examples.group.shape != y.shape:
            raise DataError(
                f"there are {len(y)} {name} examples for groups of shape {examples.group.shape}"
            )
        _require_groups(run, f"{name} examples", examples.group)


def _require_groups(run: TrainedRun, who: str, group: NDArray[np.int64]) -> None:
    groups = int(run.summary["inputs"].get("groups", 0))
    known = group.dtype.kind in "iu" and (group >= 0).all()
    if not known or (groups and (group >= groups).any()):
        which = f"the run has groups 0 to {groups - 1}" if groups else "groups are 0 or more"
        raise DataError(f"{who} cannot declare group {group}; {which}")
