"""Parquet files, read in a process of their own: a damaged file can crash the reader, and must not end a run.

The process checks sizes in the file's metadata first, and writes the columns batch by batch as a stream of Arrow, which
is mapped into memory here. Its address space is limited where the system can do that.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.errors import DataError

CHILD = Path(__file__).with_name("parquet_child.py")


def parquet_header(path: Path) -> tuple[list[str], int]:
    """Return the column names of a file and the number of its rows."""
    found = _child(path, {})
    return found["names"], found["rows"]


def parquet_batches(path: Path, wanted: Sequence[str], *, rows: int, limit: int, cell: int) -> Iterator[Any]:
    """Yield these columns in batches of at most `rows` rows.

    A file that would take more than `limit` bytes is rejected. cell: bytes of each cell in the caller's memory.
    """
    import pyarrow as arrow

    with tempfile.TemporaryDirectory(prefix="e2fl-") as folder:
        out = Path(folder) / "columns.arrow"
        names = list(dict.fromkeys(wanted))
        found = _child(path, {"wanted": names, "out": str(out), "rows": rows, "limit": limit, "cell": cell})
        if "too_large" in found:
            raise DataError(
                f"{path} would take {found['too_large'] / 2**30:.1f} GiB of memory; {limit // 2**30} GiB is the limit "
                "of a table. Use fewer rows or, in training, fewer columns with features = [...]"
            )
        if "unusable" in found:
            name, kind = found["unusable"]
            raise DataError(f"{path}: column '{name}' holds {kind}; only numbers, strings and booleans can be used")
        with arrow.memory_map(str(out)) as file:  # the mapping stays alive after the file is removed
            yield from arrow.ipc.open_stream(file)


def _child(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the reading process, or raise a `DataError`."""
    if find_spec("pyarrow") is None:
        raise DataError("Parquet files need the package pyarrow: pip install 'e2fl[tables]'")
    # -P: modules in the working folder must not take the place of pyarrow's.
    done = subprocess.run(
        [sys.executable, "-P", str(CHILD)],
        input=json.dumps({"path": str(path), **request}),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"damaged": f"its reader crashed ({done.returncode})"}
    if "memory" in answer:
        raise MemoryError
    if "damaged" in answer:
        raise DataError(f"{path} is not a complete Parquet file: {answer['damaged']}")
    return answer
