"""Prediction with a finished run: choose one of its models, apply it to new examples, write the predictions."""

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import nn

from e2fl.config.experiment import Experiment
from e2fl.csv_text import neutral
from e2fl.data.federated import Examples
from e2fl.errors import DataError, E2flWarning, RunError
from e2fl.models import Model, Params
from e2fl.runs.folder import Folder
from e2fl.runs.records import Json
from e2fl.runs.unseen import NO_LABEL, assign

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
    """A finished run as the source of models."""

    def __init__(self, path: Path):
        self.folder = Folder(path)
        self.summary: Json = self.folder.read_summary()
        self.folder.verify()
        self.experiment: Experiment = self.folder.read_experiment()
        for code in self.experiment.imports():
            told = f"{path}/config.toml names code that is imported and run: {code}"
            warnings.warn(told, E2flWarning, stacklevel=3)
        shape, classes = self.summary["inputs"]["shape"], self.summary["inputs"]["classes"]
        self.shape: tuple[int, ...] = tuple(shape)
        self.classes = int(classes)
        self.model: Model = self.experiment.build_model_for(self.shape, self.classes)

    def names(self) -> list[str]:
        """Return the models in model.safetensors; none if every client keeps its own."""
        path = self.folder.path / "model.safetensors"
        if not path.is_file():
            return []
        try:
            with safe_open(path, "pt") as file:
                return list(dict.fromkeys(key.split("/", 1)[0] for key in file.keys()))  # noqa: SIM118
        except SafetensorError as error:
            raise RunError(f"{path} cannot be read ({error}); repeat the run") from error

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
            raise RunError(f"{self.folder.path} has several models; choose one with --group: {self._choices()}")
        text = str(group)
        numbers = self._numbers()
        for name in (f"group{numbers[text]}" if text in numbers else "", text, f"group{text}"):
            if name in names:
                return name
        if text in numbers:
            raise RunError(f"{self.folder.path} has no model of group {text}: none of its clients took part")
        raise RunError(f"{self.folder.path} has no group '{text}'; choose one of {self._choices()}")

    def params(self, name: str) -> Params:
        """Return the weights of one model; those of a subnetwork are zero where it has no edge."""
        masks: dict[str, NDArray[np.bool_]] = {}
        params: Params = {}
        with safe_open(self.folder.path / "model.safetensors", "pt") as file:
            for layer in self.model.spec.layers:
                key = f"{name}/{layer.name}"
                tensor = file.get_tensor(key) if key in file.keys() else None  # noqa: SIM118
                if tensor is None or tensor.numel() != layer.edges:
                    raise RunError(f"{self.folder.path}/model.safetensors does not fit the network: see {key}")
                if tensor.dtype == torch.bool:
                    masks[layer.name] = tensor.numpy().reshape(-1)
                else:
                    params[layer.name] = tensor.float().reshape(layer.shape)
        if masks and params:
            raise RunError(f"{self.folder.path}/model.safetensors holds a model of weights and masks")
        return self.model.supernet(self.experiment.seed).subnetwork(masks) if masks else params

    def network(self, name: str) -> nn.Module:
        """Return a plain torch module with the weights of one model, in evaluation mode."""
        network = self.experiment.build_model_for(self.shape, self.classes).network
        network.load_state_dict(self.params(name), strict=False)  # buffers are constants that the network already has
        return network.eval()

    def predict(self, examples: Examples, group: str | int | None) -> Prediction:
        """Predict with the model of a group or, if rows have groups of their own, each row with that of its group."""
        if group is None and examples.group is not None and len(self.names()) > 1:
            numbers = examples.group
            models = {int(number): self.choose(f"group{number}") for number in np.unique(numbers)}
        else:
            numbers = np.zeros(len(examples), dtype=np.int64)
            models = {0: self.choose(group)}
        found = np.zeros((len(examples), self.classes), dtype=np.float32)
        for number, name in models.items():
            rows = np.flatnonzero(numbers == number)
            found[rows] = probabilities(self.model, self.params(name), examples.take(rows))[:, : self.classes]
        return self._prediction(found, next(iter(models.values())) if len(models) == 1 else "")

    def predict_unseen(self, examples: Examples) -> Prediction:
        """Predict for an unseen client with these examples, whose group the algorithm finds."""
        assigned = assign(self.folder.path, examples)
        found = probabilities(assigned.model, assigned.params, examples)
        for inside, params in assigned.by_group.items():
            rows = np.flatnonzero(examples.group == inside) if examples.group is not None else np.array([], np.int64)
            found[rows] = probabilities(assigned.model, params, examples.take(rows))
        name = "" if assigned.by_group else GLOBAL if assigned.group is None else f"group{assigned.group}"
        return self._prediction(found[:, : self.classes], name)

    def _prediction(self, found: NDArray[np.float32], name: str) -> Prediction:
        names = tuple(map(str, self.summary["inputs"]["label_names"]))
        return Prediction(found.argmax(axis=1).astype(np.int64), found, name, names)

    def _numbers(self) -> dict[str, int]:
        """Return the numbers of the groups that the data declares, by name; none if the algorithm found its own."""
        names = self.summary["inputs"]["group_names"] if self.summary["membership"] != "found" else ()
        return {str(name): number for number, name in enumerate(names)}

    def _choices(self) -> str:
        names, numbers = self.names(), self._numbers()
        told = [name for name, number in numbers.items() if f"group{number}" in names]
        rest = [name for name in names if name not in {f"group{number}" for number in numbers.values()}]
        return ", ".join([*told, *(name.removeprefix("group") for name in rest)])


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
        raise DataError(f"inputs have the shape {tuple(array.shape[1:])}; the run has {tuple(shape)}")
    if not len(array):
        raise DataError("there are no rows to predict")
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        raise DataError(f"row {int(finite.argmin()) + 1} has an input that is missing or not finite")
    return Examples(array.astype(np.float32), np.full(len(array), NO_LABEL, dtype=np.int64))


def predict_file(path: Path, table: Path, *, group: str | None = None, find_group: bool = False) -> Prediction:
    """Predict the rows of a table (CSV, Parquet), or of an array of inputs (.npy), with a finished run."""
    run = TrainedRun(path)
    if table.suffix == ".npy":
        try:
            examples = from_inputs(np.load(table, allow_pickle=False, mmap_mode="r"), run.shape)
        except ValueError as error:
            raise DataError(f"{table} is not an array of numbers ({error})") from error
    else:
        data = run.experiment.build_data()
        encode = getattr(data, "encode", None)
        if encode is None:
            raise DataError(
                f"the run was trained on '{data.name}', not on a table; give its inputs as an array in an .npy file"
            )
        examples = encode(table)
        _require_same_encoding(examples, run.summary.get("data", {}))
        if not len(examples):
            raise DataError(f"{table} has no rows to predict")
    return run.predict_unseen(examples) if find_group else run.predict(examples, group)


def _require_same_encoding(examples: Any, recorded: Mapping[str, Any]) -> None:
    """Raise an error for rows that were encoded by a table that has changed since the run."""
    for fact, value in getattr(examples, "made_by", {}).items():
        if recorded.get(fact, value) != value:
            raise DataError(
                f"the table that the run was trained on has changed since (another {fact}), so new rows cannot be "
                "encoded as then; restore the table, or repeat the run"
            )
