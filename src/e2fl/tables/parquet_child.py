"""The process that reads a Parquet file for `parquet.py`; it imports nothing of this package, to start quickly."""

import json
import sys
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

ADDRESS_SPACE = 24 * 2**30  # bytes
types = arrow.types


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the column names; or write the wanted columns to `out`, and return what went wrong."""
    path = request["path"]
    file = parquet.ParquetFile(path)
    metadata, schema = file.metadata, file.schema_arrow
    if "wanted" not in request:
        return {"names": list(schema.names), "rows": metadata.num_rows}
    wanted = request["wanted"]
    for name in wanted:
        if target(schema.field(name).type) is None:
            return {"unusable": [name, str(schema.field(name).type)]}
    # Columns of texts are read as they are stored, each text once.
    file = parquet.ParquetFile(path, read_dictionary=wanted)
    parts = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [part.column(place) for part in parts for place in range(part.num_columns)]
    unpacked = sum(column.total_uncompressed_size for column in columns if column.path_in_schema in set(wanted))
    size = unpacked + metadata.num_rows * len(wanted) * request["cell"]
    if size > request["limit"]:
        return {"too_large": size}
    kinds = {name: target(file.schema_arrow.field(name).type) for name in wanted}
    written = arrow.schema(kinds.items())
    with arrow.OSFile(request["out"], "wb") as out, arrow.ipc.new_stream(out, written) as writer:
        for batch in file.iter_batches(request["rows"], columns=wanted, use_threads=False):
            batch.validate(full=True)  # texts that are not UTF-8 would fail later, without the name of the file
            cells = [batch.column(name).cast(kind) for name, kind in kinds.items()]
            writer.write_batch(arrow.record_batch(cells, schema=written))
    return {}


def target(kind: Any) -> Any:
    """Return the type a column is written in: texts, numbers and true or false as they are, dates and others as texts.

    None: cells of this type are not single values.
    """
    if types.is_dictionary(kind):
        return kind if is_text(kind.value_type) else target(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or is_text(kind):
        return kind
    castable = (types.is_decimal, types.is_temporal, types.is_null, types.is_binary, types.is_large_binary)
    return arrow.string() if any(known(kind) for known in castable) and not types.is_duration(kind) else None


def is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    except (ImportError, ValueError, OSError):
        pass  # not supported on this system, or a lower limit is already set
    try:
        found = answer(json.load(sys.stdin))
    except MemoryError:  # Arrow has one that is both this and its own
        found = {"memory": True}
    except Exception as error:  # the reader may raise anything for a damaged file
        found = {"damaged": f"{type(error).__name__}: {error}"[:500]}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
