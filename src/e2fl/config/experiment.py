"""Experiment: the whole configuration of a run, from TOML and back. Imports no torch.

Each section has a name and the settings of what it names. `variants` holds what differs when
another algorithm, or the same one with other settings, runs on the same experiment.
"""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
from typing_extensions import Doc

from e2fl.config.files import read
from e2fl.config.overrides import NEUTRAL, Change, flattened, given, lay, typed
from e2fl.construct import did_you_mean, fields_of, fit, is_shipped, look_up
from e2fl.errors import ConfigError, require_setting

if TYPE_CHECKING:
    from e2fl.config.build import Builder

Section = dict[str, Any]


LEAST = {"rounds": 1, "evaluate_every": 1, "threads": 1} | dict.fromkeys(
    ("seed", "evaluate_clients", "examples_limit"), 0
)
NAMING = (("algorithm",), ("algorithm", "name"))  # settings that choose the algorithm
# Sections of an algorithm: the keys of `SECTION_REGISTRIES`, which imports torch.
ALGORITHM_SECTIONS = ("grouping", "ballot", "downlink", "served", "vote")


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
        for part in ALGORITHM_SECTIONS:  # vote = "borda" is short for vote = { name = "borda" }
            if isinstance(self.algorithm.get(part), str):
                self.algorithm[part] = {"name": self.algorithm[part]}

    @property
    def label(self) -> str:
        """The display name of this run."""
        return str(self.algorithm.get("label", self.algorithm["name"].rpartition("/")[2]))

    @property
    def build(self) -> "Builder":
        """What makes the parts of this experiment: `experiment.build.data()`."""
        from e2fl.config.build import Builder  # imports torch

        return Builder(self)

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
        from e2fl.algorithms import ALGORITHMS  # imports torch

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
        from e2fl.algorithms import ALGORITHMS  # imports torch

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
        neutral = {*NEUTRAL, "rounds"}
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


def from_dict(values: Mapping[str, Any]) -> Experiment:
    """Return an experiment from the contents of a TOML file."""
    known = fields_of(Experiment)
    for name in ("data", "algorithm", "model"):
        if name not in values:
            raise ConfigError(f"the configuration has no section '{name}'")
    for name in values:
        if name not in known:
            from e2fl.learning import Settings  # imports torch

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
