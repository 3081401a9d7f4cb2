"""Untrusted files: every size is checked before memory is allocated, and nothing in them is executed.

A file that is damaged, unpacks to more than it should, or asks to be written elsewhere raises a `DataError`. Arrays of
objects are rejected, because they are pickles.
"""

import bz2
import gzip
import io
import lzma
import math
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from e2fl.errors import DataError

MIB = 2**20
NPZ_LIMIT = 8 * 1024 * MIB  # bytes an .npz may unpack to
MOST_SIDES = 32  # of an array
HEADER_LIMIT = 10_000  # characters of the header of an array
TAR_HEADERS = 4 * MIB  # bytes of all headers of a .tar together; those of data sets have a few thousand
BLOCK = MIB
BAD_HEADER = (ValueError, SyntaxError, KeyError, TypeError, OverflowError, MemoryError, RecursionError)

_IDX_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}


def gunzip(path: Path, limit: int) -> bytes:
    """Return the contents of a .gz file; raise an error as soon as they exceed `limit` bytes."""
    with path.open("rb") as file:
        return _gunzip(file, str(path), limit)


def gunzip_bytes(raw: bytes, what: str, limit: int) -> bytes:
    """Return the decompressed contents of these bytes; raise an error as soon as they exceed `limit` bytes."""
    return _gunzip(io.BytesIO(raw), what, limit)


def _gunzip(packed: IO[bytes], what: str, limit: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=packed) as file:
            raw = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{what} is not a complete .gz file: {error}") from error
    if len(raw) > limit:
        raise DataError(f"{what} unpacks to more than the {limit} bytes it should have")
    return raw


