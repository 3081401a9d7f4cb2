"""The files of a run.

They are config.toml, history.jsonl (a line for each evaluated round), times.jsonl (its seconds), clients.csv (every
client at the last evaluation), summary.json, model.safetensors, data.json, data.svg and manifest.json.

Files and fields are a contract with other programs. manifest.json holds the digests of what a finished run wrote: a
file that was damaged or edited later is rejected when the run is read.
"""

import csv
import io
import json
import math
import os
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from e2fl.config.experiment import Experiment, from_dict
from e2fl.csv_text import neutral, plain
from e2fl.errors import E2flError, RunError, StorageError
from e2fl.files import PARTIAL, finite, remove, replacing, sha256, sha256_of, write_text, writing
from e2fl.models import Params, storable
from e2fl.ranking import Mask
from e2fl.runs.records import Json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

COLUMNS = ("client", "group", "n", "accuracy", "loss")
MANIFEST = "manifest.json"
COMMAND = "command.txt"  # the command that made a run or a comparison, in its folder
PAGE = "report.html"


class Folder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def memories(self) -> Path:
        return self.path / "checkpoint" / "clients"

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
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(f"another process is using {self.path}; wait for it to end, or stop it") from error
            yield
        finally:
            os.close(folder)

    def exists(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not entry.name.endswith(PARTIAL) for entry in self.path.iterdir())

    def require_new(self, resume: bool) -> None:
        """Raise `RunError` if the folder is not empty and `resume` is False."""
        if self.exists() and not resume:
            raise RunError(
                f"{self.path} already exists; pass --resume to continue it, or choose another folder with --out"
            )

    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def write(self, name: str, text: str) -> None:
        """Replace a file atomically."""
        write_text(self.path / name, text)

    def write_json(self, name: str, value: Json) -> None:
        self.write(name, json_text(value))

    def write_history(self, lines: Iterable[Json]) -> None:
        self.write("history.jsonl", "".join(json.dumps(finite(line)) + "\n" for line in lines))

    def append_history(self, line: Json) -> None:
        path = self.path / "history.jsonl"
        if not path.is_file():
            raise StorageError(f"cannot write {path}: the file was removed while the run used it; start the run again")
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(line)) + "\n")

    def write_times(self, times: Mapping[int, float]) -> None:
        self.write("times.jsonl", "".join(_time(number, seconds) for number, seconds in times.items()))

    def append_times(self, number: int, seconds: float) -> None:
        """Record the seconds up to this round; not in the history, which must be identical in every repetition."""
        with writing(self.path / "times.jsonl"), (self.path / "times.jsonl").open("a", encoding="utf-8") as file:
            file.write(_time(number, seconds))

    def write_clients(self, rows: list[Json]) -> None:
        columns = list(dict.fromkeys((*COLUMNS, *(name for row in rows for name in row))))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: neutral(value) for name, value in row.items()} for row in rows)
        self.write("clients.csv", text.getvalue())

    def write_models(self, models: Mapping[str, Params | Mask]) -> None:
        """Write all models of a run, named MODEL/LAYER; weights as float32, masks of the supernetwork as booleans."""
        if not models:
            return
        tensors = {
            f"{name}/{layer}": storable(torch.as_tensor(value))
            for name, model in models.items()
            for layer, value in model.items()
        }
        with replacing(self.path / "model.safetensors") as partial:
            save_file(tensors, partial)

    def write_summary(self, summary: Json) -> None:
        """Write the digests of all results, then the summary, whose presence means that the run is finished."""
        text = json_text(summary)
        names = ("history.jsonl", "clients.csv", "model.safetensors")
        digests = {name: sha256_of(self.path / name) for name in names if (self.path / name).is_file()}
        digests["summary.json"] = sha256(text.encode())
        self.write(MANIFEST, json_text({"sha256": digests}))
        self.write("summary.json", text)

    def unfinish(self) -> None:
        """Remove the summary and the digests of a finished run, so that it can continue."""
        for name in ("summary.json", MANIFEST):
            with writing(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove partial files of an interrupted process."""
        for folder in (self.path, self.checkpoints, self.memories):
            for entry in folder.iterdir() if folder.is_dir() else ():
                if entry.name.endswith(PARTIAL):
                    remove(entry)

    def verify(self, names: Collection[str] | None = None) -> None:
        """Compare the results of a finished run, or only these files, with its manifest; older runs have none."""
        path = self.path / MANIFEST
        if not path.is_file():
            return
        try:
            digests: Mapping[str, str] = dict(json.loads(path.read_text(encoding="utf-8"))["sha256"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(MANIFEST, f"it cannot be read ({error})") from error
        for name, digest in digests.items():
            if names is not None and name not in names:
                continue
            if os.sep in name or not (self.path / name).is_file():
                raise self._damaged(name, "it is missing")
            if sha256_of(self.path / name) != digest:
                raise self._damaged(name, "it is not what the run wrote")

    def _damaged(self, name: str, reason: str) -> RunError:
        return RunError(
            f"{self.path / name} is damaged: {reason}; restore it from a copy, or repeat the run in another folder"
        )

    def read_experiment(self) -> Experiment:
        path = self.path / "config.toml"
        try:
            return from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, E2flError) as error:
            raise RunError(f"{self.path} is not the folder of a run: {path.name} cannot be read ({error})") from error

    def read_history(self, size: int | None = None) -> list[Json]:
        """Return the evaluated rounds; size: only those in the first `size` bytes of the file."""
        return self._read_lines("history.jsonl", size)

    def read_times(self) -> dict[int, float]:
        """Return the seconds that each evaluated round and those before it took."""
        lines = self._read_lines("times.jsonl")
        return {line["round"]: line["seconds"] for line in lines if isinstance(line.get("seconds"), int | float)}

    def _read_lines(self, name: str, size: int | None = None) -> list[Json]:
        path = self.path / name
        if not path.is_file():
            return []
        try:
            lines = path.read_bytes()[:size].decode("utf-8").splitlines(keepends=True)
            # A process killed while it wrote leaves half a line; that round is repeated.
            found = [json.loads(line) for line in lines if line.endswith("\n")]
            if not all(isinstance(line, dict) and isinstance(line.get("round"), int) for line in found):
                raise ValueError("a line is not an evaluated round")
        except (OSError, ValueError) as error:
            raise self._damaged(path.name, f"it cannot be read ({error})") from error
        return found

    def read_summary(self) -> Json:
        path = self.path / "summary.json"
        try:
            summary: Json = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(summary, dict):
                raise ValueError("it is not an object")
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path} holds no finished run: {path.name} cannot be read ({error})") from error
        return summary

    def read_clients(self) -> list[Json]:
        path = self.path / "clients.csv"
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                rows = list(reader)
            if not set(COLUMNS) <= {*(reader.fieldnames or ())}:
                raise ValueError(f"a column is missing: it needs {', '.join(COLUMNS)}")
            return [{name: _cell(name, text) for name, text in row.items()} for row in rows]
        except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
            raise self._damaged(path.name, f"it cannot be read ({error})") from error


def run_folders(path: Path, depth: int = 3) -> Iterator[Path]:
    """Yield this folder if it is of a run, or those below it that are, down to this many levels."""
    if (path / "config.toml").is_file():
        yield path
    elif depth and path.is_dir():
        for inner in sorted(path.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from run_folders(inner, depth - 1)


def _time(number: int, seconds: float) -> str:
    return json.dumps({"round": number, "seconds": seconds}) + "\n"


def json_text(value: Json) -> str:
    return json.dumps(finite(value), indent=1) + "\n"


def _cell(column: str, text: str) -> Any:
    """Return the value that was written to a column of clients.csv."""
    if column in ("n", "served_as"):
        return int(text) if text else None
    if column == "loss" or column.startswith("accuracy"):
        return float(text) if text else math.nan
    return plain(text)
