"""The process that reads a Parquet file for `parquet.py`; it imports nothing of this package, to start quickly."""

import json
import sys
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

ADDRESS_SPACE = 24 * 2**30  # bytes; the limit of a table, its copy on the way, and the libraries


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the column names; or write the wanted columns to `out`, and return what went wrong."""
    path = request["path"]
    schema = parquet.ParquetFile(path).schema_arrow
    if "wanted" not in request:
        return {"names": list(schema.names)}
    wanted = request["wanted"]
    for name in wanted:
        kind = schema.field(name).type
        if not usable(kind.value_type if arrow.types.is_dictionary(kind) else kind):
            return {"unusable": [name, str(kind)]}
    # Columns of texts are read as they are stored, each text once.
    file = parquet.ParquetFile(path, read_dictionary=wanted)
    metadata = file.metadata
    parts = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [part.column(place) for part in parts for place in range(part.num_columns)]
    unpacked = sum(column.total_uncompressed_size for column in columns if column.path_in_schema in set(wanted))
    size = unpacked + metadata.num_rows * len(wanted) * request["cell"]
    if size > request["limit"]:
        return {"too_large": size}
    table = file.read(columns=wanted)
    for place, field in enumerate(table.schema):
        if arrow.types.is_dictionary(field.type) and not is_text(field.type.value_type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    table.validate(full=True)  # texts that are not UTF-8 would fail later, without the name of the file
    table = table.unify_dictionaries()
    with arrow.OSFile(request["out"], "wb") as out, arrow.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return {}


def usable(kind: Any) -> bool:
    """Return whether a column of this type can be an input, a label or a name."""
    types = arrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or is_text(kind))


def is_text(kind: Any) -> bool:
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind))


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
