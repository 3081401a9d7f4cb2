"""The commands of `e2fl data`: list, get, check, show, convert."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2fl.construct import did_you_mean
from e2fl.data import build
from e2fl.data.describe import summarise
from e2fl.data.files import SOURCES, File, Source, data_directory, extract
from e2fl.data.picture import draw
from e2fl.data.sets import femnist
from e2fl.errors import ConfigError, DataError
from e2fl.files import sha256_of, write_text

MIB = 2**20
FEMNIST = SOURCES["femnist"]
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


def get(name: str) -> str:
    """Download the missing files of a data set; return what was done."""
    lines = []
    for source, file in _files(name):
        wanted = file.members or (file.name,)
        if all(source.locate(member) for member in wanted):
            lines.append(f"{', '.join(wanted)}: already here")
            continue
        path = femnist.packed(data_directory()) if file.members else None
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
    if name == FEMNIST.name:
        files = femnist.files_of(femnist.find(data_directory()))
        return "\n".join(_femnist_file(path) for path in files)
    lines, missing = [], []
    for source, file in _files(name):
        path = source.locate(file.name)
        if path is None:
            missing.append(source.where_to_put(file.name))
        else:
            file.contents(path)
            lines.append(f"{path}: as published")
    if missing:
        raise DataError("; ".join(missing))
    return "\n".join(lines)


def _femnist_file(path: Path) -> str:
    """Return a description of a file that a run on FEMNIST would read."""
    digest = f"SHA-256 {sha256_of(path)}"
    if path.suffix == ".npz":
        images = femnist.read_npz(path)
        return f"{path}: {len(images.y)} images of {len(images.names)} writers, {digest}"
    return f"{path}: here, {digest}; no checksum is published"


def show(section: Mapping[str, Any], seed: int, out: Path) -> str:
    """Draw the data of a section of a configuration into a file, and return a description."""
    if out.suffix != ".svg":
        raise ConfigError(f"the picture must be an .svg file, not {out}")
    summary = summarise(build(section, seed=seed, where=f"data '{section['name']}'"))
    write_text(out, draw(summary))
    return f"{summary}\n\npicture: {out}"


def convert(source: Path, target: Path) -> str:
    """Write LEAF's or TensorFlow Federated's files as one .npz."""
    if not source.exists():
        raise DataError(f"there is no file or folder {source}")
    return f"{femnist.convert(source, target)} images written to {target}"


def _files(name: str) -> list[tuple[Source, File]]:
    """Return the files of a data set, with their sources."""
    if name not in SOURCES and name not in MADE_OF:
        hint = did_you_mean(name, SOURCES | MADE_OF)
        raise ConfigError(f"there is no data set to fetch '{name}'{hint}")
    sources = [SOURCES[part] for part in MADE_OF.get(name, (name,))]
    return [(source, file) for source in sources for file in source.files]


def _state(source: Source, file: File) -> str:
    if source is FEMNIST:
        return _femnist_state()
    path = source.locate(file.name)
    if path is not None:
        return f"{file.name}: here, {path.stat().st_size / MIB:.1f} MiB"
    return f"{file.name}: missing; `e2fl data get {source.name}` fetches {file.size / MIB:.1f} MiB"


def _femnist_state() -> str:
    """Return which FEMNIST files a run would use, and what `get` would add."""
    archive, home = FEMNIST.files[0], data_directory()
    offer = f"`e2fl data get femnist` fetches at most {archive.size / MIB:.1f} MiB"
    if femnist.look(home) is None and femnist.packed(home) is None:
        return f"{', '.join(archive.members)}: missing; {offer}"
    try:
        files = femnist.files_of(femnist.find(home))
    except DataError as error:
        return str(error)
    size = sum(path.stat().st_size for path in files) / MIB
    names = ", ".join(path.name for path in files[:2])
    more = f" and {len(files) - 2} more" if len(files) > 2 else ""
    whole = f"; {offer}, all of it" if files[0].name == femnist.PARTIAL else ""
    return f"{names}{more}: here, {size:.1f} MiB{whole}"
