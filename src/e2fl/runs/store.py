"""The files of a run, which docs/running.md lists, and reading them again.

Reading a run imports nothing that its files name, and follows no links.
"""

import io
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pandas

from e2fl.config.experiment import Experiment, from_dict
from e2fl.data.federated import FederatedData
from e2fl.errors import ConfigError, RunError, reason_of
from e2fl.files import (
    PARTIAL,
    append_text,
    finite,
    parse,
    read_text,
    remove,
    sync,
    write_text,
    writing,
)
from e2fl.runs.records import Json
from e2fl.text import neutral, plain

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Parsed = TypeVar("Parsed")

COLUMNS = ("client", "group", "n", "accuracy", "loss")
COMMAND = "command.txt"  # the command that made a run or a comparison, in its folder
PAGE = "report.html"
ENCODING = "encoding.json"  # how the columns of a table became inputs
HISTORY = "history.jsonl"
NEIGHBOURS = 200  # runs beside one that are looked at


@dataclass(frozen=True)
class StoredRun:
    """A run as recorded: plain JSON values, as in its files."""

    config: Json  # with every default
    summary: Json
    history: list[Json]
    clients: list[Json]
    state: Any = field(repr=False, default=None)  # of a run that was made in this process
    folder: Path | None = None

    @cached_property
    def experiment(self) -> Experiment:
        """The whole configuration; nothing that it names is imported."""
        return from_dict(self.config)

    @property
    def label(self) -> str:
        """The display name of the method."""
        algorithm = self.config["algorithm"]
        return str(algorithm.get("label", algorithm["name"].rpartition("/")[2]))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


def read_run(path: str | Path) -> StoredRun:
    """Return a finished run from its folder; damaged files are rejected."""
    folder = Folder(Path(path))
    summary, history = folder.read_summary(), folder.read_history()
    if not history or history[-1].get("clients") != summary.get("clients"):
        raise RunError(f"{folder.path}: {HISTORY} does not end as summary.json does")
    clients = folder.read("clients.csv", clients_of)
    return StoredRun(folder.read_config(), summary, history, clients, folder=folder.path)


