"""What each table and figure needs, from `studies.toml`, and what of it is missing."""

import itertools
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError
from paper.ledger import HERE, Identity, Json, LedgerRun

DECLARED: Json = tomllib.loads((HERE / "studies.toml").read_text(encoding="utf-8"))
LISTS = DECLARED.pop("lists")


@dataclass(frozen=True)
class Planned(Identity):
    """One run that a study needs."""

    rounds: int
    evaluate_every: int
    changed: Json = field(default_factory=dict, compare=False)  # by the user, so not in the label
    reached: int = field(default=0, compare=False)  # the last evaluated round, if it was begun

    @property
    def label(self) -> str:
        """The method, and how it differs from the shipped one."""
        own = {key: value for key, value in self.overrides.items() if key not in self.changed}
        changes = ", ".join(f"{key}={value}" for key, value in own.items())
        return f"{self.method} ({changes})" if changes else self.method

    def __str__(self) -> str:
        begun = f", has {self.reached}" if self.reached else ""
        return f"{self.label}: seed {self.seed}, to round {self.rounds}{begun}"


def study(name: str) -> Json:
    """Return the declaration of a study."""
    if name not in DECLARED:
        raise ConfigError(f"there is no table or figure '{name}'{did_you_mean(name, DECLARED)}")
    spec: Json = DECLARED[name]
    return spec


def needed(
    name: str, seeds: Sequence[int] | None = None, methods: Sequence[str] | None = None
) -> list[Planned]:
    """Return the runs of a study, the first seed of every method before the second of any."""
    spec = study(name)
    known = {method for part in spec["parts"] for method in part["methods"]}
    for method in methods or ():
        if method not in known:
            raise ConfigError(f"{name} has no method '{method}'{did_you_mean(method, known)}")
    runs = [
        (position, Planned(spec["experiment"], method, seed, overrides, *_rounds(spec, method)))
        for part in spec["parts"]
        for overrides in _combinations(spec, part)
        for method in part["methods"]
        for position, seed in enumerate(range(part["seeds"]) if seeds is None else seeds)
        if methods is None or method in methods
    ]
    ordered = [run for _, run in sorted(runs, key=lambda pair: pair[0])]
    return list({run.identity: run for run in ordered}.values())


def _combinations(spec: Json, part: Json) -> Iterator[Json]:
    base = spec.get("overrides", {}) | part.get("overrides", {})
    for choice in itertools.product(*(LISTS[name] for name in part.get("vary", ()))):
        varied = {key: value for values in choice for key, value in values.items()}
        if varied not in part.get("except", ()):
            yield base | varied


def _rounds(spec: Json, method: str) -> tuple[int, int]:
    """Return the rounds of a method, and how many lie between two evaluations."""
    own = _shipped(spec["experiment"])
    values = own | own.get("variants", {}).get(method, {}) | spec
    return values["rounds"], values["evaluate_every"]


@cache
def _shipped(experiment: str) -> Json:
    return tomllib.loads((files("e2fl.experiments") / f"{experiment}.toml").read_text("utf-8"))


def missing(planned: Sequence[Planned], runs: Sequence[LedgerRun]) -> list[Planned]:
    """Return the planned runs whose last round is not evaluated, with the round they reached."""
    known = {run.identity: run for run in runs}
    found = []
    for item in planned:
        run = known.get(item.identity)
        if run is None or not complete(run, item.rounds):
            reached = run.reached if run is not None and run.reached <= item.rounds else 0
            found.append(replace(item, reached=reached))
    return found


def complete(run: LedgerRun, rounds: int) -> bool:
    """Return whether a run has what was asked for; Local ends by itself, whatever is asked for."""
    if run.finished and (run.planned == rounds or run.reached < run.planned):
        return True
    if run.finished and run.reached > run.planned:
        return False  # rounds were added to those asked for: its last one is that of no other run
    return any(line["round"] == rounds for line in run.rounds)


def state(runs: Sequence[LedgerRun]) -> list[tuple[str, int, list[Planned]]]:
    """Return for each study its title, how many runs it takes, and those that are missing."""
    planned = {spec["title"]: needed(name) for name, spec in DECLARED.items()}
    return [(title, len(own), missing(own, runs)) for title, own in planned.items()]
