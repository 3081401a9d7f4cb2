"""Valid files and messages of every format that e2fl reads, and ways to damage them."""

import gzip
import importlib.util
import io
import random
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from e2fl.data import DATASETS
from e2fl.data.files.unpacking import extract, gunzip_bytes, load_npz, read_idx
from e2fl.data.sets.femnist import read_parts
from e2fl.e2fl_messages import Ballots
from e2fl.models import Model, mlp
from e2fl.wire import Weights

Reader = Callable[[bytes], object]


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """The same bytes with a few bits flipped, bytes overwritten, or a piece removed, repeated, moved or cut off."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not data:
            break
        at = rng.randrange(len(data))
        piece = slice(at, at + rng.randint(1, max(1, min(64, len(data) // 4))))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, ord(","), ord('"'), ord("\n")))
        elif kind == 2:
            data[piece] = rng.randbytes(len(data[piece]))
        elif kind == 3:
            del data[piece]
        elif kind == 4:
            data[at:at] = data[piece]
        elif kind == 5:
            data[at : at + 4] = struct.pack(rng.choice("<>") + "i", rng.choice((0, -1, 2**31 - 1, -(2**31), 65536)))
        else:
            del data[at:]
    return bytes(data)


def readers(folder: Path) -> dict[str, tuple[bytes, Reader]]:
    """For each format, valid bytes and the function that reads them as the package does."""
    found: dict[str, tuple[bytes, Reader]] = {
        "idx": (_idx(), lambda raw: read_idx(raw, "idx")),
        "idx.gz": (gzip.compress(_idx()), lambda raw: read_idx(gunzip_bytes(raw, "idx", 10_000), "idx")),
        "npz": (_npz(), _from_file(folder / "m.npz", lambda path: load_npz(path, ["x", "y"]))),
        "tar": (_tar(), _from_file(folder / "m.tar.gz", lambda path: extract(path, {"a": folder / "a"}, limit=10**6))),
        "csv": (_csv(), _from_file(folder / "m.csv", _table)),
    }
    if importlib.util.find_spec("pyarrow"):
        found["parquet"] = (_parquet(folder), _from_file(folder / "m.parquet", _table))
    if importlib.util.find_spec("h5py"):
        path = folder / "fed_emnist_train.h5"
        found["hdf5"] = (_hdf5(folder), _from_file(path, lambda path: list(read_parts(path))))
    model = Model(mlp((5,), 3, hidden=(4,)))
    ballots = Ballots((0,), (model.supernet(0).ranking,)).to_bytes(model.spec)
    weights = Weights(model.initial_weights(0)).to_bytes(model.spec)
    found["message with a ranking"] = (ballots, lambda raw: Ballots.from_bytes(raw, model.spec))
    found["message with weights"] = (weights, lambda raw: Weights.from_bytes(raw, model.spec))
    return found


def _from_file(path: Path, read: Callable[[Path], object]) -> Reader:
    def reader(raw: bytes) -> object:
        path.write_bytes(raw)
        return read(path)

    return reader


def _table(path: Path) -> object:
    return DATASETS["table"](path=str(path), label="outcome", client="clinic", group="region")


def _idx() -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">III", 4, 5, 5) + bytes(range(100))


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, x=np.arange(60, dtype=np.float32).reshape(12, 5), y=np.arange(12) % 3)
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in ("a", "b"):
            entry = tarfile.TarInfo(name)
            entry.size = 300
            archive.addfile(entry, io.BytesIO(bytes(range(250)) + bytes(50)))
    return out.getvalue()


def _rows() -> list[tuple[str, str, float, float, str]]:
    rng = np.random.default_rng(0)
    return [
        (f"clinic {i % 4}", "ab"[i % 4 // 2], *map(float, rng.standard_normal(2).round(3)), ("benign", "other")[i % 2])
        for i in range(48)
    ]


def _csv() -> bytes:
    lines = [",".join(map(str, row)) for row in _rows()]
    return "\n".join(["clinic,region,size,age,outcome", *lines, ""]).encode()


def _parquet(folder: Path) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = dict(zip(("clinic", "region", "size", "age", "outcome"), zip(*_rows(), strict=True), strict=True))
    path = folder / "valid.parquet"
    pyarrow.parquet.write_table(pyarrow.table({name: list(values) for name, values in columns.items()}), path)
    return path.read_bytes()


def _hdf5(folder: Path) -> bytes:
    import h5py

    path = folder / "valid.h5"
    with h5py.File(path, "w") as file:
        for writer in ("f0001_01", "f0002_02"):
            group = file.create_group(f"examples/{writer}")
            group["pixels"] = np.linspace(0, 1, 3 * 28 * 28, dtype=np.float32).reshape(3, 28, 28)
            group["label"] = np.arange(3, dtype=np.int32)
    return path.read_bytes()
