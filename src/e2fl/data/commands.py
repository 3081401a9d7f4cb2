"""The commands of `e2fl data`: list, get, check, show, convert."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from e2fl.construct import did_you_mean
from e2fl.data import build
from e2fl.data.files.catalogue import FEMNIST, MNIST, QMNIST, SOURCES, File, Source, contents
from e2fl.data.files.compact import convert
from e2fl.data.files.download import Progress, download
from e2fl.data.files.places import data_directory
from e2fl.data.files.unpacking import BadArchiveError, extract
from e2fl.data.sets.femnist import ARCHIVE, PARTIAL, files_of, find, look, read_npz
from e2fl.data.sets.mnist import bundled
from e2fl.data.summary import DataSummary, summarise
from e2fl.data.svg import draw
from e2fl.errors import ConfigError, DataError
from e2fl.files import sha256_of, write_text

MIB = 2**20
MADE_OF = {"fair_mnist_rotate": (MNIST,), "mnist_writers": (MNIST, QMNIST)}  # data sets made from the files of others
MEMBER_LIMIT = 8 * 1024 * MIB  # bytes of one file in an archive


def listing() -> str:
    """Return a table of the files that are present or missing, with their sizes and licences."""
    lines = [f"data directory: {data_directory()}", ""]
    try:
        bundled()
        demo = "here"
    except DataError as error:
        demo = f"missing: {error}"
    lines += ["bundled  5,000 images of MNIST, for the demo", f"  {demo}", ""]
    for source in SOURCES.values():
        lines += [f"{source.name}  {source.about}", f"  licence: {source.licence}"]
        lines += [f"  {_state(source, file)}" for file in source.files]
        if source.advice:
            lines.append(f"  {source.advice}")
        lines.append("")
    return "\n".join(lines).rstrip()


def get(name: str) -> str:
    """Download the missing files of a data set; return what was done, or where to put the files."""
    lines = []
    for source, file in _files(name):
        wanted = file.members or (file.name,)
        if all(source.locate(member) for member in wanted):
            lines.append(f"{', '.join(wanted)}: already here")
            continue
        packed = source.archive(file, data_directory()) if file.members else None
        target = packed or data_directory() / source.name / file.name
        if packed is None:
            with _bar(file.name, "B") as show:
                digest = download(file, target, show)
            if file.sha256 is None:
                lines.append(f"{file.name}: SHA-256 {digest}; no checksum is published to compare it with")
        if file.members:
            _unpack(target, file.members, source.name)
        lines.append(f"{', '.join(wanted)}: in {target.parent}")
    return "\n".join(lines)


def _unpack(archive: Path, members: tuple[str, ...], name: str) -> None:
    """Extract these files, then remove the archive, even if it is damaged."""
    try:
        extract(archive, {member: archive.parent / member for member in members}, limit=MEMBER_LIMIT)
    except BadArchiveError as error:
        archive.unlink()
        raise DataError(f"{error}. It has been removed; run `e2fl data get {name}` to fetch it again") from error
    archive.unlink()


def check(name: str) -> str:
    """Compare every file of a data set with the published checksum, and return the result."""
    if name == FEMNIST.name:
        return "\n".join(_femnist_file(path) for path in files_of(find(data_directory())))
    lines, missing = [], []
    for source, file in _files(name):
        path = source.locate(file.name)
        if path is None:
            missing.append(source.where_to_put(file.name))
        else:
            contents(file, path)
            lines.append(f"{path}: as published")
    if missing:
        raise DataError("; ".join(missing))
    return "\n".join(lines)


def _femnist_file(path: Path) -> str:
    """Return a description of a file that a run on FEMNIST would read."""
    if path.suffix == ".npz":
        images = read_npz(path)
        return f"{path}: {len(images.y)} images of {len(images.names)} writers, SHA-256 {sha256_of(path)}"
    return f"{path}: here, SHA-256 {sha256_of(path)}; no checksum is published to compare it with"


def show(name: str, settings: dict[str, Any], out: Path | None) -> str:
    """Draw a data set into a file, and return a description."""
    target = out or Path(f"{name}.svg")
    if target.suffix != ".svg":
        raise ConfigError(f"the picture must be an .svg file, not {target}")
    summary = summarise(build({"name": name, **settings}, seed=0, where=f"data '{name}'"))
    write_text(target, draw(summary))
    return f"{in_words(summary)}\n\npicture: {target}"


def in_words(summary: DataSummary) -> str:
    """Return a description of a data set in a few lines."""
    shape = " x ".join(map(str, summary.shape))
    lines = [f"{summary.name}: {summary.clients} clients, {summary.classes} classes, inputs {shape}"]
    if summary.unseen_clients:
        lines.append(f"{summary.unseen_clients} more clients are kept out of training")
    some = f" of {len(summary.shown)} shown" if summary.inside and len(summary.shown) < summary.clients else ""
    lines += [f"  {group}: {count} clients{some}" for group, count in summary.clients_per_group.items()]
    if summary.sizes:
        sizes = sorted(summary.sizes)
        some = f" ({len(sizes)} of {summary.clients} clients)" if len(sizes) < summary.clients else ""
        lines.append(f"training examples of a client{some}: {sizes[0]} to {sizes[-1]}, median {sizes[len(sizes) // 2]}")
    return "\n".join(lines)


def convert_femnist(source: Path, target: Path) -> str:
    """Write LEAF's or TensorFlow Federated's files as one .npz."""
    if not source.exists():
        raise DataError(f"there is no file or folder {source}")
    with _bar("images", "images") as show:
        images = convert(source, target, lambda writers, done: show(done, None))
    return f"{images} images written to {target}"


def _files(name: str) -> list[tuple[Source, File]]:
    """Return the files of a data set, with their sources."""
    if name not in SOURCES and name not in MADE_OF:
        raise ConfigError(f"there is no data set to fetch '{name}'{did_you_mean(name, SOURCES | MADE_OF)}")
    return [(source, file) for source in MADE_OF.get(name) or (SOURCES[name],) for file in source.files]


def _state(source: Source, file: File) -> str:
    if source is FEMNIST:
        return _femnist_state()
    path = source.locate(file.name)
    if path is not None:
        return f"{file.name}: here, {path.stat().st_size / MIB:.1f} MiB"
    return f"{file.name}: missing; `e2fl data get {source.name}` fetches {file.size / MIB:.1f} MiB"


def _femnist_state() -> str:
    """Return which FEMNIST files a run would use, and what `get` would add."""
    offer = f"`e2fl data get femnist` fetches at most {ARCHIVE.size / MIB:.1f} MiB"
    home = data_directory()
    here = look(home)
    if here is None and FEMNIST.archive(ARCHIVE, home) is None:
        return f"{', '.join(ARCHIVE.members)}: missing; {offer}"
    try:
        files = files_of(find(home))
    except DataError as error:
        return str(error)
    size = sum(path.stat().st_size for path in files) / MIB
    names = ", ".join(path.name for path in files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
    whole = f"; {offer}, all of it" if files[0].name == PARTIAL else ""
    return f"{names}: here, {size:.1f} MiB{whole}"


@contextmanager
def _bar(name: str, unit: str) -> Iterator[Progress]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    scaled, hidden = unit == "B", not sys.stderr.isatty()
    with tqdm(desc=name, unit=unit, unit_scale=scaled, disable=hidden, file=sys.stderr) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
