"""Builder: makes what an experiment names, such as its data, model and algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import torch
from torch import nn
from typing_extensions import Doc

from e2fl.algorithms import ALGORITHMS, SECTION_REGISTRIES, Algorithm, AnyAlgorithm
from e2fl.attacks import ATTACKS, Attack
from e2fl.config.experiment import Experiment, Section
from e2fl.construct import construct, fields_of, look_up, settings_of
from e2fl.data import DATASETS, FederatedData, build
from e2fl.errors import ConfigError, require_setting
from e2fl.learning import Learner, Settings, build_learner
from e2fl.metrics import mean
from e2fl.metrics.measures import OwnMeasure
from e2fl.models import Model
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION, Participation
from e2fl.randomness import stream
from e2fl.torch_streams import torch_seeded


@dataclass(frozen=True)
class Ray:
    """Clients train in tasks of Ray, on the cluster at RAY_ADDRESS or on this machine."""

    actors: Annotated[int, Doc("tasks at a time; 0: as many as there are cores")] = 0
    cores: Annotated[int, Doc("of a task: the clients that it trains at a time")] = 1

    def __post_init__(self) -> None:
        require_setting(self.actors >= 0, "runtime.actors", "0 or more", self.actors)
        require_setting(self.cores >= 1, "runtime.cores", "at least 1", self.cores)


# What the sections of an experiment, and the parts of an algorithm, can name.
REGISTRIES: dict[str, Mapping[str, Any]] = {
    "data": DATASETS,
    "model": MODELS,
    "algorithm": ALGORITHMS,
    "participation": PARTICIPATION,
    "attack": ATTACKS,
    "runtime": {"ray": Ray},
    **SECTION_REGISTRIES,
}
# Settings that every model has.
COMMON = {name: setting for name, setting in settings_of(Model).items() if name != "build"}


@dataclass(frozen=True)
class Builder:
    """What an experiment names, made with its settings."""

    experiment: Experiment

    def data(self) -> FederatedData:
        """Return the data."""
        return build(self.experiment.data, seed=self.experiment.seed)

    def model(self, data: FederatedData, network: nn.Module | None = None) -> Model:
        """Return the model for this data; network: made in Python, instead of the configured."""
        return self.model_for(data.shape, data.classes, network)

    def model_for(
        self, shape: tuple[int, ...], classes: int, network: nn.Module | None = None
    ) -> Model:
        """Return the model for inputs of this shape."""
        settings = self.experiment.model
        name = settings["name"]
        section = {key: value for key, value in settings.items() if key not in COMMON}
        common = {key: value for key, value in settings.items() if key in COMMON}
        make = None
        if network is None:
            make = partial(_made, section, "model", shape, classes)
            with torch_seeded(stream(self.experiment.seed, "network")):  # buffers may be drawn
                network = make()
        if not isinstance(network, nn.Module):
            kind = type(network).__name__
            raise ConfigError(f"model '{name}' must return a torch.nn.Module, not {kind}")
        model = construct(Model, common | {"build": make}, "model", network)
        model.require_fit(shape, classes, name)
        return model

    def algorithm(self) -> AnyAlgorithm:
        """Return the algorithm with its parts."""
        section = {key: value for key, value in self.experiment.algorithm.items() if key != "label"}
        known = fields_of(look_up(section["name"], ALGORITHMS, "algorithm"))
        for part in known.keys() & SECTION_REGISTRIES.keys():
            if isinstance(section.get(part), dict):
                section[part] = _made_part(section[part], part)
        algorithm: AnyAlgorithm = _made(section, "algorithm", expected=Algorithm)
        return algorithm

    def participation(self) -> Participation:
        """Return the policy that draws clients.

        Settings without a name are those of the algorithm's own policy.
        """
        section = self.experiment.participation
        if "name" in section:
            policy: Participation = _made(section, "participation", expected=Participation)
            return policy
        own = self.algorithm().participation
        return construct(type(own), vars(own) | section, "participation") if section else own

    def attack(self) -> Attack | None:
        """Return the attack of malicious clients; None if all clients are honest."""
        if not self.experiment.attack:
            return None
        attack: Attack = _made({"name": "none"} | self.experiment.attack, "attack", expected=Attack)
        return attack

    def runtime(self) -> Ray | None:
        """Return where clients train; None: in this process."""
        experiment = self.experiment
        if not experiment.runtime:
            return None
        if experiment.attack or experiment.device != "cpu":
            raise ConfigError("runtime 'ray' trains on processors, and without simulated attacks")
        runtime: Ray = _made(experiment.runtime, "runtime", expected=Ray)
        return runtime

    def learner(self, model: Model) -> Learner:
        """Return what trains and evaluates this model on a client."""
        settings, device = self.settings(), self.experiment.device
        try:
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device '{device}' cannot be used here ({reason})") from None
        learner = build_learner(model, settings, self.experiment.seed, device)
        return replace(learner, measures=self.measures())

    def measures(self) -> list[OwnMeasure]:
        """Return the user's own measures; imports what they name."""
        for name in self.experiment.measures:
            if ":" not in name:
                raise ConfigError(f"measures: name a function, such as mine.py:auc, not '{name}'")
        known = {"mean": mean}  # a measure is a function, as this one is
        return [
            OwnMeasure(name.rpartition(":")[2], look_up(name, known, "measure"))
            for name in self.experiment.measures
        ]

    def settings(self) -> Settings:
        """Return the settings of the learner."""
        return construct(Settings, self.experiment.learner, "learner")

    def naming(self) -> Section:
        """Return the title of the algorithm and its position in tables: own ones come last."""
        name = self.experiment.algorithm["name"]
        return {"title": self.algorithm().title, "order": [*ALGORITHMS, name].index(name)}


def _made(section: Section, kind: str, *inputs: Any, expected: type = object) -> Any:
    """Return what a section names, made with the settings in it."""
    name = str(section["name"])
    settings = {key: value for key, value in section.items() if key != "name"}
    where = f"algorithm '{name}'" if kind == "algorithm" else kind
    made = construct(look_up(name, REGISTRIES[kind], kind), settings, where, *inputs)
    if not isinstance(made, expected):
        raise ConfigError(f"{kind} '{name}' is not a subclass of {expected.__name__}")
    return made


def _made_part(section: Section, part: str) -> Any:
    """Return a part of an algorithm; errors name its section: two parts have equal settings."""
    if "name" not in section:
        example = next(iter(SECTION_REGISTRIES[part]))
        raise ConfigError(f"algorithm.{part} needs a name, such as {{ name = '{example}' }}")
    try:
        return _made(section, part)
    except ConfigError as error:
        raise ConfigError(f"algorithm.{part}: {error}") from error
