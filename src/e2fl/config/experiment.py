"""Experiment: the whole configuration of a run, from TOML and back; it builds the parts.

Each section has a name and the settings of what it names. `variants` holds what differs when
another algorithm, or the same one with other settings, runs on the same experiment.
"""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import torch
from torch import nn
from typing_extensions import Doc

from e2fl.algorithms import ALGORITHMS, SECTION_REGISTRIES, Algorithm, AnyAlgorithm
from e2fl.attacks import ATTACKS, Attack
from e2fl.config.files import read
from e2fl.config.overrides import UNSAVED, Change, flattened, given, lay, typed
from e2fl.construct import construct, did_you_mean, fields_of, fit, is_shipped, look_up, settings_of
from e2fl.data import DATASETS, FederatedData, Population, build
from e2fl.errors import ConfigError, require_setting
from e2fl.learning import Learner, Settings, build_learner
from e2fl.metrics import mean
from e2fl.metrics.measures import OwnMeasure
from e2fl.models import Model
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION, Participation
from e2fl.randomness import stream
from e2fl.rounds import Server
from e2fl.torch_streams import torch_seeded

Section = dict[str, Any]


@dataclass(frozen=True)
class Ray:
    """Clients train in tasks of Ray, on the cluster at RAY_ADDRESS or on this machine."""

    actors: Annotated[int, Doc("tasks at a time; 0: as many as there are cores")] = 0
    cores: Annotated[int, Doc("of a task: the clients that it trains at a time")] = 1

    def __post_init__(self) -> None:
        require_setting(self.actors >= 0, "runtime.actors", "0 or more", self.actors)
        require_setting(self.cores >= 1, "runtime.cores", "at least 1", self.cores)


RUNTIMES = {"ray": Ray}

# What the sections of an experiment, and the parts of an algorithm, can name.
REGISTRIES: dict[str, Mapping[str, Any]] = {
    "data": DATASETS,
    "model": MODELS,
    "algorithm": ALGORITHMS,
    "participation": PARTICIPATION,
    "attack": ATTACKS,
    "runtime": RUNTIMES,
    **SECTION_REGISTRIES,
}
# Settings that every model has.
COMMON = {name: setting for name, setting in settings_of(Model).items() if name != "build"}
LEAST = {"rounds": 1, "evaluate_every": 1, "threads": 1} | dict.fromkeys(
    ("seed", "evaluate_clients", "examples_limit"), 0
)
NAMING = (("algorithm",), ("algorithm", "name"))  # settings that choose the algorithm


