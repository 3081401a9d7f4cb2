"""The settings that a Flower run adds to an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from e2fl.construct import construct
from e2fl.data.federated import ClientId
from e2fl.errors import ConfigError


@dataclass(frozen=True)
class RunConfig:
    """The run configuration of the server app; Flower spells these names with hyphens."""

    out: str = ""  # the run's folder, on the server; empty: nothing is stored
    resume: bool = False  # resume the run in `out`
    clients: int = 0  # start when this many are connected; 0: all clients of the data set
    least_clients: int = 1  # with fewer, the run neither starts nor continues
    wait_seconds: float = 120.0  # for clients to connect
    round_seconds: float = 600.0  # for the replies of a round or an evaluation; later: not used
    poll_seconds: float = 0.2  # between polls for replies
    least_answers: int = 1  # a round with fewer replies changes nothing
    pins: str = "any"  # "NODE=CLIENT ...": which node may be which client; or "any", "required"

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("_seconds") and not 0 < value < float("inf"):
                raise ConfigError(f"{_key(name)} must be above 0 and finite, not {value}")
            if name.startswith("least_") and value < 1:
                raise ConfigError(f"{_key(name)} must be at least 1, not {value}")
        if self.resume and not self.out:
            raise ConfigError("resume needs out: the folder of the run to resume")
        if self.pins != "required":
            _ = self.pinned  # raises ConfigError if pins are malformed

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "RunConfig":
        """Return the settings in a Flower run configuration, without keys of the user's app."""
        names = [field.name for field in fields(cls) if _key(field.name) in values]
        config: RunConfig = construct(
            cls, {name: values[_key(name)] for name in names}, "the run configuration"
        )
        return config

    @property
    def folder(self) -> Path | None:
        """The run's folder, or None if nothing is stored."""
        return Path(self.out).expanduser() if self.out else None

    @property
    def pinned(self) -> dict[int, set[ClientId]] | None:
        """The clients each node may be; None: any node may be any client."""
        if self.pins == "any":
            return None
        if self.pins in ("", "required"):
            raise ConfigError(
                "pins are required: start the run with scripts/run, which passes keys/pins, "
                "or let any registered node be any client with -c \"pins='any'\""
            )
        allowed: dict[int, set[ClientId]] = {}
        try:
            for pair in self.pins.split():
                node, client = pair.split("=")
                allowed.setdefault(int(node), set()).add(int(client))
        except ValueError:
            raise ConfigError(f"pins are NODE=CLIENT pairs, not '{self.pins}'") from None
        return allowed


def overrides(values: Mapping[str, Any]) -> list[str]:
    """Return the overrides of the experiment in the key `set`, such as "rounds=20; seed=1"."""
    return [text.strip() for text in str(values.get("set", "")).split(";") if text.strip()]


def _key(name: str) -> str:
    return name.replace("_", "-")
