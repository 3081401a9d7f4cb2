"""What a Flower run adds to an experiment: who is waited for, how long, and how few are enough."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from e2fl.construct import construct
from e2fl.data.federated import ClientId
from e2fl.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """The run configuration of the server app; Flower spells these names with hyphens."""

    out: str = ""  # the folder of the run, on the server's machine; empty: nothing is kept
    resume: bool = False  # go on with the run in `out`
    clients: int = 0  # a run begins when so many are there; 0: all that the data set has
    least_clients: int = 1  # with fewer than these, it neither begins nor goes on
    wait_seconds: float = 120.0  # for clients to be there
    round_seconds: float = 600.0  # for answers of a round's training; later ones are left out
    evaluate_seconds: float = 600.0  # for answers of an evaluation
    poll_seconds: float = 0.2  # between looks for answers
    least_answers: int = 1  # a round with fewer changes nothing
    least_answers_per_group: int = 1  # a declared group with fewer is left out of the round
    pins: str = ""  # "NODE=CLIENT NODE=CLIENT": which registered node may be which client; empty: any may be any

    def __post_init__(self) -> None:
        for name in ("wait_seconds", "round_seconds", "evaluate_seconds", "poll_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{_spelt(name)} must be above 0, not {getattr(self, name)}")
        for name, least in (
            ("clients", 0),
            ("least_clients", 1),
            ("least_answers", 1),
            ("least_answers_per_group", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"{_spelt(name)} must be at least {least}, not {getattr(self, name)}")
        if self.resume and not self.out:
            raise ConfigError("resume needs out: the folder of the run to go on with")
        _ = self.pinned  # says what is wrong with it, if something is

    @property
    def folder(self) -> Path | None:
        return Path(self.out).expanduser() if self.out else None

    @property
    def pinned(self) -> dict[int, ClientId]:
        """The client of each node that is pinned to one."""
        try:
            pairs = [pair.split("=") for pair in self.pins.split()]
            return {int(node): int(client) for node, client in pairs}
        except ValueError:
            raise ConfigError(f"pins are NODE=CLIENT with spaces between, whole numbers, not '{self.pins}'") from None


def from_run_config(values: Mapping[str, Any]) -> Options:
    """The options among the keys of a run configuration; the others belong to somebody else."""
    known = {_spelt(field.name): field.name for field in fields(Options)}
    named = {known[key]: value for key, value in values.items() if key in known}
    options: Options = construct(Options, named, "the run configuration")
    return options


def changes(values: Mapping[str, Any]) -> list[str]:
    """Changes to the experiment, as --set takes them, from the key `set`: "rounds=20; seed=1"."""
    return [change.strip() for change in str(values.get("set", "")).split(";") if change.strip()]


def _spelt(name: str) -> str:
    return name.replace("_", "-")