@dataclass(frozen=True)
class Experiment:
    """One run, or a comparison of its variants."""

    data: Annotated[Section, Doc("the data set and its settings: `e2fl list datasets`")]
    algorithm: Annotated[
        Section,
        Doc(
            "the algorithm and its settings, and `label`, its display name: `e2fl list algorithms`"
        ),
    ]
    model: Annotated[Section, Doc("the network and its settings: `e2fl list models`")]
    name: Annotated[str, Doc("names the folder of a run and the title of its report")] = (
        "experiment"
    )
    seed: Annotated[int, Doc("all randomness of a run follows from it")] = 0
    rounds: Annotated[int, Doc("rounds of training")] = 100
    evaluate_every: Annotated[
        int, Doc("rounds between evaluations; the last round is always evaluated")
    ] = 10
    evaluate_clients: Annotated[
        int, Doc("clients in evaluations before the last, drawn once; 0: all")
    ] = 0
    threads: Annotated[
        int | None, Doc("clients trained at a time; default: all cores; never changes a result")
    ] = None
    runtime: Annotated[
        Section, Doc("where clients train: `e2fl list runtimes`; default: in this process")
    ] = field(default_factory=dict)
    device: Annotated[str, Doc("torch's name of the device: cpu, cuda, cuda:1")] = "cpu"
    checkpoint_seconds: Annotated[
        float, Doc("seconds between checkpoints; never changes a result")
    ] = 30.0
    keep_client_models: Annotated[
        bool, Doc("keep the clients' own models after the run; never changes a result")
    ] = False
    keep_ballots: Annotated[
        bool, Doc("keep every ballot for `e2fl recount`, 4 bytes an edge; never changes a result")
    ] = False
    learner: Annotated[Section, Doc("how clients train: `e2fl list learner`")] = field(
        default_factory=dict
    )
    participation: Annotated[
        Section, Doc("which clients take part; default: the algorithm's own policy")
    ] = field(default_factory=dict)
    measures: Annotated[
        tuple[str, ...], Doc("own measures, functions of labels and outputs, such as mine.py:auc")
    ] = ()
    update_limit: Annotated[
        float, Doc("clip updates this many times as large as the round's median; 0: never")
    ] = 7.0
    examples_limit: Annotated[
        int, Doc("most training examples a reply may claim; 0: those of the largest client")
    ] = 0
    attack: Annotated[
        Section, Doc("malicious clients, in a simulation only: `e2fl list attacks`")
    ] = field(default_factory=dict)
    variants: Annotated[dict[str, Section], Doc("by name: what differs for another algorithm")] = (
        field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            require_setting(value is None or value >= least, name, f"at least {least}", value)
        limit = self.update_limit
        allowed = limit == 0 or 1 <= limit < math.inf
        require_setting(allowed, "update_limit", "0, or at least 1", limit)
        for name in ("data", "algorithm", "model", *(["runtime"] if self.runtime else [])):
            named = isinstance(getattr(self, name).get("name"), str)
            require_setting(named, name, "a section with a name", getattr(self, name))
        for part in SECTION_REGISTRIES:  # vote = "borda" is short for vote = { name = "borda" }
            if isinstance(self.algorithm.get(part), str):
                self.algorithm[part] = {"name": self.algorithm[part]}

    @property
    def label(self) -> str:
        """The display name of this run."""
        return str(self.algorithm.get("label", self.algorithm["name"].rpartition("/")[2]))

    def build_data(self) -> FederatedData:
        return build(self.data, seed=self.seed)

    def build_model(self, data: FederatedData, network: nn.Module | None = None) -> Model:
        """Return the model for this data; network: made in Python, instead of the configured."""
        return self.build_model_for(data.shape, data.classes, network)

    def build_model_for(
        self, shape: tuple[int, ...], classes: int, network: nn.Module | None = None
    ) -> Model:
        """Return the model for inputs of this shape."""
        name = self.model["name"]
        section = {key: value for key, value in self.model.items() if key not in COMMON}
        common = {key: value for key, value in self.model.items() if key in COMMON}
        make = None
        if network is None:
            make = partial(_made, section, "model", shape, classes)
            with torch_seeded(stream(self.seed, "network")):  # buffers may be drawn
                network = make()
        if not isinstance(network, nn.Module):
            kind = type(network).__name__
            raise ConfigError(f"model '{name}' must return a torch.nn.Module, not {kind}")
        model = construct(Model, common | {"build": make}, "model", network)
        model.require_fit(shape, classes, name)
        return model

    def build_algorithm(self) -> AnyAlgorithm:
        section = {key: value for key, value in self.algorithm.items() if key != "label"}
        known = fields_of(look_up(section["name"], ALGORITHMS, "algorithm"))
        for part in known.keys() & SECTION_REGISTRIES.keys():
            if isinstance(section.get(part), dict):
                section[part] = _made_part(section[part], part)
        algorithm: AnyAlgorithm = _made(section, "algorithm", expected=Algorithm)
        return algorithm

    def build_participation(self) -> Participation:
        """Return the policy that draws clients.

        Settings without a name are those of the algorithm's own policy.
        """
        if "name" in self.participation:
            policy: Participation
            policy = _made(self.participation, "participation", expected=Participation)
            return policy
        own = self.build_algorithm().participation
        settings = vars(own) | self.participation
        return construct(type(own), settings, "participation") if self.participation else own

    def build_attack(self) -> Attack | None:
        """Return the attack of malicious clients; None if all clients are honest."""
        section = {"name": "none"} | self.attack
        attack: Attack | None = _made(section, "attack", expected=Attack) if self.attack else None
        return attack

    def build_runtime(self) -> Ray | None:
        """Return where clients train; None: in this process."""
        if not self.runtime:
            return None
        if self.attack or self.device != "cpu":
            raise ConfigError("runtime 'ray' trains on processors, and without simulated attacks")
        runtime: Ray = _made(self.runtime, "runtime", expected=Ray)
        return runtime

    def build_server(self, algorithm: AnyAlgorithm, model: Model, population: Population) -> Server:
        """Return the server of this experiment's run."""
        return Server(
            algorithm,
            model,
            population,
            rounds=self.rounds,
            seed=self.seed,
            evaluate_every=self.evaluate_every,
            evaluate_clients=self.evaluate_clients,
            participation=self.build_participation(),
            update_limit=self.update_limit,
            examples_limit=self.examples_limit,
        )

    def build_learner(self, model: Model) -> Learner:
        settings = self.build_settings()
        try:
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device '{self.device}' cannot be used here ({reason})") from None
        learner = build_learner(model, settings, self.seed, self.device)
        return replace(learner, measures=self.build_measures())

    def build_measures(self) -> list[OwnMeasure]:
        """Return the user's own measures; imports what they name."""
        for name in self.measures:
            if ":" not in name:
                raise ConfigError(f"measures: name a function, such as mine.py:auc, not '{name}'")
        known = {"mean": mean}  # a measure is a function, as this one is
        return [
            OwnMeasure(name.rpartition(":")[2], look_up(name, known, "measure"))
            for name in self.measures
        ]

    def build_settings(self) -> Settings:
        return construct(Settings, self.learner, "learner")

    def changed(self, changes: Iterable[Change]) -> "Experiment":
        """Return this experiment with changes made to it."""
        return from_dict(lay(changes, self.to_dict()))

    def variant(self, name: str, changes: Sequence[Change] = ()) -> "Experiment":
        """Return this experiment with another algorithm: a variant of that name, or its defaults.

        changes: settings to change too; they override the variant.
        """
        for change in changes:
            if change.path in NAMING:
                raise ConfigError(
                    f"{change.name} cannot be set together with the algorithm '{name}': name it "
                    "in one place; single settings, such as algorithm.clients_per_round, can be set"
                )
        # The changes may define the variant, and its data set or model; what the variant sets is
        # changed again after.
        base = self.changed(change for change in changes if change.section != "algorithm")
        return base._named(name).changed(
            change for change in changes if change.section != "variants"
        )

    def _named(self, name: str) -> "Experiment":
        own = copy.deepcopy(self.variants.get(name))
        if own is None:
            if name == self.algorithm["name"]:
                return replace(self, variants={})
            look_up(name, ALGORITHMS | self.variants, "algorithm or variant")
            own = {}
        known = name in ALGORITHMS or ":" in name
        algorithm = {"name": name if known else self.algorithm["name"]} | own.pop("algorithm", {})
        algorithm = {
            key: self.algorithm[key] for key in self._shared(algorithm["name"])
        } | algorithm
        if not known:
            algorithm.setdefault("label", name)
        base = replace(self, algorithm=algorithm, variants={})
        return base.changed(given(own))

    def _shared(self, other: str) -> list[str]:
        """Return the settings that an algorithm inherits: all it knows if derived from this one."""
        if other == self.algorithm["name"]:
            return list(self.algorithm)
        mine, theirs = ALGORITHMS.get(self.algorithm["name"]), ALGORITHMS.get(other)
        derived = fields_of(theirs) if mine and theirs and issubclass(theirs, mine) else {}
        return [key for key in self.algorithm if key == "clients_per_round" or key in derived]

    def algorithm_names(self) -> list[str]:
        """Return the names of the algorithm and of its parts."""
        return _names_in({"algorithm": self.algorithm})

    def imports(self) -> list[str]:
        """Return the names in this experiment that import code from outside this package."""
        names = [*_names_in(self.to_dict() | {"variants": {}}), *self.measures]
        return [name for name in names if ":" in name and not is_shipped(name)]

    def algorithm_settings(self) -> list[str]:
        """Return the settings of the algorithm and its parts: label, grouping.name."""
        names = ["label", *fields_of(look_up(self.algorithm["name"], ALGORITHMS, "algorithm"))]
        for part in [part for part in SECTION_REGISTRIES if part in names]:
            section = self.algorithm.get(part)
            name = section.get("name") if isinstance(section, dict) else None
            inner = fields_of(look_up(str(name), SECTION_REGISTRIES[part], part)) if name else ()
            names += [f"{part}.{setting}" for setting in ("name", *inner)]
        return names

    def to_dict(self) -> Section:
        """Return all settings, as TOML holds them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_toml(self) -> str:
        return tomli_w.dumps({name: value for name, value in self.to_dict().items() if value != {}})

    def compared(self) -> Section:
        """Return the settings that make two runs the same, with 1.0 written as 1.

        These are all that change a result, except the number of rounds: more rounds are the same
        run, continued.
        """
        neutral = {*UNSAVED, "rounds", "variants", "device", "name"}
        neutral |= {name for name in ("measures", "attack") if not getattr(self, name)}
        settings = self.to_dict()
        return {
            name: with_whole_numbers(settings[name]) for name in settings if name not in neutral
        }

    def identity(self) -> str:
        """Return a digest that is the same for the same run, whatever its number of rounds."""
        return hashlib.sha256(json.dumps(self.compared(), sort_keys=True).encode()).hexdigest()


def _names_in(settings: Section) -> list[str]:
    """Return what sections name, such as the partition of a table, in their order."""
    return [str(value) for name, value in flattened(settings).items() if name.endswith(".name")]


def with_whole_numbers(value: Any) -> Any:
    """Return settings in which 1.0 is written as 1, so that equal settings have equal text."""
    if isinstance(value, Mapping):
        return {name: with_whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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


def from_dict(values: Mapping[str, Any]) -> Experiment:
    """Return an experiment from the contents of a TOML file."""
    known = fields_of(Experiment)
    for name in ("data", "algorithm", "model"):
        if name not in values:
            raise ConfigError(f"the configuration has no section '{name}'")
    for name in values:
        if name not in known:
            hint = did_you_mean(name, {*known, *(f"learner.{one}" for one in fields_of(Settings))})
            raise ConfigError(f"the configuration has no setting '{name}'{hint}")
    for name, changes in fit(values.get("variants", {}), Section, "variants").items():
        inner = fit(changes, Section, f"variants.{name}").get("algorithm", {})
        fit(inner, Section, f"variants.{name}.algorithm")
    return Experiment(
        **copy.deepcopy({name: fit(value, known[name], name) for name, value in values.items()})
    )


def load(
    config: str | Path, changes: Sequence[str] = (), *, algorithm: str | None = None
) -> Experiment:
    """Return the experiment in a TOML file, or the shipped one, with changes such as "rounds=20".

    algorithm: another algorithm, or a variant of the experiment; the changes are then made to it.
    """
    asked = typed(changes)
    if algorithm is None:
        return from_dict(lay(asked, read(config)))
    return base_of(config, asked).variant(algorithm, asked)


def base_of(config: str | Path, changes: Iterable[Change]) -> Experiment:
    """Return the experiment that variants are derived from: without changes of the algorithm."""
    return from_dict(
        lay((change for change in changes if change.section != "algorithm"), read(config))
    )