class Folder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoint"
        self.memories = path / "checkpoint" / "clients"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes out of this folder; raise `RunError` if one is using it."""
        if fcntl is None:
            yield  # no file locks on this system
            return
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(folder)
            what = f"another process is using {self.path}; wait for it to end, or stop it"
            raise RunError(what) from error
        try:
            yield
        finally:
            os.close(folder)

    def exists(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not entry.name.endswith(PARTIAL) for entry in self.path.iterdir())

    def require_new(self, resume: bool) -> None:
        """Raise `RunError` if the folder is not empty and `resume` is False, or it has links.

        Writing to what a link names would change files elsewhere.
        """
        if self.exists() and not resume:
            raise RunError(
                f"{self.path} already exists; continue it with --resume (flwr run: -c "
                "resume=true), or choose another folder with --out"
            )
        for entry in self._entries():
            if entry.is_symlink():
                raise RunError(f"{entry} is a symbolic link; replace it by what it names")

    def require_same(self, experiment: Experiment) -> Experiment:
        """Return the stored experiment; `RunError` if a setting that changes results differs."""
        stored = self.read_experiment()
        before, now = stored.compared(), experiment.compared()
        names = sorted(name for name in before | now if before.get(name) != now.get(name))
        if names:
            changes = (
                f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names
            )
            raise RunError(
                f"{self.path} was run with another configuration: {', '.join(changes)}; use the "
                "same configuration, or choose another folder with --out"
            )
        return stored

    def clean(self) -> None:
        """Remove partial files of an interrupted process."""
        for entry in self._entries():
            if entry.name.endswith(PARTIAL):
                remove(entry)

    def _entries(self) -> list[Path]:
        folders = (self.path, self.checkpoints, self.memories)
        return [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]

    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def write(self, name: str, content: str | Json) -> None:
        """Replace a file atomically; what is no text is written as JSON."""
        write_text(self.path / name, content if isinstance(content, str) else json_text(content))

    def write_command(self, command: str) -> None:
        """Store the command that began a run or a comparison; one that resumes it is not stored."""
        if command and not (self.path / COMMAND).exists():
            self.write(COMMAND, command + "\n")

    def write_history(self, lines: Iterable[Json]) -> None:
        """Replace the history."""
        self.write(HISTORY, "".join(map(_line, lines)))

    def append_history(self, line: Json) -> None:
        """Add a line."""
        append_text(self.path / HISTORY, _line(line))

    def flush(self, *names: str) -> None:
        """Make sure that these files are on disk: a checkpoint must not be ahead of them."""
        for path in (self.path / name for name in names):
            with writing(path):
                sync(path)

    def write_clients(self, rows: list[Json]) -> None:
        table = pandas.DataFrame(rows, dtype=object).map(neutral)
        self.write("clients.csv", table.to_csv(index=False, lineterminator="\n"))

    def write_models(self, models: Mapping[str, Mapping[str, Any]]) -> None:
        """Write all models of a run, named MODEL/LAYER: weights as float32, masks as booleans."""
        import torch

        from e2fl.codec import save_tensors
        from e2fl.models import storable

        tensors = {
            f"{name}/{layer}": storable(torch.as_tensor(value))
            for name, model in models.items()
            for layer, value in model.items()
        }
        if tensors:
            save_tensors(self.path / "model.safetensors", tensors)

    def read_config(self) -> Json:
        """Return the settings in config.toml, with the sections that every run has."""
        return self.read("config.toml", _config, "is not the folder of a run")

    def read_experiment(self) -> Experiment:
        """Return the configuration; nothing that it names is imported."""
        try:
            return from_dict(self.read_config())
        except ConfigError as error:
            raise RunError(f"{self.path}: config.toml is not valid ({error})") from error

    def read_summary(self) -> Json:
        return self.read("summary.json", _object, "holds no finished run")

    def read_history(self) -> list[Json]:
        """Return the evaluated rounds."""
        return self.read(HISTORY, _lines) if os.path.lexists(self.path / HISTORY) else []

    def read_json(self, name: str) -> Json | None:
        """Return the object in a file that a run may lack; None if it is missing."""
        return self.read(name, _object) if os.path.lexists(self.path / name) else None

    def read(self, name: str, parser: Callable[[str], Parsed], what: str = "is damaged") -> Parsed:
        """Return what a parser makes of a file; whatever is wrong with it is one `RunError`."""
        try:
            return parse(parser, read_text(self.path / name))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = reason_of(error)
            raise RunError(f"{self.path} {what}: {name} cannot be read ({reason})") from error


def write_data(folder: Folder, data: FederatedData, warn: Callable[[str], None]) -> None:
    """Write data.svg and data.json, so that a report needs no data, if one of them is missing."""
    from e2fl.data.describe import summarise

    if not all((folder.path / name).is_file() for name in ("data.svg", "data.json")):
        try:
            summary = summarise(data)
            picture = summary.draw()
        except Exception as error:  # a data set is arbitrary code; this ends no run
            warn(f"data.svg is not written: {type(error).__name__}: {reason_of(error)}")
        else:
            folder.write("data.svg", picture)
            folder.write("data.json", summary.to_json())
    for column in _earlier_groups(folder, data.about()):
        warn(
            f"column '{column}' is an input here, and the group of an earlier run on the same "
            "table; if groups must not decide, leave it out with data.features"
        )


def _earlier_groups(folder: Folder, about: Mapping[str, Any]) -> list[str]:
    """Return the input columns that a run beside this one, on the same table, used as group."""
    if about.get("sha256") is None:
        return []
    groups = set()
    for path in islice(folder.path.parent.glob("*/summary.json"), NEIGHBOURS):
        with suppress(RunError):
            earlier = Folder(path.parent).read_summary().get("data") or {}
            if earlier.get("sha256") == about["sha256"]:
                groups.add(earlier.get("group_column"))
    return [name for name in about.get("columns", ()) if name in groups]


def run_folders(path: Path, depth: int = 3) -> Iterator[Path]:
    """Yield this folder if it is of a run, or those below it that are, down to this many levels."""
    if (path / "config.toml").is_file():
        yield path
    elif depth and path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from run_folders(inner, depth - 1)


def json_text(value: Json) -> str:
    return json.dumps(finite(value), indent=1) + "\n"


def _line(value: Json) -> str:
    return json.dumps(finite(value)) + "\n"


def _config(text: str) -> Json:
    config = tomllib.loads(text)
    names = [config["name"], *(config[key]["name"] for key in ("data", "algorithm", "model"))]
    if {*map(type, names)} != {str} or {type(config[key]) for key in ("seed", "rounds")} != {int}:
        raise ValueError("a name is no string, or seed or rounds no integer")
    return config


def _object(text: str) -> Json:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _lines(text: str) -> list[Json]:
    # A process killed while it wrote leaves half a line; that round is repeated.
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    lines = [_object(line) for line in whole]
    if not all(isinstance(line.get("round"), int) for line in lines):
        raise ValueError("a line is not an evaluated round")
    return lines


def clients_of(text: str) -> list[Json]:
    """Return the rows of a clients.csv."""
    table = pandas.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    if not set(COLUMNS) <= set(table):
        raise ValueError(f"a column is missing: it needs {', '.join(COLUMNS)}")
    rows = table.to_dict("records")
    return [{str(name): _cell(str(name), cell) for name, cell in row.items()} for row in rows]


def _cell(column: str, text: str) -> Any:
    """Return the value that was written to a column of clients.csv."""
    if column in ("n", "served_as"):
        return int(float(text)) if text else None
    if column == "loss" or column.startswith("accuracy"):
        return float(text) if text else math.nan
    return plain(text)
