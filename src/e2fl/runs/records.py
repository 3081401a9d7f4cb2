"""The records of a run, typed: an evaluated round (a line of history.jsonl) and the summary (summary.json).

Every key of these two files is defined here and nowhere else. Keys are part of the file format: new ones may be added,
none is renamed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

Json = dict[str, Any]
Spread = Mapping[str, float]  # mean, worst10, best10, variance

# Which groups the group measures are over: those that the data declares, or, where it declares none, those that the
# algorithm found.
GroupsAre = Literal["declared", "found"]


@dataclass(frozen=True)
class View:
    """The results of clients with one of the models they evaluate."""

    user: Spread
    group: Spread | None  # over groups; None where there are none
    groups: Mapping[str, Mapping[str, float]]  # by name: clients, accuracy, loss and, for two classes, f1
    groups_are: GroupsAre | None = None
    diverged: int = 0  # clients whose model gives outputs that are not finite
    protected: Mapping[str, float] | None = None  # differences between two groups, unprivileged minus privileged
    loss: Mapping[str, Mapping[str, float] | None] | None = None  # mean and std over clients and groups

    def to_json(self) -> Json:
        """Return the fields for a line of history; losses are in the summary only."""
        result: Json = {"user": dict(self.user), "group": self.group and dict(self.group)}
        result["groups"] = {name: dict(values) for name, values in self.groups.items()}
        if self.groups_are == "found":
            result["groups_are"] = "found"
        if self.diverged:
            result["diverged"] = self.diverged
        if self.protected is not None:
            result["protected"] = dict(self.protected)
        return result

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        groups = values.get("groups") or {}
        return cls(
            values["user"],
            values.get("group"),
            groups,
            values.get("groups_are") or ("declared" if groups else None),
            values.get("diverged", 0),
            values.get("protected"),
            values.get("loss"),
        )


@dataclass(frozen=True)
class Measures:
    """Every metric of one evaluation: of the clients' own models, and of the other models they evaluate."""

    own: View
    views: Mapping[str, View] = field(default_factory=dict)

    def to_json(self) -> Json:
        result = self.own.to_json()
        if self.views:
            result["views"] = {name: view.to_json() for name, view in self.views.items()}
        return result

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(View.from_json(values), {n: View.from_json(v) for n, v in (values.get("views") or {}).items()})

    def warnings(self) -> list[str]:
        """Return warnings about diverged models."""
        views = {"": self.own, **{f" (view {name})": view for name, view in self.views.items()}}
        return [_diverged(view.diverged, name) for name, view in views.items() if view.diverged]


def _diverged(count: int, view: str) -> str:
    clients = "1 client" if count == 1 else f"{count:,} clients"
    return (
        f"the models of {clients}{view} give outputs that are not finite, so their accuracy means nothing: training "
        "diverged; lower learner.learning_rate, or check the data of these clients"
    )


@dataclass(frozen=True)
class Evaluation:
    """One evaluated round: a line of history.jsonl."""

    round: int
    measures: Measures
    bytes: Mapping[str, int]  # since the run began: up_total, down_total, served_total
    asked: int = 0  # clients asked to train in this round
    answered: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)  # by kind, since the previous line
    metadata: Mapping[str, Any] = field(default_factory=dict)  # measures that the algorithm adds; "notes" on disk
    inference: Mapping[str, Any] | None = None  # how well groups were recovered, if they were inferred
    validation: Measures | None = None  # on validation examples, if the data has any
    training_loss: float | None = None  # mean over the clients that trained in this round

    def to_json(self) -> Json:
        return {
            "round": self.round,
            **self.measures.to_json(),
            **({} if self.inference is None else {"inference": dict(self.inference)}),
            **({} if self.validation is None else {"validation": self.validation.to_json()}),
            "bytes": dict(self.bytes),
            "asked": self.asked,
            "answered": self.answered,
            **({} if self.training_loss is None else {"training_loss": self.training_loss}),
            "faults": dict(sorted(self.faults.items())),
            "notes": dict(self.metadata),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            int(values["round"]),
            Measures.from_json(values),
            values.get("bytes", {}),
            values.get("asked", 0),
            values.get("answered", 0),
            values.get("faults", {}),
            values.get("notes", {}),
            values.get("inference"),
            _validation(values),
            values.get("training_loss"),
        )