def read_idx(raw: bytes, what: str) -> NDArray[Any]:
    """Return the array in an idx file, of bytes or integers."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES or not 1 <= raw[3] <= 4:
        raise DataError(f"{what} is not an idx file of bytes or integers")
    kind, dimensions = _IDX_TYPES[raw[2]], raw[3]
    head = 4 + 4 * dimensions
    if len(raw) < head:
        raise DataError(f"{what} ends inside its header")
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != math.prod(shape) * kind.itemsize:
        raise DataError(f"{what} has {len(raw) - head} bytes of data; its header says {shape}")
    return np.frombuffer(raw, dtype=kind, offset=head).reshape(shape)


def load_npz(path: Path, wanted: Iterable[str], *, optional: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Return arrays of an .npz by name; large uncompressed arrays are memory-mapped."""
    needed, extra = list(wanted), list(optional)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            missing = [name for name in needed if name not in sizes]
            if missing:
                raise DataError(f"{path} has no array '{missing[0]}'; it has: {', '.join(sizes) or 'none'}")
            entries = {name: sizes[name] for name in needed + extra if name in sizes}
            if sum(entry.file_size for entry in entries.values()) > NPZ_LIMIT:
                raise DataError(f"{path} would unpack to more than {NPZ_LIMIT // MIB} MiB")
            return {name: _member(path, archive, entry) for name, entry in entries.items()}
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise DataError(f"{path} is not a complete .npz file: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _member(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    what = f"array '{entry.filename.removesuffix('.npy')}' of {path}"
    with archive.open(entry) as file:
        shape, fortran, kind = _npy_header(file, what)
        head, size = file.tell(), math.prod(shape) * kind.itemsize
        if head + size != entry.file_size:
            raise DataError(f"{what} has {entry.file_size - head} bytes; its header says {size}")
        order: Literal["F", "C"] = "F" if fortran else "C"
        if entry.compress_type == zipfile.ZIP_STORED and size >= MIB:
            start = _data_offset(path, entry) + head
            if start + size > path.stat().st_size:
                raise DataError(f"{what} has {size} bytes by its header, which is more than the file has")
            return np.memmap(path, kind, "r", start, shape, order)
        array = np.empty(math.prod(shape), dtype=kind)
        view = array.view(np.uint8).data if size else memoryview(b"")
        done = 0
        while done < size:
            part = file.read(min(BLOCK, size - done))
            if not part:
                raise DataError(f"{what} ends too early")
            view[done : done + len(part)] = part
            done += len(part)
        if file.read(1):  # also makes zipfile verify the checksum
            raise DataError(f"{what} is longer than its header says")
        return array.reshape(shape, order=order)


def _npy_header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, order and type of an array in .npy format."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        shape, fortran, kind = read[np.lib.format.read_magic(file)](file, max_header_size=HEADER_LIMIT)
    except (*BAD_HEADER, tokenize.TokenError) as error:
        raise DataError(f"{what} has a header that cannot be read") from error
    if kind.hasobject:
        raise DataError(f"{what} holds pickled objects, which could run code; save it as plain numbers or strings")
    if kind.kind not in "biufcmMSU" or not kind.itemsize or not all(type(side) is int and side >= 0 for side in shape):
        raise DataError(f"{what} is not an array of plain numbers or strings")
    # Sides of 0 are left out: NumPy cannot make an array of shape (0, 2**70) either.
    if len(shape) > MOST_SIDES or math.prod(max(1, side) for side in shape) * kind.itemsize > NPZ_LIMIT:
        raise DataError(f"{what} has the impossible shape {str(shape)[:100]}")
    return shape, fortran, kind


def _data_offset(path: Path, entry: zipfile.ZipInfo) -> int:
    """Return the offset of a stored member in its archive."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        local = file.read(30)
    if len(local) != 30 or local[:4] != b"PK\x03\x04":
        raise DataError(f"{path} is damaged")
    name, extra = struct.unpack("<HH", local[26:30])
    return int(entry.header_offset + 30 + name + extra)


class BadArchiveError(DataError):
    """An archive that is damaged or lacks a file, so that unpacking it again cannot help."""


def extract(archive: Path, members: Mapping[str, Path], *, limit: int) -> None:
    """Extract the named files, and nothing else, from a .tar archive; a file appears only once it is complete.

    members: the name of each file, in any folder of the archive, and its target. Only regular files are extracted.
    """
    left = dict(members)
    try:
        with archive.open("rb") as packed, _unpacked(packed) as plain:
            stream = _Forward(plain)
            tar = tarfile.TarFile(fileobj=cast(IO[bytes], stream))
            for member in tar:
                name = member.name.replace("\\", "/").rsplit("/", 1)[-1]
                if name not in left or not member.isfile():
                    continue
                if member.size > limit:
                    raise BadArchiveError(f"{name} in {archive} has {member.size} bytes; {limit} is the limit")
                source = tar.extractfile(member)
                assert source is not None
                target = left.pop(name)
                headers_left, stream.left = stream.left, member.size
                _copy(source, target, member.size)
                stream.left = headers_left
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, RecursionError) as error:
        # Errors of the operating system have a number; errors inside the archive have none.
        kind = DataError if isinstance(error, OSError) and error.errno is not None else BadArchiveError
        raise kind(f"{archive} cannot be unpacked: {error}") from error
    if left:
        raise BadArchiveError(f"{archive} does not hold {', '.join(left)}")


def _unpacked(packed: IO[bytes]) -> IO[bytes]:
    """Return a stream of the decompressed contents of a .gz or .bz2 file, or the file itself."""
    magic = packed.read(3)
    packed.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.GzipFile(fileobj=packed))
    return cast(IO[bytes], bz2.BZ2File(packed)) if magic == b"BZh" else packed


class _Forward:
    """A file that is read forward only, up to a number of bytes; skipped bytes do not count.

    A .tar header may have any length and is read in one piece: without a limit it could fill the memory.
    """

    def __init__(self, file: IO[bytes]):
        self.file, self.at = file, 0
        self.left = TAR_HEADERS  # bytes that may still be read

    def tell(self) -> int:
        return self.at

    def seek(self, to: int) -> int:
        if to < self.at:
            raise tarfile.ReadError("a header points backwards")
        while self.at < to and (part := self.file.read(min(BLOCK, to - self.at))):
            self.at += len(part)
        return self.at

    def read(self, size: int) -> bytes:
        if size > self.left:
            raise tarfile.ReadError(f"its headers have more than {TAR_HEADERS} bytes")
        part = self.file.read(size)
        self.at += len(part)
        self.left -= len(part)
        return part


def _copy(source: IO[bytes], target: Path, size: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    done = 0
    try:
        with partial.open("wb") as file:
            while part := source.read(BLOCK):
                file.write(part)
                done += len(part)
        if done != size:
            raise BadArchiveError(f"{target.name} is cut short inside its archive")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
