"""What a finished run is good for: predictions, and models for unseen clients.

Nothing that the files of a run name is imported, unless the caller trusts them.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from e2fl import codec
from e2fl.algorithms import ClientModel, types_of
from e2fl.algorithms.validate import OutputChecks
from e2fl.data.encoding import Encoded, Encoding
from e2fl.data.federated import Client, Examples, GroupId
from e2fl.errors import DataError, RunError, reason_of
from e2fl.evaluation import Tally
from e2fl.models import Model, Params
from e2fl.runs import checkpoint
from e2fl.runs.store import ENCODING, Folder
from e2fl.simulation.evaluator import score_alone
from e2fl.text import neutral

NO_LABEL = -1
UNSEEN = -1  # no client of a run has this number
BLOCK = 500  # examples predicted at a time


@dataclass(frozen=True)
class Prediction:
    """The predictions of a model for some examples."""

    classes: NDArray[np.int64]  # [examples], the most probable class
    probabilities: NDArray[np.float32]  # [examples, classes]
    model: str  # that was used: global, group0, ...; empty if rows used that of their group
    names: tuple[str, ...] = ()  # of the classes, where they have names

    @property
    def labels(self) -> list[str] | list[int]:
        """The predicted labels: names where classes have names, numbers otherwise."""
        classes: list[int] = self.classes.tolist()
        return [self.names[label] for label in classes] if self.names else classes

    def to_csv(self) -> str:
        """Return a row for each example, in their order; rows are numbered from 1."""
        rows = {
            "row": range(1, len(self.classes) + 1),
            "prediction": [neutral(label) for label in self.labels],
            "probability": [f"{highest:.6f}" for highest in self.probabilities.max(axis=1)],
        }
        return pandas.DataFrame(rows).to_csv(index=False, lineterminator="\n")


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


class Unlabelled(Examples):
    """Examples without labels, for algorithms that do not need any."""

    def labels(self, rows: NDArray[np.int64] | slice = slice(None)) -> Tensor:
        raise DataError(
            "the training rows have no labels, but this run's algorithm needs them to find the "
            "group of an unseen client or to train its model; add labels"
        )


class TrainedRun:
    """A finished run as the source of models. trust: import the code that config.toml names."""

    def __init__(self, path: Path, *, trust: bool = False):
        self.folder, self.trust = Folder(path), trust
        self.summary = self.folder.read_summary()
        self.experiment = self.folder.read_experiment()
        self.shape, self.classes = self._inputs()
        self.require_trust([self.experiment.model["name"]])
        self.model: Model = self.experiment.build.model_for(self.shape, self.classes)

    def require_trust(self, names: Iterable[str]) -> None:
        """Raise `RunError` if code that the files of the run name would be imported."""
        code = [name for name in names if ":" in name]
        if code and not self.trust:
            raise RunError(
                f"{self.folder.path}/config.toml names code that would be imported and run: "
                f"{', '.join(code)}; if you trust it, pass --trust (in Python: trust=True)"
            )

    def _inputs(self) -> tuple[tuple[int, ...], int]:
        """Return the shape of inputs and the number of classes."""
        inputs = self.summary.get("inputs") or {}
        shape, classes = inputs.get("shape"), inputs.get("classes")
        sizes: list[Any] = [*shape, classes] if isinstance(shape, list) else [None]
        if not all(type(size) is int and 0 < size < 2**31 for size in sizes):
            raise RunError(
                f"{self.folder.path}/summary.json has inputs of the shape {shape!r} and "
                f"{classes!r} classes; both must be positive integers"
            )
        return tuple(sizes[:-1]), sizes[-1]

    @cached_property
    def models(self) -> dict[str, dict[str, Tensor]]:
        """The layers of each model in model.safetensors; none if every client keeps its own."""
        path = self.folder.path / "model.safetensors"
        if not os.path.lexists(path):
            return {}
        try:
            tensors, _ = codec.load_tensors(path)
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {reason_of(error)}; repeat the run") from error
        models: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, layer = key.partition("/")
            models.setdefault(name, {})[layer] = tensor
        return models

    def choose(self, group: str | int | None) -> str:
        """Return the name of the model for this group; None: the only model of the run."""
        if not self.models:
            raise RunError(
                f"{self.folder.path} stores no models, because its clients keep their own; "
                "use --find-group (in Python: e2fl.assign) to train one for new data"
            )
        found = self.summary["membership"] == "found"
        names = () if found else self.summary["inputs"]["group_names"]
        titles = {f"group{number}": str(name) for number, name in enumerate(names)}
        models = sorted(self.models, key=lambda name: (name == "global", len(name), name))
        known = {titles.get(name, name.removeprefix("group")): name for name in models}
        if group is None and len(known) == 1:
            return models[0]
        if str(group) not in known:
            wrong = "has several models" if group is None else f"has no group '{group}'"
            choices = ", ".join(known)
            raise RunError(f"{self.folder.path} {wrong}; choose one with --group: {choices}")
        return known[str(group)]

    def params(self, name: str) -> Params:
        """Return the weights of one model; those of a subnetwork are zero where it has no edge."""
        tensors, layers = self.models.get(name, {}), self.model.spec.layers
        for layer in layers:
            if layer.name not in tensors or tensors[layer.name].numel() != layer.edges:
                raise RunError(
                    f"{self.folder.path}/model.safetensors does not fit the network: see "
                    f"{name}/{layer.name}"
                )
        if all(tensors[layer.name].dtype == torch.bool for layer in layers):
            masks = {layer.name: tensors[layer.name].numpy().reshape(-1) for layer in layers}
            return self.model.supernet(self.experiment.seed).subnetwork(masks)
        return {layer.name: tensors[layer.name].float().reshape(layer.shape) for layer in layers}

    def network(self, name: str) -> nn.Module:
        """Return a plain torch module with the weights of one model, in evaluation mode."""
        network = self.experiment.build.model_for(self.shape, self.classes).network
        # Buffers are constants that the network already has.
        network.load_state_dict(self.params(name), strict=False)
        return network.eval()

    def read(self, source: Any) -> Examples:
        """Return rows without labels, of a table or an .npy file (paths) or an array of inputs."""
        if isinstance(source, Path) and source.suffix != ".npy":
            encoding = self.folder.read_json(ENCODING)
            if encoding is None:
                raise DataError(
                    f"the run was trained on '{self.summary['dataset']}', not on a table; give its "
                    "inputs as an array in an .npy file"
                )
            return Encoding.from_json(encoding).encode(source)
        try:
            x = np.load(source, allow_pickle=False) if isinstance(source, Path) else source
        except ValueError as error:  # NumPy's own message recommends to load pickles
            raise DataError(f"{source} is not an array of numbers, as numpy.save writes") from error
        x = np.asarray(x)
        if x.dtype.kind != "f":
            raise DataError(
                f"inputs must be floating-point numbers as the network sees them, not {x.dtype}; "
                "scale them as the data of the run was scaled"
            )
        self._require_inputs("inputs", x)
        return Examples(x.astype(np.float32), np.full(len(x), NO_LABEL, dtype=np.int64))

    def predict(self, examples: Examples, group: str | int | None) -> Prediction:
        """Predict with the model of a group or, if rows have groups, each with that of its own."""
        if group is None and examples.group is not None and len(self.models) > 1:
            own = {int(one): self.params(f"group{one}") for one in np.unique(examples.group)}
            return self._prediction({}, own, examples, "")
        name = self.choose(group)
        return self._prediction(self.params(name), {}, examples, name)

    def predict_unseen(self, examples: Examples) -> Prediction:
        """Predict for an unseen client with these examples, whose group the algorithm finds."""
        assigned = self.assign(examples)
        name = "global" if assigned.group is None else f"group{assigned.group}"
        own = assigned.by_group
        return self._prediction(assigned.params, own, examples, "" if own else name)

    def _prediction(
        self, params: Params, by_group: Mapping[GroupId, Params], examples: Examples, name: str
    ) -> Prediction:
        """Predict with the weights of each row's own group, where it has some."""
        if not len(examples):
            raise DataError("there are no rows to predict")
        outputs = np.zeros((len(examples), self.classes), dtype=np.float32)
        own = examples.group if by_group else None
        groups = np.zeros(len(examples), dtype=np.int64) if own is None else own
        for group in np.unique(groups):
            rows, weights = np.flatnonzero(groups == group), by_group.get(int(group), params)
            for block in np.split(rows, range(BLOCK, len(rows), BLOCK)):
                with torch.no_grad():
                    logits = self.model.outputs(weights, examples.inputs(block))
                # A network may have more outputs than there are classes.
                outputs[block] = torch.softmax(logits, dim=1).numpy()[:, : self.classes]
        labels = tuple(map(str, self.summary["inputs"]["label_names"]))
        return Prediction(outputs.argmax(axis=1).astype(np.int64), outputs, name, labels)

    def assign(
        self, train: Examples, *, test: Examples | None = None, group: GroupId | None = None
    ) -> Assignment:
        """Return the group and the model for an unseen client, as the function `assign`."""
        self.require_trust(self.experiment.algorithm_names())
        if not len(train):
            raise DataError("an unseen client needs at least one training example")
        unlabelled = bool((train.y == NO_LABEL).all())
        self._require_fit("training", train, group, labelled=not unlabelled)
        if test is not None:
            self._require_fit("test", test)
        algorithm = self.experiment.build.algorithm()
        identity = checkpoint.identity_of(self.experiment, self.summary["data"])
        last = checkpoint.latest(
            self.folder.checkpoints,
            types_of(algorithm).state,
            problem=lambda saved: "" if saved.identity == identity else "is of another run",
        )
        if last is None or last.round_number != self.summary["rounds"]:
            path = self.folder.path
            raise RunError(f"{path} has no complete checkpoint of its last round; repeat the run")
        learner = self.experiment.build.learner(self.model)
        learner = replace(learner, round_number=0, client_id=UNSEEN)
        if unlabelled:
            train = Unlabelled(train.x, train.y, train.group, train.scale, train.shift)
        client = Client(UNSEEN, train, train if test is None else test, group)
        models = algorithm.for_unseen(last.state, client, learner)
        models = OutputChecks(algorithm, self.model.spec).models(models, "for_unseen")
        own: ClientModel = next(iter(models.views.values()))
        tested = test is not None and len(test)
        score = score_alone(models, client, learner).own if tested else None
        return Assignment(
            models.group,
            learner.weights_of(own.model),
            {inside: learner.weights_of(params) for inside, params in own.by_group.items()},
            self.model,
            score,
        )

    def _require_fit(
        self, name: str, examples: Examples, group: GroupId | None = None, labelled: bool = True
    ) -> None:
        """Raise `DataError` for examples, or a group, that are not like those of the run."""
        known = self.summary["data"].get("encoding")
        if isinstance(examples, Encoded) and known not in (None, examples.made_by["encoding"]):
            raise DataError(
                f"the {name} rows were encoded by a table that is not the one of the run, or has "
                "changed since; use the run's own table"
            )
        self._require_inputs(f"{name} examples", examples.x)
        labels = examples.y if labelled else np.zeros(len(examples))
        groups = np.zeros(len(labels)) if examples.group is None else examples.group
        if not len(examples.x) == len(labels) == len(groups):
            raise DataError(f"{name} examples need as many labels, and groups if any, as rows")
        declared = np.asarray([] if group is None else [group])
        if declared.dtype.kind not in "iufb":
            raise DataError(f"the client declares the group {group!r}; it must be a number")
        most = int(self.summary["inputs"]["groups"]) or 2**31
        for what, numbers, count in (
            (f"{name} row {{}} has the label", labels, self.classes),
            (f"{name} row {{}} declares the group", groups, most),
            ("the client declares the group", declared, most),
        ):
            wrong = np.flatnonzero((numbers < 0) | (numbers >= count) | (numbers % 1 != 0))
            if len(wrong):
                who = what.format(wrong[0] + 1)
                raise DataError(f"{who} {numbers[wrong[0]]}; the run has 0 to {count - 1}")

    def _require_inputs(self, name: str, x: NDArray[Any]) -> None:
        """Raise `DataError` unless inputs have the shape of the run and are finite."""
        if x.shape[1:] != self.shape:
            raise DataError(f"{name} have the shape {x.shape[1:]}; the run has {self.shape}")
        finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
        if not finite.all():
            row = int(finite.argmin()) + 1
            raise DataError(f"{name}: row {row} has an input that is missing or not finite")


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
    return TrainedRun(Path(folder), trust=trust).assign(train, test=test, group=group)
