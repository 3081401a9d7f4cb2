"""data.svg and data.json: the data of a run, stored with it so that a report needs no data."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from e2fl.data.describe import DataSummary, summarise
from e2fl.data.federated import FederatedData
from e2fl.errors import RunError, reason_of
from e2fl.runs.store import Folder, json_text

NEIGHBOURS = 200  # runs beside this one that are looked at


def write_data(folder: Folder, data: FederatedData, warn: Callable[[str], None]) -> None:
    """Write the files that are missing; data that cannot be counted or drawn never ends a run."""
    summary: list[DataSummary] = []  # counted once, if a file is missing
    files: dict[str, Callable[[DataSummary], str]] = {
        "data.svg": DataSummary.draw,
        "data.json": lambda found: json_text(found.to_json()),
    }
    for name, make in files.items():
        if (folder.path / name).is_file():
            continue
        try:
            summary = summary or [summarise(data)]
            text = make(summary[0])
        except Exception as error:  # a data set is arbitrary code
            warn(f"{name} is not written: {type(error).__name__}: {reason_of(error)}")
        else:
            folder.write(name, text)
    for column in earlier_groups(folder, data.about()):
        warn(
            f"column '{column}' is an input here, and the group of an earlier run on the same "
            "table; if groups must not decide, leave it out with data.features"
        )


def earlier_groups(folder: Folder, about: Mapping[str, Any]) -> list[str]:
    """Return the input columns that a run beside this one, on the same table, used as group."""
    table = about.get("sha256")
    if table is None or "columns" not in about:
        return []
    groups = set()
    for path in islice(folder.path.parent.glob("*/summary.json"), NEIGHBOURS):
        try:
            earlier = Folder(path.parent).read_summary().get("data") or {}
        except RunError:
            continue
        if earlier.get("sha256") == table:
            groups.add(earlier.get("group_column"))
    return [name for name in about["columns"] if name in groups]
