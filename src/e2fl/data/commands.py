"""The commands of `e2fl data`: list, get, check, show, convert."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2fl.construct import did_you_mean
from e2fl.data import build
from e2fl.data.describe import draw, summarise
from e2fl.data.files import SOURCES, File, Source, data_directory, existing, extract
from e2fl.data.sets import femnist
from e2fl.errors import ConfigError, DataError
from e2fl.files import sha256_of, write_text

MIB = 2**20
# Data sets made from the files of others.
MADE_OF = {"fair_mnist_rotate": ("mnist",), "mnist_writers": ("mnist", "qmnist")}


def listing() -> str:
    """Return a table of the files that are present or missing, with their sizes and licences."""
    lines = [f"data directory: {data_directory()}", ""]
    lines += ["bundled  5,000 images of MNIST, for the demo", "  here", ""]
    for source in SOURCES.values():
        lines += [f"{source.name}  {source.about}", f"  licence: {source.licence}"]
        lines += [f"  {_state(source, file)}" for file in source.files]
        lines += [f"  {source.advice}", ""] if source.advice else [""]
    return "\n".join(lines).rstrip()


def _state(source: Source, file: File) -> str:
    """Return which files a run would use, or that `get` fetches them."""
    offer = f"`e2fl data get {source.name}` fetches {file.size / MIB:.1f} MiB"
    if file.members:
        try:
            paths = femnist.files_of(femnist.find(data_directory()))
        except DataError as error:
            return f"{error}; {offer}"
        offer = f"; {offer}, all of it" if paths[0].name == femnist.PARTIAL else ""
        more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
        name = ", ".join(path.name for path in paths[:2]) + more
    else:
        path = source.locate(file.name)
        if path is None:
            return f"{file.name}: missing; {offer}"
        paths, name, offer = [path], file.name, ""
    return f"{name}: here, {sum(path.stat().st_size for path in paths) / MIB:.1f} MiB{offer}"


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
    if name == "femnist":
        paths = femnist.files_of(femnist.find(data_directory()))
        return "\n".join(
            f"{path}: here, SHA-256 {sha256_of(path)}; no checksum is published" for path in paths
        )
    lines, missing = [], []
    for source, file in _files(name):
        try:
            source.read(file.name)
            lines.append(f"{source.locate(file.name)}: as published")
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
    write_text(out, draw(summary))
    return f"{summary}\n\npicture: {out}"


def convert(source: Path, target: Path) -> str:
    """Write LEAF's or TensorFlow Federated's files as one .npz."""
    return f"{femnist.convert(existing(str(source)), target)} images written to {target}"


def _files(name: str) -> list[tuple[Source, File]]:
    """Return the files of a data set, with their sources."""
    if name not in SOURCES and name not in MADE_OF:
        hint = did_you_mean(name, SOURCES | MADE_OF)
        raise ConfigError(f"there is no data set to fetch '{name}'{hint}")
    sources = [SOURCES[part] for part in MADE_OF.get(name, (name,))]
    return [(source, file) for source in sources for file in source.files]
