"""Experiment: the whole configuration of a run, from TOML and back; it builds the parts.

Each section has a name and the settings of what it names. `variants` holds what differs when another algorithm, or the
same one with other settings, runs on the same experiment.
"""

import copy
import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import nn

from e2fl.algorithms import ALGORITHMS, PARTS, Algorithm, AnyAlgorithm
from e2fl.config.overrides import Change, given, lay, typed
from e2fl.construct import construct, did_you_mean, fields_of, fit, look_up
from e2fl.data import DATASETS, FederatedData, Population, build
from e2fl.errors import ConfigError, is_out_of_memory
from e2fl.learning import Learner, Settings, build_learner
from e2fl.models import MODELS, Model
from e2fl.participation import PARTICIPATION, Participation
from e2fl.randomness import stream, torch_seeded
from e2fl.rounds import Round, Server

Section = dict[str, Any]

COMMON = {"keep": 0.5, "weight_scale": 1.0}  # settings that every model has, and their defaults

UNSAVED = ("threads", "checkpoint_seconds", "keep_client_models")  # settings that never change a result
NAMING = (("algorithm",), ("algorithm", "name"))  # settings that choose the algorithm


@dataclass(frozen=True)
class Experiment:
    """One run, or a comparison of its variants."""

    data: Section  # the data set and its settings: `e2fl list datasets`
    algorithm: Section  # the algorithm and its settings, and `label`, its display name: `e2fl list algorithms`
    model: Section  # the network and its settings: `e2fl list models`
    name: str = "experiment"  # names the folder of a run and the title of its report
    seed: int = 0  # all randomness of a run follows from it
    rounds: int = 100  # rounds of training
    evaluate_every: int = 10  # rounds between evaluations; the last round is always evaluated
    threads: int | None = None  # clients trained at a time; default: all cores; never changes a result
    device: str = "cpu"  # torch's name of the device: cpu, cuda, cuda:1
    checkpoint_seconds: float = 30.0  # seconds between checkpoints; never changes a result
    keep_client_models: bool = False  # keep the clients' own models after the run; never changes a result
    learner: Section = field(default_factory=dict)  # how clients train: `e2fl list learner`
    participation: Section = field(default_factory=dict)  # which clients take part; default: the algorithm's own policy
    norm_limit: float = 1000.0  # reject updates with a norm this many times the median of a round; 0: accept all
    variants: dict[str, Section] = field(default_factory=dict)  # by name: what differs for another algorithm

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
        """The display name of this run."""
        return str(self.algorithm.get("label", self.algorithm["name"]))

    def build_data(self) -> FederatedData:
        return build(self.data, seed=self.seed)

    def build_model(self, data: FederatedData, network: nn.Module | None = None) -> Model:
        """Return the model for this data; network: one made in Python, in place of the configured one."""
        return self.build_model_for(data.shape, data.classes, network)

    def build_model_for(self, shape: tuple[int, ...], classes: int, network: nn.Module | None = None) -> Model:
        """Return the model for inputs of this shape."""
        name = self.model["name"]
        values = {key: value for key, value in self.model.items() if key not in ("name", *COMMON)}
        common = {key: fit(self.model.get(key, value), float, f"model.{key}") for key, value in COMMON.items()}
        with _in_memory(f"model '{name}'"):
            build = None
            if network is None:
                build = partial(construct, look_up(name, MODELS, "model"), values, "model", shape, classes)
                with torch_seeded(stream(self.seed, "network")):  # buffers may be drawn
                    network = build()
            if not isinstance(network, nn.Module):
                raise ConfigError(f"model '{name}' must return a torch.nn.Module, not {type(network).__name__}")
            model = Model(network, **common, build=build)
            model.require_fit(shape, classes, name)
        return model

    def build_algorithm(self) -> AnyAlgorithm:
        kind = look_up(self.algorithm["name"], ALGORITHMS, "algorithm")
        values = {key: value for key, value in self.algorithm.items() if key not in ("name", "label")}
        for part, registry in PARTS.items():
            section = values.get(part)
            if section is None or part not in fields_of(kind):
                continue
            if isinstance(section, str):
                raise ConfigError(f"algorithm.{part} is a section; set algorithm.{part}.name='{section}'")
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
        _require_device(self.device)
        with _in_memory(f"model '{self.model['name']}'"):
            return build_learner(model, settings, self.seed, self.device)

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
        else:
            algorithm = {key: self.algorithm[key] for key in self._shared(algorithm["name"])} | algorithm
        if not known:
            algorithm.setdefault("label", name)
        base = replace(self, algorithm=algorithm, variants={})
        return base.changed(given(own))

    def _shared(self, other: str) -> list[str]:
        """Return the settings that another algorithm inherits: all it knows if it is derived from this one."""
        mine, theirs = ALGORITHMS.get(self.algorithm["name"]), ALGORITHMS.get(other)
        derived = fields_of(theirs) if mine and theirs and issubclass(theirs, mine) else {}
        return [key for key in self.algorithm if key == "clients_per_round" or key in derived]

    def imports(self) -> list[str]:
        """Return the names in this experiment that import code from outside this package."""
        inner = [self.algorithm.get(part) for part in PARTS]
        outer = [self.data, self.model, self.algorithm, self.participation]
        sections = [*outer, *(part for part in inner if isinstance(part, dict))]
        names = [str(section.get("name", "")) for section in sections]
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

    def fingerprint(self) -> str:
        """Return a digest of all settings that can change a result."""
        kept = {name: value for name, value in self.to_dict().items() if name not in UNSAVED}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _construct(section: Section, registry: Mapping[str, Any], what: str, where: str) -> Any:
    """Return the object that a section names, made with the settings in it."""
    if "name" not in section:
        raise ConfigError(f"{where} needs a name, such as {what} = {{ name = '{next(iter(registry))}' }}")
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
        raise ConfigError(f"{what} is too large for the memory of this machine; choose smaller layers") from error


