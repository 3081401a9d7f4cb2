"""Experiment: the whole configuration of a run, from TOML and back; it builds the parts.

Each section is a name and that thing's arguments. `variants` holds what differs when another algorithm, or the same one
set up otherwise, runs on the same experiment.
"""

import copy
import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
import torch

from e2fl.algorithms import ALGORITHMS, Algorithm, AnyAlgorithm
from e2fl.config.overrides import Change, given, lay, typed
from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data import DATASETS, FederatedData, Population
from e2fl.errors import ConfigError
from e2fl.grouping import GROUPINGS
from e2fl.learning import Learner, Settings
from e2fl.learning.fast.engine import engine_for
from e2fl.models import MODELS, Model
from e2fl.participation import PARTICIPATION, Participation
from e2fl.rounds import Round, Server

Section = dict[str, Any]

UNSAVED = ("threads", "checkpoint_seconds")  # these never change a result
NAMING = (("algorithm",), ("algorithm", "name"))  # these choose the algorithm


@dataclass(frozen=True)
class Experiment:
    """One run, or a comparison of its variants."""

    data: Section
    algorithm: Section
    model: Section
    name: str = "experiment"
    seed: int = 0
    rounds: int = 100
    evaluate_every: int = 10
    threads: int | None = None  # default: all cores; never changes a result
    device: str = "cpu"
    checkpoint_seconds: float = 30.0  # between checkpoints; never changes a result
    learner: Section = field(default_factory=dict)
    participation: Section = field(
        default_factory=dict
    )  # which clients take part; default: as the algorithm says, mostly uniform
    norm_limit: float = 1000.0  # reject updates with a norm this many times the median of a round; 0: accept all
    variants: dict[str, Section] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("rounds", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.norm_limit < math.inf:
            raise ConfigError(f"norm_limit must be 0 or more, not {self.norm_limit}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads}")
        for name in ("data", "algorithm", "model"):
            if not isinstance(getattr(self, name).get("name"), str):
                raise ConfigError(f"section '{name}' needs a name, such as {name} = {{ name = '...' }}")

    @property
    def label(self) -> str:
        """What this run is called beside others."""
        return str(self.algorithm.get("label", self.algorithm["name"]))

    def build_data(self) -> FederatedData:
        kind = look_up(self.data["name"], DATASETS, "data set")
        values = {key: value for key, value in self.data.items() if key != "name"}
        if "seed" in fields_of(kind):
            values.setdefault("seed", self.seed)
        data: FederatedData = construct(kind, values, "data")
        if not isinstance(data, FederatedData):
            raise ConfigError(f"'{self.data['name']}' is not a data set")
        return data

    def build_model(self, data: FederatedData) -> Model:
        return self.build_model_for(data.shape, data.classes)

    def build_model_for(self, shape: tuple[int, ...], classes: int) -> Model:
        """The model for inputs of this shape."""
        make = look_up(self.model["name"], MODELS, "model")
        values = {key: value for key, value in self.model.items() if key not in ("name", "keep")}
        keep = fit(self.model.get("keep", 0.5), float, "model.keep")
        return Model(construct(make, values, "model", shape, classes), keep=keep)

    def build_algorithm(self) -> AnyAlgorithm:
        kind = look_up(self.algorithm["name"], ALGORITHMS, "algorithm")
        values = {key: value for key, value in self.algorithm.items() if key not in ("name", "label")}
        if isinstance(values.get("grouping"), dict) and "grouping" in fields_of(kind):
            section = values["grouping"]
            if "name" not in section:
                raise ConfigError("algorithm.grouping needs a name, such as grouping = { name = 'known' }")
            make = look_up(str(section["name"]), GROUPINGS, "grouping")
            rest = {key: value for key, value in section.items() if key != "name"}
            values["grouping"] = construct(make, rest, "algorithm.grouping")
        algorithm: AnyAlgorithm = construct(kind, values, f"algorithm '{self.algorithm['name']}'")
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(f"'{self.algorithm['name']}' is not an algorithm")
        return algorithm

    def build_participation(self) -> Participation:
        """Return the policy that draws clients."""
        if not self.participation:
            default: Participation = look_up(self.algorithm["name"], ALGORITHMS, "algorithm").participation
            return default
        if "name" not in self.participation:
            raise ConfigError("section 'participation' needs a name, such as participation = { name = 'by_group' }")
        kind = look_up(str(self.participation["name"]), PARTICIPATION, "participation")
        values = {key: value for key, value in self.participation.items() if key != "name"}
        policy: Participation = construct(kind, values, "participation")
        if not isinstance(policy, Participation):
            raise ConfigError(f"'{self.participation['name']}' is not a participation policy")
        return policy

    def build_server(
        self, algorithm: AnyAlgorithm, model: Model, population: Population, resume: Round | None = None
    ) -> Server:
        """Return the server of this experiment's run."""
        return Server(
            algorithm,
            model,
            population,
            rounds=self.rounds,
            seed=self.seed,
            evaluate_every=self.evaluate_every,
            participation=self.build_participation(),
            norm_limit=self.norm_limit,
            resume=resume,
        )

    def build_learner(self, model: Model) -> Learner:
        settings = self.build_settings()
        _refuse_device(self.device)
        return Learner(
            model,
            engine_for(model, self.device),
            model.supernet(self.seed),
            model.initial_weights(self.seed),
            settings,
            self.seed,
        )

    def build_settings(self) -> Settings:
        settings: Settings = construct(Settings, self.learner, "learner")
        return settings

    def changed(self, changes: Iterable[Change]) -> "Experiment":
        """This experiment with changes made to it."""
        return from_dict(lay(changes, self.to_dict()))

    def variant(self, name: str, changes: Sequence[Change] = ()) -> "Experiment":
        """This experiment with another algorithm: a variant of that name, or that algorithm with its defaults.

        changes: what somebody asks for beside; it has the last word, also over what the variant says.
        """
        for change in changes:
            if change.path in NAMING:
                raise ConfigError(
                    f"{change.name} cannot be set where '{name}' is asked for as the algorithm: name it in one place; "
                    "single settings, such as algorithm.clients_per_round, can be set"
                )
        # A variant may be among the changes, or be one of another data set or model; what it sets is set again after.
        base = self.changed(change for change in changes if change.section != "algorithm")
        return base._named(name).changed(change for change in changes if change.section != "variants")

    def _named(self, name: str) -> "Experiment":
        own = copy.deepcopy(self.variants.get(name))
        if own is None:
            if name == self.algorithm["name"]:
                return replace(self, variants={})
            look_up(name, ALGORITHMS | self.variants, "algorithm or variant")
            own = {}
        known = name in ALGORITHMS or ":" in name
        algorithm = {"name": name if known else self.algorithm["name"]} | own.pop("algorithm", {})
        if algorithm["name"] == self.algorithm["name"]:
            algorithm = self.algorithm | algorithm
        elif "clients_per_round" in self.algorithm:
            algorithm.setdefault("clients_per_round", self.algorithm["clients_per_round"])
        if not known:
            algorithm.setdefault("label", name)
        base = replace(self, algorithm=algorithm, variants={})
        return base.changed(given(own))

    def algorithm_settings(self) -> list[str]:
        """What can be set of the algorithm and of its grouping: clients_per_round, grouping.name, grouping.groups."""
        found = ["label", *fields_of(look_up(self.algorithm["name"], ALGORITHMS, "algorithm"))]
        if "grouping" in found:
            section = self.algorithm.get("grouping")
            name = section.get("name") if isinstance(section, dict) else None
            inner = fields_of(look_up(str(name), GROUPINGS, "grouping")) if name else ()
            found += [f"grouping.{setting}" for setting in ("name", *inner)]
        return found

    def to_dict(self) -> Section:
        """Everything, as TOML would hold it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_toml(self) -> str:
        return tomli_w.dumps({name: value for name, value in self.to_dict().items() if name != "variants" or value})

    def fingerprint(self) -> str:
        """Tells experiments with different results apart."""
        kept = {name: value for name, value in self.to_dict().items() if name not in UNSAVED}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _refuse_device(name: str) -> None:
    """A device that torch does not know, or does not have."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device '{name}' cannot be used here ({str(error).splitlines()[0]}); 'cpu' can") from None


