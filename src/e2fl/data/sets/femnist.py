"""FEMNIST: handwritten digits and letters; every writer is a client.

Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018. Read from one compact .npz (`e2fl data convert`), from
LEAF's JSON files (a folder of all_data_*.json, with folders `train` and `test` if LEAF has split it), or from the HDF5
files of TensorFlow Federated. Labels: 0-9 digits, 10-35 upper case, 36-61 lower case. The split of the source is kept;
if there is none, a tenth of each writer's images are test images. Writers with fewer than `min_samples` images are left
out; writers with test images only are unseen clients. Groups are unknown.

The background is removed: ink is 1 on a background of 0, whatever the source has. By default the inputs are then
standardised, as MNIST's are, with the mean and deviation of the training images of the partial set that LEAF's scripts
make (300 writers, 41,199 images); `scaling = "ink"` keeps them in [0, 1].
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from e2fl.data.federated import Examples
from e2fl.data.files.catalogue import FEMNIST
from e2fl.data.files.leaf import read_clients
from e2fl.data.files.places import data_directory, existing
from e2fl.data.files.unpacking import load_npz
from e2fl.data.partitioned import (
    TEST,
    TRAIN,
    UNDECIDED,
    Partition,
    PartitionedData,
    largest,
    rows_by_client,
    split_clients,
)
from e2fl.errors import ConfigError, DataError
from e2fl.files import regular_file

CLASSES = 62
SIDE = 28
TEST_SHARE = 0.1
NPZ, PARTIAL = "femnist.npz", "femnist_leaf_partial.npz"
H5 = {"fed_emnist_train.h5": TRAIN, "fed_emnist_test.h5": TEST}
ARCHIVE = FEMNIST.files[0]
MEAN, DEVIATION = 0.0385, 0.1642  # of the ink in the training images of the partial set, in [0, 1]
LARGEST_WRITER = 20_000  # images; the largest writer of FEMNIST has some hundred
H5_RATIO = 50  # bytes of images for each byte of an HDF5 file; real files, compressed or not, stay far below


@dataclass(frozen=True)
class Femnist(PartitionedData):
    """FEMNIST: handwritten digits and letters; every writer is a client.

    `path` names the source, or `dir` the data directory to search for it. `writers` keeps only those with most images;
    `scaling` says whether inputs are standardised or lie in [0, 1].
    """

    seed: int = 0  # of the split, if the source has none
    path: str | None = None  # an .npz, or a folder with LEAF's or TensorFlow Federated's files; default: search `dir`
    dir: str | None = None  # the data directory to search; default: E2FL_DATA, or the user's cache
    writers: int = 3400  # at most, those with most images
    min_samples: int = 2  # writers with fewer images are left out
    invert: bool | None = None  # whether the background is white; default: look at the images
    scaling: Literal["standardised", "ink"] = "standardised"  # ink: 1 on a background of 0

    name = "femnist"
    classes = CLASSES
    label_names = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
    shape = (1, SIDE, SIDE)

    def __post_init__(self) -> None:
        if self.writers < 1 or self.min_samples < 2:
            raise ConfigError("data.writers must be at least 1, data.min_samples at least 2")
        if self.scaling not in ("standardised", "ink"):
            raise ConfigError(f"data.scaling is 'standardised' or 'ink', not '{self.scaling}'")

    @cached_property
    def source(self) -> Path:
        """The file or folder of the images."""
        return existing(self.path) if self.path else find(data_directory(self.dir))

    @cached_property
    def images(self) -> "Images":
        return read(self.source)

    @cached_property
    def partitioned(self) -> Partition:  # type: ignore[override]  # known only once the data has been read
        images = self.images
        found = [
            rows
            for rows in rows_by_client(images.writer, images.split, dict(enumerate(images.names)))
            if len(rows) >= self.min_samples or len(rows) == len(rows.parts[TEST])
        ]
        if not found:
            raise DataError(f"{self.source}: no writer has {self.min_samples} images")
        clients, unseen, _ = split_clients(found, test_share=TEST_SHARE, seed=self.seed, min_samples=self.min_samples)
        if not clients:
            raise DataError(f"{self.source}: no writer has training and test images")
        white = images.white_background() if self.invert is None else self.invert
        scale, shift = (-1 / 255, 1.0) if white else (1 / 255, 0.0)
        if self.scaling == "standardised":
            scale, shift = scale / DEVIATION, (shift - MEAN) / DEVIATION
        examples = Examples(images.x[:, None], images.y.astype(np.int64), None, scale, shift)
        return Partition(examples, largest(clients, self.writers), tuple(unseen))

    def about(self) -> dict[str, object]:
        clients = self.partitioned.clients
        return {
            "source": self.source.name,
            "scaling": self.scaling,
            "train_images": sum(len(rows.train) for rows in clients),
            "test_images": sum(len(rows.test) for rows in clients),
            "writers": len(clients),
            "unseen_writers": len(self.partitioned.unseen),
        }


@dataclass(frozen=True)
class Images:
    """The images of all writers, as the source has them."""

    x: NDArray[np.uint8]  # [images, 28, 28]
    y: NDArray[np.uint8]
    writer: NDArray[np.integer[Any]]  # an index into `names`
    split: NDArray[np.uint8]  # 0 train, 1 test, 2 if the source has no split
    names: list[str]

    def white_background(self) -> bool:
        """Return whether the edges of the images are bright."""
        some = self.x[:: max(1, len(self.x) // 500)]
        return bool(np.mean([some[:, 0].mean(), some[:, -1].mean(), some[:, :, 0].mean(), some[:, :, -1].mean()]) > 127)


@dataclass(frozen=True)
class Part:
    """Some images of one writer."""

    writer: str
    x: NDArray[np.uint8]
    y: NDArray[np.uint8]
    split: int


def find(home: Path) -> Path:
    """Return the .npz or folder in a data directory, or raise an error that says what to do."""
    found = look(home)
    if found is not None:
        return found
    archive = FEMNIST.archive(ARCHIVE, home)
    if archive is not None:
        raise DataError(f"{archive} is still packed: run `e2fl data get femnist` to unpack it")
    raise DataError(
        f"no FEMNIST in {home / 'femnist'}: put there {NPZ}, or TensorFlow Federated's {' and '.join(H5)} "
        f"(`e2fl data get femnist` unpacks {ARCHIVE.name}, from {ARCHIVE.urls[0]} unless you put it there), or LEAF's "
        "all_data_*.json; or name it with data.path"
    )


def look(home: Path) -> Path | None:
    """Return the .npz or folder in a data directory, if any; the partial set only if there is nothing else."""
    folders = (home / "femnist", home)
    for folder in folders:
        if (folder / NPZ).is_file():
            return folder / NPZ
        if any((folder / name).is_file() for name in H5) or (folder.name == "femnist" and any(json_files(folder))):
            return folder
    return next((folder / PARTIAL for folder in folders if (folder / PARTIAL).is_file()), None)


def files_of(path: Path) -> list[Path]:
    """Return the files of a source, or raise an error if one is missing."""
    if path.is_file():
        return [path]
    h5 = [path / name for name in H5 if (path / name).is_file()]
    if h5 and len(h5) < len(H5):
        raise DataError(f"{path} has only {h5[0].name}; both {' and '.join(H5)} are needed")
    files = h5 or list(json_files(path))
    if not files:
        raise DataError(f"{path} holds neither all_data_*.json nor {' and '.join(H5)}")
    return files


def read(path: Path) -> Images:
    """Return all images of a source; those of an .npz made by `convert` stay on disk."""
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path)
    parts = list(read_parts(path))
    names = {name: number for number, name in enumerate(dict.fromkeys(part.writer for part in parts))}
    counts = [len(part.y) for part in parts]
    if not sum(counts):
        raise DataError(f"{path} holds no images")
    return Images(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.repeat([names[part.writer] for part in parts], counts).astype(np.int64),
        np.repeat([part.split for part in parts], counts).astype(np.uint8),
        list(names),
    )


def read_npz(path: Path) -> Images:
    """Return the images in an .npz with x, y, writer, split and writer_ids."""
    arrays = load_npz(path, ("x", "y", "writer", "split", "writer_ids"))
    x, y, writer, split, ids = (arrays[name] for name in ("x", "y", "writer", "split", "writer_ids"))
    if x.dtype != np.uint8 or x.shape[1:] != (SIDE, SIDE) or ids.dtype.kind != "U" or ids.ndim != 1:
        raise DataError(f"{path}: x must be bytes [images, {SIDE}, {SIDE}] and writer_ids a list of strings")
    if not len(x):
        raise DataError(f"{path}: x holds no images")
    for name, values, limit in (("y", y, CLASSES), ("writer", writer, len(ids)), ("split", split, 3)):
        if values.shape != (len(x),) or values.dtype.kind not in "iu":
            raise DataError(f"{path}: {name} must hold an integer for each of {len(x)} images")
        if values.min() < 0 or values.max() >= limit:
            raise DataError(f"{path}: {name} must be 0 to {limit - 1}, but is {values.min()} to {values.max()}")
    return Images(x, y.astype(np.uint8), writer, split.astype(np.uint8), ids.tolist())


def read_parts(path: Path) -> Iterator[Part]:
    """Yield the images of each writer, from a folder of LEAF's or TensorFlow Federated's files, or from one file."""
    for file in files_of(path):
        if file.suffix == ".npz":
            yield from _npz_parts(read_npz(file))
        elif file.suffix == ".json":
            yield from _json_parts(file)
        else:
            yield from _h5_parts(file, H5.get(file.name, UNDECIDED))


def json_files(folder: Path) -> Iterator[Path]:
    """Yield LEAF's files: those of the folders train and test if LEAF has split them, otherwise all."""
    inside = (folder / "data", folder)
    split = [path for home in inside for part in ("train", "test") for path in sorted((home / part).glob("*.json"))]
    if split:
        yield from split
        return
    whole = next((home / "all_data" for home in inside if (home / "all_data").is_dir()), folder)
    yield from sorted(whole.glob("all_data*.json"))