def _require_device(name: str) -> None:
    """Raise an error for a device that torch does not know or does not have."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device '{name}' cannot be used here ({str(error).splitlines()[0]}); 'cpu' can") from None


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
    return Experiment(**copy.deepcopy({name: fit(value, known[name], name) for name, value in values.items()}))


def _inner(values: Mapping[str, Any]) -> set[str]:
    """Return the settings inside sections, as --set names them; imports nothing."""
    registries: dict[str, Mapping[str, Any]] = {"data": DATASETS, "model": MODELS, "algorithm": ALGORITHMS}
    found = {f"learner.{name}" for name in fields_of(Settings)} | {f"model.{name}" for name in COMMON}
    found.add("data.validation_share")
    for section, registry in registries.items():
        named = values[section].get("name") if isinstance(values[section], dict) else None
        if isinstance(named, str) and named in registry:
            found |= {f"{section}.{name}" for name in fields_of(registry[named])}
    return found


def with_seed(experiment: Experiment, seed: int) -> Experiment:
    """Return the experiment with another seed."""
    return replace(experiment, seed=seed)


def load(config: str | Path, changes: Sequence[str] = (), *, algorithm: str | None = None) -> Experiment:
    """Return the experiment in a TOML file, or the shipped one of that name, with changes such as "rounds=20".

    algorithm: another algorithm, or a variant of the experiment; the changes are then made to it.
    """
    asked = typed(changes)
    if algorithm is None:
        return from_dict(lay(asked, _read(config)))
    return base_of(config, asked).variant(algorithm, asked)


def base_of(config: str | Path, changes: Iterable[Change]) -> Experiment:
    """Return the experiment that variants are derived from: with all changes except those of the algorithm."""
    return from_dict(lay((change for change in changes if change.section != "algorithm"), _read(config)))


@cache
def shipped() -> Mapping[str, str]:
    """Return the experiments that come with the package: name and first comment line."""
    found = {}
    for entry in files("e2fl.experiments").iterdir():
        if entry.name.endswith(".toml"):
            first = entry.read_text(encoding="utf-8").splitlines()[0]
            found[entry.name.removesuffix(".toml")] = first.lstrip("# ")
    return dict(sorted(found.items()))


@cache
def shipped_text(name: str) -> str:
    """Return a shipped experiment as TOML."""
    if name not in shipped():
        raise ConfigError(f"there is no shipped experiment '{name}'{did_you_mean(name, shipped())}")
    return (files("e2fl.experiments") / f"{name}.toml").read_text(encoding="utf-8")


def _read(config: str | Path) -> Section:
    path = Path(config)
    try:
        if path.suffix == ".toml" or path.is_file():
            return tomllib.loads(path.read_text(encoding="utf-8"))
        if str(config) in shipped():
            return tomllib.loads(shipped_text(str(config)))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from error
    raise ConfigError(f"there is no file and no shipped experiment '{config}'{did_you_mean(str(config), shipped())}")
