"""Parquet files, read in a process of their own: a damaged file can crash the reader, and must not end a run.

The process checks sizes in the file's metadata first, reads the columns, and writes them as an Arrow file, which is
mapped into memory here. Its address space is limited where the system can do that.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.data.files.places import regular_file
from e2fl.errors import DataError

INPUT_LIMIT = 8 * 2**30  # bytes of inputs, or of the columns they are made from
CELL = 48  # bytes that a cell of Parquet takes while it becomes an input, at most; measured, without the input
CHILD = Path(__file__).with_name("parquet_child.py")


def parquet_names(path: Path) -> list[str]:
    """Return the column names of a file."""
    names: list[str] = _child(path, {})["names"]
    return names


def read_parquet(path: Path, wanted: Collection[str]) -> Any:
    """Return these columns of a file, as an Arrow table."""
    import pyarrow as arrow

    with tempfile.TemporaryDirectory(prefix="e2fl-") as folder:
        out = Path(folder) / "columns.arrow"
        found = _child(path, {"wanted": list(wanted), "out": str(out), "limit": INPUT_LIMIT, "cell": CELL})
        if "too_large" in found:
            reject_more_than_the_limit(path, found["too_large"])
        if "unusable" in found:
            name, kind = found["unusable"]
            raise DataError(f"{path}: column '{name}' holds {kind}; only numbers, strings and booleans can be used")
        with arrow.memory_map(str(out)) as file:
            return arrow.ipc.open_file(file).read_all()  # the mapping stays alive after the file is removed


def reject_more_than_the_limit(path: Path, size: int) -> None:
    """Raise an error for a table that would take more memory than tables may."""
    if size > INPUT_LIMIT:
        raise DataError(
            f"{path} would take {size / 2**30:.1f} GiB of memory; {INPUT_LIMIT // 2**30} GiB is the limit of a table. "
            "Use fewer rows, or fewer columns with features = [...]"
        )


def _child(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the reading process, or raise a `DataError`."""
    if find_spec("pyarrow") is None:
        raise DataError("Parquet files need the package pyarrow: pip install 'e2fl[tables]'")
    regular_file(path)
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
