"""Files of the data sets: where they are, downloads with their checksums, and readers.

Files are the user's own and are read by libraries that execute nothing; a damaged one raises a
`DataError`.
"""

import gzip
import hashlib
import logging
import os
import sys
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pooch
from numpy.typing import NDArray

from e2fl.construct import did_you_mean
from e2fl.errors import ConfigError, DataError, reason_of

IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def data_directory(directory: str | None = None) -> Path:
    """Return the folder that the configuration or E2FL_DATA names; default: the user's cache."""
    named = directory or os.environ.get("E2FL_DATA")
    return Path(named).expanduser() if named else Path(pooch.os_cache("e2fl"))


def existing(path: str) -> Path:
    """Return a path given by the user, or raise an error if it does not exist."""
    named = Path(path).expanduser()
    if not named.exists():
        raise DataError(f"there is no file or folder {named.name} in {named.absolute().parent}")
    return named


@dataclass(frozen=True)
class File:
    """One file as published."""

    name: str
    size: int  # bytes
    mirrors: tuple[str, ...]  # URLs of folders that hold it
    sha256: str

    def download(self, folder: Path) -> Path:
        """Download from the first mirror that delivers the published file, and return its path."""
        pooch.get_logger().setLevel(logging.WARNING)
        reasons = []
        for mirror in self.mirrors:
            try:
                shown = sys.stderr.isatty()
                url = mirror + self.name
                return Path(pooch.retrieve(url, self.sha256, self.name, folder, progressbar=shown))
            except Exception as error:  # of the network, the server, the disk, or the checksum
                reasons.append(f"{mirror}: {reason_of(error)}")
        raise DataError(
            f"{self.name} could not be fetched; put it at {folder / self.name} yourself. "
            f"Tried: {'; '.join(reasons)}"
        )

    def contents(self, path: Path) -> bytes:
        """Return the contents of a file, or raise an error unless it is the published one."""
        raw = path.read_bytes()
        with suppress(OSError, EOFError, zlib.error):  # damaged, as its checksum shows
            raw = raw if path.name == self.name else gzip.decompress(raw)
        if hashlib.sha256(raw).hexdigest() != self.sha256:
            raise DataError(f"{path} is damaged or not the published file: its SHA-256 differs")
        return raw


@dataclass(frozen=True)
class Source:
    """The files of one data set, all in one folder."""

    name: str  # also the name of the folder
    about: str
    licence: str
    files: tuple[File, ...]

    def locate(self, name: str, directory: str | None = None) -> Path | None:
        """Return the path of a file, plain or gzipped, in or below the data directory."""
        home = data_directory(directory)
        folders = (home / self.name, home)
        paths = (folder / end for folder in folders for end in (name, f"{name}.gz"))
        return next((path for path in paths if path.is_file()), None)

    def read(self, directory: str | None = None) -> Iterator[bytes]:
        """Yield the contents of the files, after checking their checksums."""
        for file in self.files:
            path = self.locate(file.name, directory)
            if path is None:
                raise DataError(
                    f"{data_directory(directory) / self.name / file.name} is missing; run "
                    f"`e2fl data get {self.name}`, or put it there yourself (from "
                    f"{file.mirrors[0]}{file.name}, SHA-256 {file.sha256}), or set E2FL_DATA or "
                    "data.dir to the folder that has it"
                )
            yield file.contents(path)


def _sources() -> dict[str, Source]:
    """Return the known data sets, from sources.toml."""
    text = (files("e2fl.data") / "sources.toml").read_text(encoding="utf-8")
    sources = {}
    for name, known in tomllib.loads(text).items():
        mirrors = tuple(known.pop("mirrors"))
        published = tuple(File(**file, mirrors=mirrors) for file in known.pop("files"))
        sources[name] = Source(name, files=published, **known)
    return sources


SOURCES: dict[str, Source] = _sources()
# Data sets made from the files of others.
MADE_OF = {"fair_mnist_rotate": ("mnist",), "mnist_writers": ("mnist", "qmnist")}


def listing() -> str:
    """Return a table of the files that are present or missing, with their sizes and licences."""
    lines = [f"data directory: {data_directory()}", ""]
    lines += ["bundled  5,000 images of MNIST, for the demo", "  here"]
    for source in SOURCES.values():
        lines += ["", f"{source.name}  {source.about}", f"  licence: {source.licence}"]
        for file in source.files:
            path, size = source.locate(file.name), f"{file.size / 2**20:.1f} MiB"
            missing = f"missing; `e2fl data get {source.name}` fetches {size}"
            lines.append(f"  {file.name}: {missing if path is None else 'here'}")
    return "\n".join(lines)


def get(name: str) -> str:
    """Download the missing files of a data set, and compare those here with their checksums."""
    if name not in SOURCES and name not in MADE_OF:
        hint = did_you_mean(name, SOURCES | MADE_OF)
        raise ConfigError(f"there is no data set to fetch '{name}'{hint}")
    lines = []
    for source in [SOURCES[part] for part in MADE_OF.get(name, (name,))]:
        for file in source.files:
            path = source.locate(file.name) or file.download(data_directory() / source.name)
            file.contents(path)
            lines.append(f"{path}: as published")
    return "\n".join(lines)


def read_idx(raw: bytes) -> NDArray[Any]:
    """Return the array in a gzipped idx file, of bytes or integers."""
    plain = gzip.decompress(raw)
    kind, sides = IDX_TYPES[plain[2]], plain[3]
    shape = np.frombuffer(plain, ">u4", sides, offset=4)
    return np.frombuffer(plain, kind, offset=4 + 4 * sides).reshape(shape)


def load_arrays(
    path: Path, names: Iterable[str], *, optional: Iterable[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return arrays of an .npz."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = [*names, *(name for name in optional if name in archive)]
            return {name: archive[name] for name in wanted}
    except Exception as error:  # whatever numpy does with a damaged file
        raise DataError(f"{path} cannot be read: {reason_of(error)}") from error
