"""Plain stand-ins for the compiled kernels on rankings."""

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]


def order_of(scores: NDArray[np.float32]) -> I32:
    return np.argsort(scores, kind="stable").astype(np.int32)


def invert(permutation: I32) -> I32:
    out = np.empty_like(permutation)
    out[permutation] = np.arange(len(permutation), dtype=np.int32)
    return out


def rank_of(scores: NDArray[np.float32]) -> I32:
    return invert(order_of(scores))


def rank_of_sums(sums: NDArray[np.int64]) -> I32:
    return invert(np.argsort(sums, kind="stable").astype(np.int32))


def add_rank(sums: NDArray[np.int64], rank: I32) -> None:
    sums += rank


def footrule(one: I32, other: I32) -> int:
    return int(np.abs(one.astype(np.int64) - other).sum())


def top_mask(scores: NDArray[np.float32], dropped: int) -> NDArray[np.bool_]:
    return rank_of(scores) >= dropped


def pack(values: I32, bits: int) -> NDArray[np.uint8]:
    fields = (values[:, None] >> np.arange(bits, dtype=np.int32)) & 1
    return np.packbits(fields.astype(np.uint8).reshape(-1), bitorder="little")


def unpack(raw: NDArray[np.uint8], count: int, bits: int) -> I32:
    flat = np.unpackbits(raw, bitorder="little")
    if flat[count * bits :].any():
        raise ValueError("padding is not zero")
    fields = flat[: count * bits].reshape(count, bits).astype(np.int32)
    return (fields << np.arange(bits, dtype=np.int32)).sum(axis=1, dtype=np.int32)


def pack_order_of_rank(rank: I32, bits: int) -> NDArray[np.uint8]:
    return pack(invert(rank), bits)


def unpack_rank(raw: NDArray[np.uint8], count: int, bits: int) -> I32:
    order = unpack(raw, count, bits)
    if (order >= count).any() or (np.bincount(order, minlength=count) != 1).any():
        raise ValueError("not a permutation")
    return invert(order)
