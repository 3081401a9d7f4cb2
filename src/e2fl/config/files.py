"""Experiments as files: TOML files, and those that come with the package. Imports no torch."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError, reason_of
from e2fl.files import parse, read_text

PATHS = (("data", "path"), ("data", "dir"))  # settings that name files


@cache
def shipped() -> Mapping[str, str]:
    """Return the experiments that come with the package: name and first comment line."""
    texts = {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in files("e2fl.experiments").iterdir()
        if entry.name.endswith(".toml")
    }
    return {name: texts[name].splitlines()[0].lstrip("# ") for name in sorted(texts)}


@cache
def shipped_text(name: str) -> str:
    """Return a shipped experiment as TOML."""
    if name not in shipped():
        raise ConfigError(f"there is no shipped experiment '{name}'{did_you_mean(name, shipped())}")
    return (files("e2fl.experiments") / f"{name}.toml").read_text(encoding="utf-8")


def read(config: str | Path) -> dict[str, Any]:
    """Return the settings in a TOML file, or of the shipped experiment of that name."""
    path = Path(config)
    try:
        if path.suffix == ".toml" or path.is_file():
            settings = parse(tomllib.loads, read_text(path.resolve()))
            return {name: _located(value, (name,), path) for name, value in settings.items()}
        if str(config) in shipped():
            return tomllib.loads(shipped_text(str(config)))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {reason_of(error)}") from error
    except ValueError as error:
        reason = reason_of(error)
        raise ConfigError(f"the configuration {path} is not valid TOML: {reason}") from error
    raise ConfigError(
        f"there is no file and no shipped experiment '{config}'"
        f"{did_you_mean(str(config), shipped())}"
    )


def _located(value: Any, keys: tuple[str, ...], toml: Path) -> Any:
    """Return settings in which files and code that lie beside the TOML are found from this folder.

    The config.toml of a run names them as they are seen from the folder in which the run was
    started. keys: where the value stands, such as data and path.
    """
    if isinstance(value, dict):
        return {name: _located(part, (*keys, name), toml) for name, part in value.items()}
    if isinstance(value, list):
        return [_located(part, keys, toml) for part in value]
    if isinstance(value, str) and keys[-2:] in PATHS:
        beside = toml.parent / Path(value).expanduser()
        absent = keys[-1] == "path" and toml.name != "config.toml" and not Path(value).exists()
        return str(beside) if beside.exists() or absent else value
    away = toml.parent.resolve() != Path.cwd()
    if away and keys[-1] in ("name", "measures") and isinstance(value, str) and ":" in value:
        place, _, attribute = value.rpartition(":")
        module = Path(place.removesuffix(".py"))
        if (toml.parent / module.parent / f"{module.name.replace('.', '/')}.py").is_file():
            return f"{(toml.parent / place).as_posix()}:{attribute}"
    return value
