"""The files of a run: config.toml, history.jsonl, clients.csv, summary.json and more.

history.jsonl has a line for each evaluated round, clients.csv every client at the last evaluation,
model.safetensors the models, encoding.json how the columns of a table became inputs; data.json and
data.svg describe the data. Reading a run imports nothing that its files name, and follows no links.
"""

import csv
import io
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from e2fl.errors import ConfigError, RunError, StorageError, reason_of
from e2fl.files import PARTIAL, finite, parse, read_text, remove, write_text, writing
from e2fl.runs.records import Json
from e2fl.text import neutral, plain

if TYPE_CHECKING:
    from e2fl.config.experiment import Experiment

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

COLUMNS = ("client", "group", "n", "accuracy", "loss")
COMMAND = "command.txt"  # the command that made a run or a comparison, in its folder
PAGE = "report.html"
ENCODING = "encoding.json"  # how the columns of a table became inputs


@dataclass(frozen=True)
class Run:
    """A run as recorded: plain JSON values, as in its files."""

    config: Json  # with every default
    summary: Json
    history: list[Json]
    clients: list[Json]
    state: Any = field(repr=False, default=None)  # of a run that was made in this process
    folder: Path | None = None

    @cached_property
    def experiment(self) -> "Experiment":
        """The whole configuration; nothing that it names is imported."""
        from e2fl.config.experiment import from_dict

        return from_dict(self.config)

    @property
    def label(self) -> str:
        """The display name of the method."""
        algorithm = self.config["algorithm"]
        return str(algorithm.get("label", algorithm["name"]))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


def read_run(path: str | Path) -> Run:
    """Return a finished run from its folder; damaged files are rejected."""
    folder = Folder(Path(path))
    summary, history = folder.read_summary(), folder.read_history()
    if not history or history[-1].get("clients") != summary.get("clients"):
        raise RunError(f"{folder.path}: history.jsonl does not end as summary.json does")
    config, clients = folder.read_config(), folder.read_clients()
    return Run(config, summary, history, clients, folder=folder.path)


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
            raise RunError(
                f"another process is using {self.path}; wait for it to end, or stop it"
            ) from error
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

    def unfinish(self) -> None:
        """Remove the summary of a finished run, so that it can continue."""
        with writing(self.path / "summary.json"):
            (self.path / "summary.json").unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """Replace a file atomically."""
        write_text(self.path / name, text)

    def write_command(self, command: str) -> None:
        """Store the command that began a run or a comparison; one that resumes it is not stored."""
        if command and not (self.path / COMMAND).exists():
            self.write(COMMAND, command + "\n")

    def write_json(self, name: str, value: Json) -> None:
        self.write(name, json_text(value))

    def write_history(self, lines: Iterable[Json]) -> None:
        """Replace the history."""
        self.write("history.jsonl", "".join(map(_line, lines)))

    def append_history(self, line: Json) -> None:
        """Add a line."""
        with self._appending_history() as file:
            file.write(_line(line))

    def flush_history(self) -> None:
        """Make sure that the history is on disk: a checkpoint must not be ahead of it."""
        with self._appending_history() as file:
            os.fsync(file.fileno())

    @contextmanager
    def _appending_history(self) -> Iterator[TextIO]:
        path = self.path / "history.jsonl"
        if not path.is_file():
            raise StorageError(f"cannot write {path}: it was removed while the run used it")
        with writing(path), path.open("a", encoding="utf-8") as file:
            yield file

    def write_clients(self, rows: list[Json]) -> None:
        columns = list(dict.fromkeys((*COLUMNS, *(name for row in rows for name in row))))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: neutral(value) for name, value in row.items()} for row in rows)
        self.write("clients.csv", text.getvalue())

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
        config: Json = self._read("config.toml", _config, "is not the folder of a run")
        return config

    def read_experiment(self) -> "Experiment":
        """Return the configuration; nothing that it names is imported."""
        from e2fl.config.experiment import from_dict

        try:
            return from_dict(self.read_config())
        except ConfigError as error:
            raise RunError(f"{self.path}: config.toml is not valid ({error})") from error

    def read_summary(self) -> Json:
        summary: Json = self._read("summary.json", _object, "holds no finished run")
        return summary

    def read_json(self, name: str) -> Json | None:
        """Return the object in a file that a run may lack; None if it is missing."""
        return self._read(name, _object) if os.path.lexists(self.path / name) else None

    def read_history(self) -> list[Json]:
        """Return the evaluated rounds."""
        known = os.path.lexists(self.path / "history.jsonl")
        return self._read("history.jsonl", _lines) if known else []

    def read_clients(self) -> list[Json]:
        rows: list[Json] = self._read("clients.csv", _clients)
        return rows

    def _read(self, name: str, read: Callable[[str], Any], what: str = "is damaged") -> Any:
        """Return what `read` makes of a file; whatever is wrong with it is one `RunError`."""
        try:
            return parse(read, read_text(self.path / name))
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            reason = reason_of(error)
            raise RunError(f"{self.path} {what}: {name} cannot be read ({reason})") from error


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
    for section in ("data", "algorithm", "model"):
        if not isinstance(config[section]["name"], str):
            raise ValueError(f"section '{section}' has no name")
    for name, kind in (("name", str), ("seed", int), ("rounds", int)):
        if not isinstance(config[name], kind):
            raise ValueError(f"{name} is {config[name]!r}")
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


def _clients(text: str) -> list[Json]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = list(reader)
    if not set(COLUMNS) <= {*(reader.fieldnames or ())}:
        raise ValueError(f"a column is missing: it needs {', '.join(COLUMNS)}")
    return [{name: _cell(name, cell) for name, cell in row.items()} for row in rows]


def _cell(column: str, text: str) -> Any:
    """Return the value that was written to a column of clients.csv."""
    if column in ("n", "served_as"):
        return int(text) if text else None
    if column == "loss" or column.startswith("accuracy"):
        return float(text) if text else math.nan
    return plain(text)
