"""The commands of `e2fl data`: list, get, check, show."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2fl.construct import did_you_mean
from e2fl.data import build
from e2fl.data.describe import summarise
from e2fl.data.files import SOURCES, File, Source, data_directory, extract
from e2fl.data.sets import femnist
from e2fl.errors import ConfigError, DataError
from e2fl.files import sha256_of, write_text

MIB = 2**20
# Data sets made from the files of others.
MADE_OF = {"fair_mnist_rotate": ("mnist",), "mnist_writers": ("mnist", "qmnist")}


def listing() -> str:
    """Return a table of the files that are present or missing, with their sizes and licences."""
    lines = [f"data directory: {data_directory()}", ""]
    lines += ["bundled  5,000 images of MNIST, for the demo", "  here"]
    for source in SOURCES.values():
        lines += ["", f"{source.name}  {source.about}", f"  licence: {source.licence}"]
        lines += [f"  {_state(source, file)}" for file in source.files]
    return "\n".join(lines)


def _state(source: Source, file: File) -> str:
    """Return which files a run would use, or that `get` fetches them."""
    try:
        paths = _used(source, file)
    except DataError as error:
        return f"{error}; `e2fl data get {source.name}` fetches {file.size / MIB:.1f} MiB"
    size = sum(path.stat().st_size for path in paths) / MIB
    more = ", a part of it" if paths[0].name == femnist.PARTIAL else ""
    return f"{', '.join(path.name for path in paths)}: here{more}, {size:.1f} MiB"


def _used(source: Source, file: File) -> list[Path]:
    """Return the files that a run would read, or raise an error if they are missing."""
    if file.members:
        return femnist.files_of(femnist.find(data_directory()))
    path = source.locate(file.name)
    if path is None:
        raise DataError(f"{file.name}: missing")
    return [path]


def get(name: str) -> str:
    """Download the missing files of a data set; return what was done."""
    lines = []
    for source, file in _files(name):
        wanted = file.members or (file.name,)
        if all(source.locate(member) for member in wanted):
            lines.append(f"{', '.join(wanted)}: already here")
            continue
        path = source.locate(file.name)
        if path is None:
            path = file.download(data_directory() / source.name)
            if file.sha256 is None:
                digest = sha256_of(path)
                lines.append(f"{file.name}: SHA-256 {digest}; no checksum is published")
        if file.members:
            extract(path, file.members)
        lines.append(f"{', '.join(wanted)}: in {path.parent}")
    return "\n".join(lines)


def check(name: str) -> str:
    """Compare every file of a data set with the published checksum, and return the result."""
    lines, missing = [], []
    for source, file in _files(name):
        try:
            if file.sha256 is not None:
                source.read(file.name)
                lines.append(f"{source.locate(file.name)}: as published")
                continue
            for path in _used(source, file):
                digest = sha256_of(path)
                lines.append(f"{path}: here, SHA-256 {digest}; no checksum is published")
        except DataError as error:
            missing.append(str(error))
    if missing:
        raise DataError("; ".join(missing))
    return "\n".join(lines)


def show(section: Mapping[str, Any], seed: int, out: Path) -> str:
    """Draw the data of a section of a configuration into a file, and return a description."""
    if out.suffix != ".svg":
        raise ConfigError(f"the picture must be an .svg file, not {out}")
    summary = summarise(build(section, seed=seed, where=f"data '{section['name']}'"))
    write_text(out, summary.draw())
    return f"{summary}\n\npicture: {out}"


def _files(name: str) -> list[tuple[Source, File]]:
    """Return the files of a data set, with their sources."""
    if name not in SOURCES and name not in MADE_OF:
        hint = did_you_mean(name, SOURCES | MADE_OF)
        raise ConfigError(f"there is no data set to fetch '{name}'{hint}")
    sources = [SOURCES[part] for part in MADE_OF.get(name, (name,))]
    return [(source, file) for source in sources for file in source.files]
