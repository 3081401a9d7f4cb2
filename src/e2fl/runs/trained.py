"""Prediction with a finished run: one of its models, applied to new examples.

Nothing that the files of a run name is imported, unless the caller trusts them.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from e2fl import codec
from e2fl.config.experiment import Experiment
from e2fl.data.encoding import Encoding
from e2fl.data.federated import Examples
from e2fl.errors import DataError, RunError
from e2fl.models import Model, Params
from e2fl.runs.records import Json
from e2fl.runs.store import ENCODING, Folder
from e2fl.text import neutral

NO_LABEL = -1
BLOCK = 500  # examples predicted at a time
GLOBAL = "global"


@dataclass(frozen=True)
class Prediction:
    """The predictions of a model for some examples."""

    classes: NDArray[np.int64]  # [examples], the most probable class
    probabilities: NDArray[np.float32]  # [examples, classes]
    model: str  # the model that was used: global, group0, ...; empty if rows used different ones
    names: tuple[str, ...] = ()  # of the classes, where they have names

    @property
    def labels(self) -> list[str] | list[int]:
        """The predicted labels: names where classes have names, numbers otherwise."""
        found: list[int] = self.classes.tolist()
        return [self.names[number] for number in found] if self.names else found

    def to_csv(self) -> str:
        """Return a row for each example, in their order; rows are numbered from 1."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("row", "prediction", "probability"))
        highest = self.probabilities.max(axis=1)
        for row, (label, probability) in enumerate(zip(self.labels, highest, strict=True), start=1):
            writer.writerow((row, neutral(label), f"{probability:.6f}"))
        return text.getvalue()


class TrainedRun:
    """A finished run as the source of models.

    trust: import the network that config.toml names, if it is not one of e2fl.
    """

    def __init__(self, path: Path, *, trust: bool = False):
        self.folder = Folder(path)
        self.summary: Json = self.folder.read_summary()
        self.experiment: Experiment = self.folder.read_experiment()
        self.trust = trust
        self.shape, self.classes = self._inputs()
        self.require_trust([self.experiment.model["name"]])
        self.model: Model = self.experiment.build_model_for(self.shape, self.classes)
        self._models: dict[str, dict[str, Tensor]] | None = None

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
        try:
            shape, classes = self.summary["inputs"]["shape"], self.summary["inputs"]["classes"]
            sizes = (*shape, classes)
        except (KeyError, TypeError) as error:
            raise RunError(f"{self.folder.path}/summary.json does not describe inputs") from error
        if not all(type(size) is int and 0 < size < 2**31 for size in sizes):
            raise RunError(
                f"{self.folder.path}/summary.json has inputs of the shape {shape!r} and "
                f"{classes!r} classes; both must be positive integers"
            )
        return tuple(shape), classes

    @property
    def models(self) -> dict[str, dict[str, Tensor]]:
        """The layers of each model in model.safetensors; none if every client keeps its own."""
        if self._models is None:
            path = self.folder.path / "model.safetensors"
            self._models = {}
            if path.is_file():
                try:
                    tensors, _ = codec.load_tensors(path)
                except (OSError, ValueError) as error:
                    raise RunError(f"{path} cannot be read: {error}; repeat the run") from error
                for key, tensor in tensors.items():
                    name, _, layer = key.partition("/")
                    self._models.setdefault(name, {})[layer] = tensor
        return self._models

    def encode(self, table: Path) -> Examples:
        """Return the rows of a table as inputs, as the columns of the run's own table became."""
        stored = self.folder.read_json(ENCODING)
        if stored is None:
            raise DataError(
                f"the run was trained on '{self.summary['dataset']}', not on a table; give its "
                "inputs as an array in an .npy file"
            )
        return Encoding.from_json(stored).encode(table)

    def names(self) -> list[str]:
        """Return the names of the models."""
        return list(self.models)

    def choose(self, group: str | int | None) -> str:
        """Return the name of the model for this group; None: the only model of the run."""
        names = self.names()
        if not names:
            raise RunError(
                f"{self.folder.path} stores no models, because its clients keep their own; "
                "use --find-group (in Python: e2fl.assign) to train one for new data"
            )
        if group is None:
            if len(names) == 1:
                return names[0]
            raise RunError(
                f"{self.folder.path} has several models; choose one with --group: {self._choices()}"
            )
        text = str(group)
        numbers = self._numbers()
        for name in (f"group{numbers[text]}" if text in numbers else "", text, f"group{text}"):
            if name in names:
                return name
        if text in numbers:
            raise RunError(
                f"{self.folder.path} has no model of group {text}: none of its clients took part"
            )
        raise RunError(f"{self.folder.path} has no group '{text}'; choose one of {self._choices()}")

    def params(self, name: str) -> Params:
        """Return the weights of one model; those of a subnetwork are zero where it has no edge."""
        masks: dict[str, NDArray[np.bool_]] = {}
        params: Params = {}
        for layer in self.model.spec.layers:
            tensor = self.models[name].get(layer.name)
            if tensor is None or tensor.numel() != layer.edges:
                raise RunError(
                    f"{self.folder.path}/model.safetensors does not fit the network: see "
                    f"{name}/{layer.name}"
                )
            if tensor.dtype == torch.bool:
                masks[layer.name] = tensor.numpy().reshape(-1)
            else:
                params[layer.name] = tensor.float().reshape(layer.shape)
        if masks and params:
            raise RunError(
                f"{self.folder.path}/model.safetensors holds a model of weights and masks"
            )
        return self.model.supernet(self.experiment.seed).subnetwork(masks) if masks else params

    def network(self, name: str) -> nn.Module:
        """Return a plain torch module with the weights of one model, in evaluation mode."""
        network = self.experiment.build_model_for(self.shape, self.classes).network
        # Buffers are constants that the network already has.
        network.load_state_dict(self.params(name), strict=False)
        return network.eval()

    def predict(self, examples: Examples, group: str | int | None) -> Prediction:
        """Predict with the model of a group or, if rows have groups, each with that of its own."""
        if group is None and examples.group is not None and len(self.names()) > 1:
            numbers = examples.group
            models = {int(number): self.choose(f"group{number}") for number in np.unique(numbers)}
        else:
            numbers = np.zeros(len(examples), dtype=np.int64)
            models = {0: self.choose(group)}
        found = np.zeros((len(examples), self.classes), dtype=np.float32)
        for number, name in models.items():
            rows = np.flatnonzero(numbers == number)
            found[rows] = probabilities(self.model, self.params(name), examples.take(rows))[
                :, : self.classes
            ]
        return self._prediction(found, next(iter(models.values())) if len(models) == 1 else "")

    def predict_unseen(self, examples: Examples) -> Prediction:
        """Predict for an unseen client with these examples, whose group the algorithm finds."""
        from e2fl.runs.unseen import assign

        assigned = assign(self.folder.path, examples, trust=self.trust)
        found = probabilities(assigned.model, assigned.params, examples)
        for inside, params in assigned.by_group.items():
            if examples.group is not None:
                rows = np.flatnonzero(examples.group == inside)
                found[rows] = probabilities(assigned.model, params, examples.take(rows))
        name = GLOBAL if assigned.group is None else f"group{assigned.group}"
        name = "" if assigned.by_group else name
        return self._prediction(found[:, : self.classes], name)

    def _prediction(self, found: NDArray[np.float32], name: str) -> Prediction:
        names = tuple(map(str, self.summary["inputs"]["label_names"]))
        return Prediction(found.argmax(axis=1).astype(np.int64), found, name, names)

    def _numbers(self) -> dict[str, int]:
        """Return the numbers of declared groups by name; none if the algorithm found its own."""
        declared = self.summary["membership"] != "found"
        names = self.summary["inputs"]["group_names"] if declared else ()
        return {str(name): number for number, name in enumerate(names)}

    def _choices(self) -> str:
        names, numbers = self.names(), self._numbers()
        declared = [name for name, number in numbers.items() if f"group{number}" in names]
        known = {f"group{number}" for number in numbers.values()}
        rest = [name.removeprefix("group") for name in names if name not in known]
        return ", ".join([*declared, *rest])