def _json_parts(path: Path) -> Iterator[Part]:
    # LEAF puts the two parts into folders of these names, with files ..._train_9.json and ..._test_9.json.
    split = UNDECIDED
    for word, purpose in (("train", TRAIN), ("test", TEST)):
        if path.parent.name == word or re.search(rf"_{word}_\d+\.json$", path.name):
            split = purpose
    for name, data in read_clients(path):
        where = f"{path}, writer '{name}'"
        try:
            x = np.array(data["x"], dtype=np.float64)
            y = np.array(data["y"], dtype=np.float64)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{where}: x must be lists of numbers, y a list of labels ({error})") from error
        images = _pixels(x, where)
        yield Part(name, images, _labels(y, len(images), where), split)


def _h5_parts(path: Path, split: int) -> Iterator[Part]:
    try:
        import h5py
    except ImportError as error:
        raise DataError("HDF5 files need the package h5py: pip install 'e2fl[hdf5]'") from error
    try:
        left = H5_RATIO * regular_file(path).stat().st_size
        with h5py.File(path, "r") as file:
            examples = _plain(h5py, file, "examples", path)
            for name in _group(h5py, examples, path):
                where = f"{path}, writer '{name}'"
                parts = _group(h5py, _plain(h5py, examples, name, path), path)
                pixels, labels = (_plain(h5py, parts, part, path) for part in ("pixels", "label"))
                count = _count(h5py, pixels, labels, where)
                left -= count * SIDE * SIDE
                if left < 0:  # data sets may be declared without being stored
                    raise DataError(f"{path} declares more than {H5_RATIO} times the bytes of images that it has")
                yield Part(name, _pixels(pixels[()], where), _labels(labels[()].reshape(-1), count, where), split)
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:  # what h5py raises for damaged files
        raise DataError(f"{path} is not a complete HDF5 file: {error}") from error


