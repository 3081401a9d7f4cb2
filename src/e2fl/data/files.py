"""Files of the data sets: where they are, their checksums and mirrors, downloads, and readers.

Files are the user's own and are read by libraries that execute nothing; a damaged one raises a
`DataError`.
"""

import gzip
import hashlib
import logging
import os
import sys
import tarfile
import tomllib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pooch
from numpy.typing import NDArray

from e2fl.errors import DataError, reason_of

IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def data_directory(directory: str | None = None) -> Path:
    """Return the folder that the configuration or E2FL_DATA names; default: the user's cache."""
    named = directory or os.environ.get("E2FL_DATA")
    return Path(named).expanduser() if named else cache_directory()


def cache_directory() -> Path:
    """Return this user's folder for downloads."""
    return Path(pooch.os_cache("e2fl"))


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
    sha256: str | None = None  # if one is published
    members: tuple[str, ...] = ()  # the files to extract, if it is an archive
    instead: tuple[str, ...] = ()  # other files that serve as well

    @property
    def wanted(self) -> tuple[str, ...]:
        """The files that data sets read."""
        return self.members or (self.name,)

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
            f"Tried: {'; '.join(reasons) or 'no mirror'}"
        )

    def contents(self, path: Path) -> bytes:
        """Return the contents of a file, or raise an error unless it is the published one."""
        raw = path.read_bytes() if path.name == self.name else _gunzip(path.read_bytes(), path.name)
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
        paths = [
            folder / end for folder in (home / self.name, home) for end in (name, f"{name}.gz")
        ]
        return next((path for path in paths if path.is_file()), None)

    def present(self, names: Sequence[str]) -> list[Path]:
        """Return the paths of files; [] if some are missing."""
        paths = [path for name in names if (path := self.locate(name)) is not None]
        return paths if len(paths) == len(names) else []

    def read(self, name: str, directory: str | None = None) -> bytes:
        """Return the contents of a file, after checking its checksum."""
        file = next(file for file in self.files if file.name == name)
        path = self.locate(name, directory)
        if path is None:
            raise DataError(
                f"{data_directory(directory) / self.name / name} is missing; run "
                f"`e2fl data get {self.name}`, or put it there yourself (from "
                f"{file.mirrors[0]}{name}, SHA-256 {file.sha256}), or set E2FL_DATA or data.dir to "
                "the folder that has it"
            )
        return file.contents(path)


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


def _gunzip(raw: bytes, name: str) -> bytes:
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a complete .gz file: {reason_of(error)}") from error


def read_idx(raw: bytes, name: str) -> NDArray[Any]:
    """Return the array in a gzipped idx file, of bytes or integers."""
    plain = _gunzip(raw, name)
    try:
        kind, sides = IDX_TYPES[plain[2]], plain[3]
        shape = np.frombuffer(plain, ">u4", sides, offset=4)
        return np.frombuffer(plain, kind, offset=4 + 4 * sides).reshape(shape)
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"{name} is not an idx file of bytes or integers: {error}") from error


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


def extract(archive: Path, members: Iterable[str]) -> None:
    """Extract files, in any folder of a .tar archive, beside it; then remove the archive."""
    try:
        with tarfile.open(archive) as tar, TemporaryDirectory(dir=archive.parent) as folder:
            inside = {Path(member.name).name: member for member in tar.getmembers()}
            for name in members:
                tar.extract(inside[name].replace(name=name, deep=False), folder, filter="data")
            for name in members:  # complete files only
                (Path(folder) / name).replace(archive.parent / name)
    except (tarfile.TarError, EOFError, zlib.error, KeyError, OSError) as error:
        raise DataError(
            f"{archive} cannot be unpacked; if it is damaged, remove it and fetch it again: "
            f"{reason_of(error)}"
        ) from error
    archive.unlink()
