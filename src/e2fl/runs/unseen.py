"""A client that was never trained with: its group and its model, from what a run saved."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from e2fl.algorithms import ClientModel, types_of
from e2fl.config.experiment import Experiment, from_dict
from e2fl.data.federated import Client, Examples, GroupId
from e2fl.data.tabular.table import Encoded
from e2fl.errors import DataError, RunError
from e2fl.evaluation import Tally, total
from e2fl.models import Model, Params
from e2fl.runs import checkpoint
from e2fl.runs.folder import Folder
from e2fl.simulation.evaluator import Scoreboard, do

NEWCOMER = -1  # no client of a run has this number
NO_LABEL = -1


@dataclass(frozen=True)
class Assigned:
    """What a newcomer is given: its group, where the algorithm has groups, and the model it should use.

    params: dense weights, ready for `model.outputs(params, x)`. Where groups lie inside the newcomer, `by_group` has
    the weights for the rows of each group. score: how the model fares on the newcomer's test examples, if it has some.
    """

    group: GroupId | None
    params: Params
    by_group: dict[GroupId, Params]
    model: Model
    score: Tally | None


class Unlabelled(Examples):
    """Examples without labels: enough for an algorithm that does not ask for them."""

    def labels(self, rows: NDArray[np.int64] | slice = slice(None)) -> Tensor:
        raise DataError(
            "the training rows have no labels, but this run's algorithm needs them for a newcomer: "
            "to find its group, or to train with"
        )

    def take(self, rows: NDArray[np.int64]) -> Examples:
        return _without_labels(super().take(rows))


def _without_labels(examples: Examples) -> Examples:
    return Unlabelled(examples.x, examples.y, examples.group, examples.scale, examples.shift)


def assign(
    folder: str | Path, train: Examples, *, test: Examples | None = None, group: GroupId | None = None
) -> Assigned:
    """The group and the model of a client that was never trained with, from the folder of a finished run.

    train: its examples. Their labels may all be -1, not known, unless the algorithm looks at losses or trains. group:
    the group it declares, for algorithms that go by what clients declare. Nothing in the folder is changed, and the
    same data always gives the same answer.
    """
    path = Path(folder)
    if not len(train):
        raise DataError("a newcomer needs at least one training example to find its group with")
    summary = Folder(path).read_summary()
    experiment = _configuration(path)
    shape, classes = tuple(summary["inputs"]["shape"]), int(summary["inputs"]["classes"])
    groups = int(summary["inputs"].get("groups", 0))
    for name, examples in (("training", train), ("test", test)):
        if examples is not None:
            _refuse_another_table(name, examples, summary.get("data", {}))
            _refuse_what_does_not_fit(name, examples, shape, groups)
    unlabelled = bool((train.y == NO_LABEL).all())
    for name, examples in (("training", None if unlabelled else train), ("test", test)):
        if examples is not None:
            _refuse_unknown_labels(name, examples, classes)
    if group is not None and not _are_groups(np.asarray(group), groups):
        raise DataError(f"a newcomer cannot declare group {group}; {_which(groups)}")
    algorithm = experiment.build_algorithm()
    kind, made_by = types_of(algorithm).state, experiment.fingerprint()
    found = checkpoint.latest(path / "checkpoint", kind, experiment=made_by)
    if found is None:
        raise RunError(f"{path} holds no whole checkpoint to take the state from")
    model = experiment.build_model_for(shape, classes)
    learner = dataclasses.replace(experiment.build_learner(model), number=0, client=NEWCOMER)
    train = _without_labels(train) if unlabelled else train
    newcomer = Client(NEWCOMER, train, test if test is not None else train, group)
    uses = algorithm.for_unseen(found.state, newcomer, learner)
    own: ClientModel = next(iter(uses.views.values()))
    score = None
    if test is not None and len(test):
        board = Scoreboard()
        board.plan(own, test)
        for job in board.jobs():
            board.settle(job, do(job, learner))
        score = total(board.result(own, test, group).values())
    return Assigned(
        uses.group,
        learner.weights_of(own.model),
        {inside: learner.weights_of(params) for inside, params in own.by_group.items()},
        model,
        score,
    )


def _configuration(path: Path) -> Experiment:
    file = path / "config.toml"
    try:
        return from_dict(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{path} is not the folder of a run: {file.name} cannot be read ({error})") from error


def _refuse_another_table(name: str, examples: Examples, recorded: Mapping[str, Any]) -> None:
    """Rows that were encoded by another table than the one the run was made with, or by what has become of it."""
    for fact, value in (examples.made_by if isinstance(examples, Encoded) else {}).items():
        if recorded.get(fact, value) != value:
            raise DataError(
                f"the {name} rows were encoded by a table that is not, or no longer, the one the run was made with "
                f"(another {fact}); use the table and the configuration as they were then"
            )


def _refuse_what_does_not_fit(name: str, examples: Examples, shape: tuple[int, ...], groups: int) -> None:
    """Examples that are not like those of the run; `name` says which."""
    x, y = examples.x, examples.y
    if tuple(x.shape[1:]) != shape:
        raise DataError(f"{name} examples have the shape {tuple(x.shape[1:])}; the run was made with {shape}")
    if y.shape != (len(x),):
        raise DataError(f"there are {len(x)} {name} examples for labels of shape {y.shape}")
    if y.dtype.kind not in "iu":
        raise DataError(f"labels of {name} examples must be whole numbers, not {y.dtype}")
    finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    if not finite.all():
        raise DataError(f"{name} row {finite.argmin()} has an input that is missing or not finite")
    if examples.group is not None:
        if examples.group.shape != y.shape:
            raise DataError(f"there are {len(y)} {name} examples for groups of shape {examples.group.shape}")
        if not _are_groups(examples.group, groups):
            raise DataError(f"{name} examples have a group that the run does not know; {_which(groups)}")


def _refuse_unknown_labels(name: str, examples: Examples, classes: int) -> None:
    y = examples.y
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if len(wrong):
        raise DataError(f"{name} row {wrong[0]} has the label {y[wrong[0]]}; the run has classes 0 to {classes - 1}")


def _are_groups(group: NDArray[Any], groups: int) -> bool:
    if group.dtype.kind not in "iu":
        return False
    return bool((group >= 0).all()) and (not groups or bool((group < groups).all()))


def _which(groups: int) -> str:
    return f"the run has groups 0 to {groups - 1}" if groups else "groups are whole numbers, 0 or more"
