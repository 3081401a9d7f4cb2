"""Experiment: the whole configuration of a run, from TOML and back; it builds the parts.

Each section has a name and the settings of what it names. `variants` holds what differs when another algorithm, or the
same one with other settings, runs on the same experiment.
"""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import torch
from torch import nn
from typing_extensions import Doc

from e2fl.algorithms import ALGORITHMS, PARTS, Algorithm, AnyAlgorithm
from e2fl.config.files import read
from e2fl.config.overrides import Change, given, lay, typed
from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data import DATASETS, FederatedData, Population, build
from e2fl.errors import ConfigError, is_out_of_memory
from e2fl.learning import Learner, Settings, build_learner
from e2fl.metrics import accuracies
from e2fl.metrics.own import OwnMeasure, as_measure
from e2fl.models import Model
from e2fl.networks import MODELS
from e2fl.participation import PARTICIPATION, Participation
from e2fl.randomness import stream, torch_seeded
from e2fl.rounds import Round, Server

Section = dict[str, Any]

COMMON = {"keep": 0.5, "weight_scale": 1.0}  # settings that every model has, and their defaults

UNSAVED = (
    "threads",
    "checkpoint_seconds",
    "keep_client_models",
)  # settings that never change a result
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
    threads: Annotated[
        int | None, Doc("clients trained at a time; default: all cores; never changes a result")
    ] = None
    device: Annotated[str, Doc("torch's name of the device: cpu, cuda, cuda:1")] = "cpu"
    checkpoint_seconds: Annotated[
        float, Doc("seconds between checkpoints; never changes a result")
    ] = 30.0
    keep_client_models: Annotated[
        bool, Doc("keep the clients' own models after the run; never changes a result")
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
    variants: Annotated[dict[str, Section], Doc("by name: what differs for another algorithm")] = (
        field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        for name in ("rounds", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (self.update_limit == 0 or 1 <= self.update_limit < math.inf):
            raise ConfigError(f"update_limit must be 0, or at least 1, not {self.update_limit}")
        if self.examples_limit < 0:
            raise ConfigError(f"examples_limit must be 0 or more, not {self.examples_limit}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads}")
        for name in ("data", "algorithm", "model"):
            if not isinstance(getattr(self, name).get("name"), str):
                raise ConfigError(
                    f"section '{name}' needs a name, such as {name} = {{ name = '...' }}"
                )

        for part in PARTS:  # vote = "borda" is short for vote = { name = "borda" }
            if isinstance(self.algorithm.get(part), str):
                self.algorithm[part] = {"name": self.algorithm[part]}

    @property
    def label(self) -> str:
        """The display name of this run."""
        return str(self.algorithm.get("label", self.algorithm["name"]))

    def build_data(self) -> FederatedData:
        return build(self.data, seed=self.seed)

    def build_model(self, data: FederatedData, network: nn.Module | None = None) -> Model:
        """Return the model for this data; network: one made in Python, in place of the configured one."""
        return self.build_model_for(data.shape, data.classes, network)

    def build_model_for(
        self, shape: tuple[int, ...], classes: int, network: nn.Module | None = None
    ) -> Model:
        """Return the model for inputs of this shape."""
        name = self.model["name"]
        values = {key: value for key, value in self.model.items() if key not in ("name", *COMMON)}
        common = {
            key: fit(self.model.get(key, value), float, f"model.{key}")
            for key, value in COMMON.items()
        }
        with _in_memory(f"model '{name}'"):
            build = None
            if network is None:
                build = partial(
                    construct, look_up(name, MODELS, "model"), values, "model", shape, classes
                )
                with torch_seeded(stream(self.seed, "network")):  # buffers may be drawn
                    network = build()
            if not isinstance(network, nn.Module):
                raise ConfigError(
                    f"model '{name}' must return a torch.nn.Module, not {type(network).__name__}"
                )
            model = Model(network, **common, build=build)
            model.require_fit(shape, classes, name)
        return model

    def build_algorithm(self) -> AnyAlgorithm:
        kind = look_up(self.algorithm["name"], ALGORITHMS, "algorithm")
        values = {
            key: value for key, value in self.algorithm.items() if key not in ("name", "label")
        }
        for part, registry in PARTS.items():
            section = values.get(part)
            if section is None or part not in fields_of(kind):
                continue
            if isinstance(section, dict):
                values[part] = _construct_part(section, registry, part)
        algorithm: AnyAlgorithm = construct(kind, values, f"algorithm '{self.algorithm['name']}'")
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(f"'{self.algorithm['name']}' is not an algorithm")
        return algorithm

    def build_participation(self) -> Participation:
        """Return the policy that draws clients; settings without a name are those of the algorithm's own policy."""
        if "name" not in self.participation:
            policy = self.build_algorithm().participation
            if self.participation:
                policy = construct(type(policy), vars(policy) | self.participation, "participation")
            return policy
        policy = _construct(self.participation, PARTICIPATION, "participation", "participation")
        if not isinstance(policy, Participation):
            raise ConfigError(f"'{self.participation['name']}' is not a participation policy")
        return policy

    def build_server(
        self,
        algorithm: AnyAlgorithm,
        model: Model,
        population: Population,
        resume: Round | None = None,
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
            update_limit=self.update_limit,
            examples_limit=self.examples_limit,
            resume=resume,
        )

    def build_learner(self, model: Model) -> Learner:
        settings = self.build_settings()
        _require_device(self.device)
        with _in_memory(f"model '{self.model['name']}'"):
            learner = build_learner(model, settings, self.seed, self.device)
        return replace(learner, measures=self.build_measures())

    def build_measures(self) -> list[OwnMeasure]:
        """Return the user's own measures; imports what they name."""
        names = [name.replace(".py:", ":") for name in self.measures]
        for name in names:
            if ":" not in name:
                raise ConfigError(f"measures: name a function, such as mine.py:auc, not '{name}'")
        known = {"accuracy": accuracies}  # a measure is a function, as this one is
        return [
            as_measure(name.rpartition(":")[2], look_up(name, known, "measure")) for name in names
        ]

    def build_settings(self) -> Settings:
        settings: Settings = construct(Settings, self.learner, "learner")
        return settings

    def changed(self, changes: Iterable[Change]) -> "Experiment":
        """Return this experiment with changes made to it."""
        return from_dict(lay(changes, self.to_dict()))

    def variant(self, name: str, changes: Sequence[Change] = ()) -> "Experiment":
        """Return this experiment with another algorithm: a variant of that name, or that algorithm with its defaults.

        changes: settings to change too; they override the variant.
        """
        for change in changes:
            if change.path in NAMING:
                raise ConfigError(
                    f"{change.name} cannot be set together with the algorithm '{name}': name it in one place; "
                    "single settings, such as algorithm.clients_per_round, can be set"
                )
        # The changes may define the variant, and its data set or model; what the variant sets is changed again after.
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
        if algorithm["name"] == self.algorithm["name"]:
            algorithm = self.algorithm | algorithm
        else:
            algorithm = {
                key: self.algorithm[key] for key in self._shared(algorithm["name"])
            } | algorithm
        if not known:
            algorithm.setdefault("label", name)
        base = replace(self, algorithm=algorithm, variants={})
        return base.changed(given(own))

    def _shared(self, other: str) -> list[str]:
        """Return the settings that another algorithm inherits: all it knows if it is derived from this one."""
        mine, theirs = ALGORITHMS.get(self.algorithm["name"]), ALGORITHMS.get(other)
        derived = fields_of(theirs) if mine and theirs and issubclass(theirs, mine) else {}
        return [key for key in self.algorithm if key == "clients_per_round" or key in derived]

    def algorithm_names(self) -> list[str]:
        """Return the names of the algorithm and of its parts."""
        parts = [self.algorithm.get(part) for part in PARTS]
        sections = [self.algorithm, *(part for part in parts if isinstance(part, dict))]
        return [str(section.get("name", "")) for section in sections]

    def imports(self) -> list[str]:
        """Return the names in this experiment that import code from outside this package."""
        sections = (self.data, self.model, self.participation)
        names = [str(section.get("name", "")) for section in sections]
        names = [*names[:2], *self.algorithm_names(), *names[2:], *self.measures]
        return [name for name in names if ":" in name and not name.startswith("e2fl.")]

    def algorithm_settings(self) -> list[str]:
        """Return the settings of the algorithm and its parts: clients_per_round, grouping.name, ballot.buckets."""
        found = ["label", *fields_of(look_up(self.algorithm["name"], ALGORITHMS, "algorithm"))]
        for part, registry in PARTS.items():
            if part in found:
                section = self.algorithm.get(part)
                name = section.get("name") if isinstance(section, dict) else None
                inner = fields_of(look_up(str(name), registry, part)) if name else ()
                found += [f"{part}.{setting}" for setting in ("name", *inner)]
        return found

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
        neutral = (*UNSAVED, "rounds", "variants", "device", "name")
        settings = self.to_dict()
        if not self.measures:
            del settings["measures"]
        kept = {name: value for name, value in settings.items() if name not in neutral}
        return {name: with_whole_numbers(value) for name, value in kept.items()}

    def identity(self) -> str:
        """Return a digest that is the same for the same run, whatever its number of rounds."""
        return hashlib.sha256(json.dumps(self.compared(), sort_keys=True).encode()).hexdigest()


def with_whole_numbers(value: Any) -> Any:
    """Return settings in which 1.0 is written as 1, so that equal settings have equal text."""
    if isinstance(value, Mapping):
        return {name: with_whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [with_whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _construct(section: Section, registry: Mapping[str, Any], what: str, where: str) -> Any:
    """Return the object that a section names, made with the settings in it."""
    if "name" not in section:
        raise ConfigError(
            f"{where} needs a name, such as {what} = {{ name = '{next(iter(registry))}' }}"
        )
    rest = {key: value for key, value in section.items() if key != "name"}
    return construct(look_up(str(section["name"]), registry, what), rest, where)


def _construct_part(section: Section, registry: Mapping[str, Any], part: str) -> Any:
    """Return a part of an algorithm; errors name its section: `ballot` and `downlink` have equal settings."""
    where = f"algorithm.{part}"
    try:
        return _construct(section, registry, part, where)
    except ConfigError as error:
        if where in str(error):
            raise
        raise ConfigError(f"{where}: {error}") from error


@contextmanager
def _in_memory(what: str) -> Iterator[None]:
    """Turn an error of the allocator into a `ConfigError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(
            f"{what} is too large for the memory of this machine; choose smaller layers"
        ) from error


def _require_device(name: str) -> None:
    """Raise an error for a device that torch does not know or does not have."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device '{name}' cannot be used here ({str(error).splitlines()[0]}); 'cpu' can"
        ) from None


def from_dict(values: Mapping[str, Any]) -> Experiment:
    """Return an experiment from the contents of a TOML file."""
    for needed in ("data", "algorithm", "model"):
        if needed not in values:
            raise ConfigError(f"the configuration has no section '{needed}'")
    known = fields_of(Experiment)
    for name in values:
        if name not in known:
            raise ConfigError(
                f"the configuration has no setting '{name}'{did_you_mean(name, {*known, *_inner(values)})}"
            )
    for name in ("data", "algorithm", "model", "learner", "participation", "variants"):
        if not isinstance(values.get(name, {}), dict):
            raise ConfigError(f"'{name}' must be a section, such as {name} = {{ name = '...' }}")
    for name, changes in values.get("variants", {}).items():
        if not isinstance(changes, dict) or not isinstance(changes.get("algorithm", {}), dict):
            raise ConfigError(f"variants.{name} must be a section, such as [variants.{name}]")
    return Experiment(
        **copy.deepcopy({name: fit(value, known[name], name) for name, value in values.items()})
    )


def _inner(values: Mapping[str, Any]) -> set[str]:
    """Return the settings inside sections, as --set names them; imports nothing."""
    registries: dict[str, Mapping[str, Any]] = {
        "data": DATASETS,
        "model": MODELS,
        "algorithm": ALGORITHMS,
    }
    found = {f"learner.{name}" for name in fields_of(Settings)} | {
        f"model.{name}" for name in COMMON
    }
    found.add("data.validation_share")
    for section, registry in registries.items():
        named = values[section].get("name") if isinstance(values[section], dict) else None
        if isinstance(named, str) and named in registry:
            found |= {f"{section}.{name}" for name in fields_of(registry[named])}
    return found


def with_seed(experiment: Experiment, seed: int) -> Experiment:
    """Return the experiment with another seed."""
    return replace(experiment, seed=seed)


def load(
    config: str | Path, changes: Sequence[str] = (), *, algorithm: str | None = None
) -> Experiment:
    """Return the experiment in a TOML file, or the shipped one of that name, with changes such as "rounds=20".

    algorithm: another algorithm, or a variant of the experiment; the changes are then made to it.
    """
    asked = typed(changes)
    if algorithm is None:
        return from_dict(lay(asked, read(config)))
    return base_of(config, asked).variant(algorithm, asked)


def base_of(config: str | Path, changes: Iterable[Change]) -> Experiment:
    """Return the experiment that variants are derived from: with all changes except those of the algorithm."""
    return from_dict(
        lay((change for change in changes if change.section != "algorithm"), read(config))
    )
