"""Conversion of FEMNIST from any supported source into one compact .npz, without holding it in memory.

The arrays are stored uncompressed, so that images can stay on disk until they are used.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data.sets.femnist import SIDE, read_parts
from e2fl.errors import DataError
from e2fl.files import replacing


def convert(source: Path, target: Path, progress: Callable[[int, int], None] = lambda writers, images: None) -> int:
    """Write `target` and return the number of images. progress: called with the writers and images read so far."""
    if target.suffix != ".npz":
        raise DataError(f"the compact file must end in .npz: {target}")
    if target.exists():
        raise DataError(f"{target} already exists; remove it or choose another name")
    names: dict[str, int] = {}
    labels: list[NDArray[np.uint8]] = []
    writers: list[NDArray[np.uint32]] = []
    splits: list[NDArray[np.uint8]] = []
    images = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=target.parent) as pixels:
        for part in read_parts(source):
            number = names.setdefault(part.writer, len(names))
            pixels.write(part.x.tobytes())
            labels.append(part.y)
            writers.append(np.full(len(part.y), number, dtype=np.uint32))
            splits.append(np.full(len(part.y), part.split, dtype=np.uint8))
            images += len(part.y)
            progress(len(names), images)
        if not images:
            raise DataError(f"{source} holds no images")
        pixels.seek(0)
        with replacing(target) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            _write_stream(archive, "x", (images, SIDE, SIDE), pixels)
            _write(archive, "y", np.concatenate(labels))
            _write(archive, "writer", np.concatenate(writers))
            _write(archive, "split", np.concatenate(splits))
            _write(archive, "writer_ids", np.array(list(names)))
    return images


def _write(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(_entry(name), "w") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _write_stream(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], source: IO[bytes]) -> None:
    with archive.open(_entry(name), "w", force_zip64=True) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        shutil.copyfileobj(source, file, 2**20)


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))  # a fixed date: equal images give equal files
