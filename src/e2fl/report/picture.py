"""A picture of the data, drawn from the same configuration: examples, sizes and labels of each group.

It is optional and bounded: data that is not there, or takes long, leaves the report without a picture and never without
a page.
"""

import base64
import struct
import time
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2fl.data import FederatedData
from e2fl.experiment import Experiment
from e2fl.report.study import Json

SECONDS = 8.0
SAMPLES = 8  # images of each group
CLIENTS = 25  # of each group whose labels are counted
GROUPS = 24
CLASSES = 40


def picture(experiment: Experiment, seconds: float = SECONDS) -> Json:
    """Labels, images and counts of each group; or the one key `missing`, which says why there are none."""
    started = time.monotonic()
    try:
        return _drawn(experiment.build_data(), started + seconds)
    # Data sets are anybody's code, and a report must not fail because one of them does.
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}


def _drawn(data: FederatedData, deadline: float) -> Json:
    members: dict[str, list[int]] = {}
    for client, group in data.roll.declared.items():
        members.setdefault("all clients" if group is None else data.group_name(group), []).append(client)
    labels: dict[str, dict[str, int]] = {}
    images: dict[str, str] = {}
    counts: dict[str, Json] = {}
    for name, clients in list(members.items())[:GROUPS]:
        if time.monotonic() > deadline:
            break
        looked = clients[:CLIENTS]
        mix = np.zeros(data.classes, dtype=np.int64)
        examples = 0
        for place, number in enumerate(looked):
            if time.monotonic() > deadline:
                looked = looked[:place]
                break
            train = data.client(number).train
            mix += np.bincount(train.y, minlength=data.classes)
            examples += len(train)
            if name not in images and train.x.dtype == np.uint8 and len(data.shape) == 3 and len(train):
                images[name] = _png(_row(train.x[:SAMPLES]))
        counts[name] = {"clients": len(clients), "examples_per_client": examples / max(1, len(looked))}
        if data.classes <= CLASSES:
            labels[name] = {str(label): int(count) for label, count in enumerate(mix)}
    return {"labels": labels, "images": images, "counts": counts, "looked": CLIENTS}


def _row(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images [n, channels, height, width] side by side: [height, n * width, 3]."""
    colour = np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images[:, :3]
    return np.concatenate(list(colour.transpose(0, 2, 3, 1)), axis=1).astype(np.uint8)


def _png(pixels: NDArray[np.uint8]) -> str:
    """Pixels [height, width, 3] as a PNG in a data address."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(raw).decode()
