"""Compiling all loops on rankings before they are needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from e2fl.compiled.distance import footrule, footrules
from e2fl.compiled.masks import top_mask
from e2fl.compiled.orders import add_order, add_rank, invert, scores_from
from e2fl.compiled.packing import pack, unpack, unpack_rank
from e2fl.compiled.sorting import order_of, rank_of, rank_of_sums


def warm(tell: Callable[[str], None]) -> None:
    """Compile every loop of this package, or load it from the cache; `tell` hears the name of each before it is."""
    order = np.array([1, 0, 2], np.int32)
    scores, sums = np.ones(3, np.float32), np.ones(3, np.int64)
    calls: dict[str, Callable[[], object]] = {
        "order_of": lambda: order_of(scores),
        "rank_of": lambda: rank_of(scores),
        "rank_of_sums": lambda: rank_of_sums(sums),
        "invert": lambda: invert(order),
        "add_rank": lambda: add_rank(sums, order),
        "add_order": lambda: add_order(sums, order),
        "scores_from": lambda: scores_from(order, scores),
        "top_mask": lambda: top_mask(scores, 1),
        "unpack": lambda: unpack(pack(order, 2), 3, 2),
        "unpack_rank": lambda: unpack_rank(pack(order, 2), 3, 2),
        "footrule": lambda: footrule(order, order),
        "footrules": lambda: footrules(order[None], order[None]),
    }
    for name, call in calls.items():
        tell(name)
        call()