def _plain(h5py: Any, group: Any, name: str, path: Path) -> Any:
    """Return the object of this name in the file itself; reject links to other files."""
    if name not in group:
        raise DataError(f"{path} has no '{name}' in {group.name}")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"{path}: '{name}' is a link; only files that hold their data are read")
    found = group[name]
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise DataError(f"{path}: '{name}' keeps its data in other files; only files that hold their data are read")
    return found


def _group(h5py: Any, found: Any, path: Path) -> Any:
    if not isinstance(found, h5py.Group):
        raise DataError(f"{path}: '{found.name}' must be a group, but is a {type(found).__name__.lower()}")
    return found


def _count(h5py: Any, pixels: Any, labels: Any, where: str) -> int:
    """Return the number of images, from shapes and types, before anything is read."""
    for found in (pixels, labels):
        if not isinstance(found, h5py.Dataset) or found.shape is None or found.dtype.kind not in "fiub":
            raise DataError(f"{where}: '{found.name}' does not hold numbers")
    if pixels.shape[1:] != (SIDE, SIDE) or len(pixels) > LARGEST_WRITER:
        raise DataError(f"{where}: {pixels.shape} is not the shape of a writer's images")
    if labels.ndim not in (1, 2) or labels.size != len(pixels):
        raise DataError(f"{where}: labels of shape {labels.shape} for {len(pixels)} images")
    return len(pixels)


def _npz_parts(images: Images) -> Iterator[Part]:
    for source in rows_by_client(images.writer, images.split, dict(enumerate(images.names))):
        for split, rows in source.parts.items():
            if len(rows):
                yield Part(source.name, images.x[rows], images.y[rows], split)


def _pixels(x: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Return grey values from 0 to 1 as bytes."""
    if not x.ndim:
        raise DataError(f"{where}: x must be a list of images, not a single value")
    if not len(x):
        return np.zeros((0, SIDE, SIDE), dtype=np.uint8)
    if x.ndim < 2 or x[0].size != SIDE * SIDE:
        raise DataError(f"{where}: an image has {x[0].size} instead of {SIDE * SIDE} pixels")
    if not ((x >= 0) & (x <= 1)).all():
        raise DataError(f"{where}: grey values must be 0 to 1")
    grey: NDArray[np.uint8] = np.rint(x * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
    return grey


def _labels(y: NDArray[Any], count: int, where: str) -> NDArray[np.uint8]:
    if y.shape != (count,):
        raise DataError(f"{where}: {y.size} labels for {count} images")
    if count and not ((y >= 0) & (y < CLASSES) & (y == np.floor(y))).all():
        raise DataError(f"{where}: labels must be integers from 0 to {CLASSES - 1}")
    return y.astype(np.uint8)
