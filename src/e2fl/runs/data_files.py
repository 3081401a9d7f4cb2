"""data.json and data.svg: a description of the data of a run, stored with it so that a report needs no data.

data.json: {"clients", "examples": {"train", "test"}, "labels", "groups": [{"name", "clients", "train", "test",
"labels"}], "looked_at"}. The counts are over the clients that were looked at: all of them, unless that takes too long.
"""

import time
from collections.abc import Callable

import numpy as np

from e2fl.data.federated import Client, FederatedData
from e2fl.data.summary import rows_by_group, summarise
from e2fl.data.svg import draw
from e2fl.runs.folder import Folder
from e2fl.runs.records import Json

SECONDS = 5.0  # for counting; what is not counted by then is left out


def write_data(folder: Folder, data: FederatedData, warn: Callable[[str], None]) -> None:
    """Write both files; a data set that cannot be counted or drawn never ends a run."""
    try:
        described = describe(data)
    except Exception as error:  # a data set is arbitrary code
        warn(f"data.json is not written: {type(error).__name__}: {error}")
    else:
        folder.write_json("data.json", described)
    try:
        picture = draw(summarise(data))
    except Exception as error:  # the same
        warn(f"data.svg is not written: {type(error).__name__}: {error}")
    else:
        folder.write("data.svg", picture)


def describe(data: FederatedData, seconds: float = SECONDS) -> Json:
    """Return sizes and label counts, in total and for each group."""
    deadline = time.monotonic() + seconds
    groups: dict[str, Json] = {}
    shared: dict[int | None, object] = {}  # clients, or those of one group, may share a test set: it counts once
    train = test = looked_at = 0
    for number in data.population.ids:
        client = data.client(number)
        _count(groups, client, data)
        train += len(client.train)
        if not any(client.test is other for other in shared.values()):
            shared.setdefault(client.group, client.test)
            test += len(client.test)
        looked_at += 1
        if time.monotonic() > deadline:
            break
    order = {data.group_name(number): number for number in range(data.population.groups)}
    return {
        "clients": len(data.population),
        "examples": {"train": train, "test": test},
        "labels": list(data.label_names or map(str, range(data.classes))),
        "groups": sorted(groups.values(), key=lambda group: order.get(group["name"], len(order))),
        "looked_at": looked_at,
    }


def _count(groups: dict[str, Json], client: Client, data: FederatedData) -> None:
    """Add one client to the groups it belongs to, or that lie inside it."""
    tested = rows_by_group(data, client.test, client.group)
    for name, rows in rows_by_group(data, client.train, client.group).items():
        blank = {"name": name, "clients": 0, "train": 0, "test": 0, "labels": [0] * data.classes}
        group = groups.setdefault(name, blank)
        counts = np.bincount(client.train.y[rows], minlength=data.classes)
        group["clients"] += 1
        group["train"] += len(rows)
        group["labels"] = [before + int(more) for before, more in zip(group["labels"], counts, strict=True)]
        group["test"] += len(client.test if client.test.group is None else tested.get(name, ()))