def from_dict(values: Mapping[str, Any]) -> Experiment:
    """An experiment from what a TOML file holds."""
    for needed in ("data", "algorithm", "model"):
        if needed not in values:
            raise ConfigError(f"the configuration has no section '{needed}'")
    known = {f.name for f in fields(Experiment)}
    for name in values:
        if name not in known:
            raise ConfigError(f"the configuration has no setting '{name}'{did_you_mean(name, known)}")
    for name in ("data", "algorithm", "model", "learner", "participation", "variants"):
        if not isinstance(values.get(name, {}), dict):
            raise ConfigError(f"'{name}' must be a section, such as {name} = {{ name = '...' }}")
    for name, changes in values.get("variants", {}).items():
        if not isinstance(changes, dict) or not isinstance(changes.get("algorithm", {}), dict):
            raise ConfigError(f"variants.{name} must be a section, such as [variants.{name}]")
    plain = {"name": str, "seed": int, "rounds": int, "evaluate_every": int, "threads": int, "device": str}
    checked = {name: fit(value, plain[name], name) if name in plain else value for name, value in values.items()}
    for name in ("checkpoint_seconds", "norm_limit"):
        if name in checked:
            checked[name] = fit(checked[name], float, name)
    return Experiment(**copy.deepcopy(checked))


def with_seed(experiment: Experiment, seed: int) -> Experiment:
    """The same experiment from another seed."""
    return replace(experiment, seed=seed)


def load(config: str | Path, changes: Sequence[str] = (), *, algorithm: str | None = None) -> Experiment:
    """The experiment in a TOML file, or the shipped one of that name, with changes such as "rounds=20".

    algorithm: another algorithm, or a variant the experiment names; the changes are then made to that.
    """
    asked = typed(changes)
    if algorithm is None:
        return from_dict(lay(asked, _read(config)))
    return base_of(config, asked).variant(algorithm, asked)


def base_of(config: str | Path, changes: Iterable[Change]) -> Experiment:
    """The experiment that variants are made of: with all changes but those of an algorithm, which each takes itself."""
    return from_dict(lay((change for change in changes if change.section != "algorithm"), _read(config)))


def shipped() -> dict[str, str]:
    """The experiments that come with the package: name and first comment line."""
    found = {}
    for entry in files("e2fl.experiments").iterdir():
        if entry.name.endswith(".toml"):
            first = entry.read_text(encoding="utf-8").splitlines()[0]
            found[entry.name.removesuffix(".toml")] = first.lstrip("# ")
    return dict(sorted(found.items()))


def _read(config: str | Path) -> Section:
    path = Path(config)
    try:
        if path.suffix == ".toml" or path.is_file():
            return tomllib.loads(path.read_text(encoding="utf-8"))
        if str(config) in shipped():
            return tomllib.loads((files("e2fl.experiments") / f"{config}.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from error
    raise ConfigError(f"there is no file and no shipped experiment '{config}'{did_you_mean(str(config), shipped())}")