def _validation(values: Mapping[str, Any]) -> Measures | None:
    found = values.get("validation")
    return None if found is None else Measures.from_json(found)


@dataclass(frozen=True)
class Budget:
    """The amount of training of a run, for a comparison of methods."""

    client_trainings: int = 0  # how often a client trained
    client_epochs: float = 0.0  # passes over a client's own training data, summed over all trainings
    examples: int = 0  # training examples processed, with repetitions

    def to_json(self) -> Json:
        return {name.name: getattr(self, name.name) for name in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Self | None:
        return None if values is None else cls(**{name.name: values[name.name] for name in fields(cls)})


@dataclass(frozen=True)
class Summary:
    """The summary of a finished run: summary.json."""

    algorithm: str
    label: str
    dataset: str
    rounds: int
    seed: int
    measures: Measures
    version: str = ""
    membership: GroupsAre | None = None  # how the algorithm knows the group of a client; None: it has no groups
    trains_alone: bool = False  # clients send nothing
    inference: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # "notes" on disk
    warning: str = ""  # the algorithm's warning about this data; "caution" on disk
    bytes: Mapping[str, float] = field(default_factory=dict)
    budget: Budget | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # total, per_round
    data: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)  # shape, classes, groups, and names of groups and labels
    environment: Mapping[str, str] = field(default_factory=dict)
    unseen: Mapping[str, Any] | None = None  # results of clients kept out of training
    client_models: str = "none"  # what happened to the models that clients keep: none, kept, or dropped
    bits: Mapping[str, float | None] | None = None  # per edge and in total; None where clients send nothing
    participation: Mapping[str, Mapping[str, float]] | None = None  # how often clients were asked, by group
    validation: Measures | None = None  # on validation examples, if the data has any

    def to_json(self) -> Json:
        measured = self.measures.to_json()
        own, views = self.measures.own, measured.pop("views", None)
        protected = measured.pop("protected", None)
        for name, view in self.measures.views.items():
            views[name]["loss"] = view.loss
        return {
            "algorithm": self.algorithm,
            "label": self.label,
            "dataset": self.dataset,
            "rounds": self.rounds,
            "seed": self.seed,
            "version": self.version,
            **measured,
            "groups_are": own.groups_are,
            "membership": self.membership,
            "trains_alone": self.trains_alone,
            "loss": own.loss,
            **({} if views is None else {"views": views}),
            **({} if protected is None else {"protected": protected}),
            **({} if self.inference is None else {"inference": dict(self.inference)}),
            "notes": dict(self.metadata),
            **({"caution": self.warning} if self.warning else {}),
            **({} if self.validation is None else {"validation": self.validation.to_json()}),
            "bytes": dict(self.bytes),
            **({} if self.bits is None else {"bits": dict(self.bits)}),
            **({} if self.participation is None else {"participation": dict(self.participation)}),
            **({} if self.budget is None else {"budget": self.budget.to_json()}),
            "seconds": dict(self.seconds),
            "data": dict(self.data),
            "inputs": dict(self.inputs),
            "environment": dict(self.environment),
            "client_models": self.client_models,
            **({} if self.unseen is None else {"unseen": dict(self.unseen)}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            str(values["algorithm"]),
            str(values["label"]),
            str(values["dataset"]),
            int(values["rounds"]),
            int(values["seed"]),
            Measures.from_json(values),
            values.get("version", ""),
            values["membership"],
            bool(values["trains_alone"]),
            values.get("inference"),
            values.get("notes", {}),
            values.get("caution", ""),
            values.get("bytes", {}),
            Budget.from_json(values.get("budget")),
            values.get("seconds", {}),
            values.get("data", {}),
            values.get("inputs", {}),
            values.get("environment", {}),
            values.get("unseen"),
            values.get("client_models", "none"),
            values.get("bits"),
            values.get("participation"),
            _validation(values),
        )