def probabilities(model: Model, params: Params, examples: Examples) -> NDArray[np.float32]:
    """Return the probability of every class [examples, classes]."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(examples), BLOCK):
            rows = slice(start, min(start + BLOCK, len(examples)))
            parts.append(torch.softmax(model.outputs(params, examples.inputs(rows)), dim=1).numpy())
    return np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float32)


def from_inputs(x: Any, shape: Sequence[int]) -> Examples:
    """Return examples without labels from an array of inputs, as the network reads them."""
    array = np.asarray(x)
    if array.dtype.kind != "f":
        raise DataError(
            f"inputs must be floating-point numbers as the network sees them, not {array.dtype}; scale them as the "
            "data of the run was scaled"
        )
    if tuple(array.shape[1:]) != tuple(shape):
        raise DataError(
            f"inputs have the shape {tuple(array.shape[1:])}; the run has {tuple(shape)}"
        )
    if not len(array):
        raise DataError("there are no rows to predict")
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        raise DataError(
            f"row {int(finite.argmin()) + 1} has an input that is missing or not finite"
        )
    return Examples(array.astype(np.float32), np.full(len(array), NO_LABEL, dtype=np.int64))


def predict_file(
    path: Path,
    table: Path,
    *,
    group: str | None = None,
    find_group: bool = False,
    trust: bool = False,
) -> Prediction:
    """Predict the rows of a table (CSV, Parquet), or of an array of inputs (.npy), with a run.

    trust: import the code that the run names: its network and, to find groups, its algorithm.
    """
    run = TrainedRun(path, trust=trust)
    if table.suffix == ".npy":
        try:
            examples = from_inputs(np.load(table, allow_pickle=False, mmap_mode="r"), run.shape)
        except ValueError as error:
            raise DataError(f"{table} is not an array of numbers ({error})") from error
    else:
        examples = run.encode(table)
        if not len(examples):
            raise DataError(f"{table} has no rows to predict")
    return run.predict_unseen(examples) if find_group else run.predict(examples, group)
