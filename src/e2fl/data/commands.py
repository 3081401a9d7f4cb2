"""The commands of `e2fl data`: list, get, show."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2fl.construct import did_you_mean
from e2fl.data import build
from e2fl.data.describe import summarise
from e2fl.data.files import SOURCES, data_directory, extract
from e2fl.errors import ConfigError
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
        for file in source.files:
            forms = [file.wanted, *([name] for name in file.instead)]
            paths = next(filter(None, map(source.present, forms)), [])
            size = sum(path.stat().st_size for path in paths) / MIB
            fetch = f"`e2fl data get {source.name}` fetches {file.size / MIB:.1f} MiB"
            state = f"here, {size:.1f} MiB" if paths else f"missing; {fetch}"
            names = [path.name for path in paths] or file.wanted
            lines.append(f"  {', '.join(names)}: {state}")
    return "\n".join(lines)


def get(name: str) -> str:
    """Download the missing files of a data set, and compare those here with their checksums."""
    if name not in SOURCES and name not in MADE_OF:
        hint = did_you_mean(name, SOURCES | MADE_OF)
        raise ConfigError(f"there is no data set to fetch '{name}'{hint}")
    lines = []
    for source in [SOURCES[part] for part in MADE_OF.get(name, (name,))]:
        for file in source.files:
            paths = source.present(file.wanted)
            if not paths:
                path = source.locate(file.name)
                path = file.download(data_directory() / source.name) if path is None else path
                if file.members:
                    extract(path, file.members)
                paths = [path.with_name(part) for part in file.wanted]
            elif file.sha256 is not None:
                source.read(file.name)
            for path in paths:
                digest = f"SHA-256 {sha256_of(path)}; no checksum is published"
                lines.append(f"{path}: {'as published' if file.sha256 else digest}")
    return "\n".join(lines)


def show(section: Mapping[str, Any], seed: int, out: Path) -> str:
    """Draw the data of a section of a configuration into a file, and return a description."""
    if out.suffix != ".svg":
        raise ConfigError(f"the picture must be an .svg file, not {out}")
    summary = summarise(build(section, seed=seed, where=f"data '{section['name']}'"))
    write_text(out, summary.draw())
    return f"{summary}\n\npicture: {out}"
