"""Float32 scores as integers with the same order."""

from __future__ import annotations

import numpy as np

from e2fl.compiled.machine_code import compiled

_NAN = np.uint32(0xFFFFFFFF)
_SIGN = np.uint32(0x80000000)
_INFINITY = np.uint32(0x7F800000)


@compiled
def float_key(bits: np.uint32) -> np.uint32:
    """Map the bits of a float32 to an integer with the same order; both zeros are equal, NaN comes last."""
    if (bits & ~_SIGN) > _INFINITY:
        return _NAN
    if bits == _SIGN:
        return _SIGN
    if bits & _SIGN:
        return np.uint32(~bits)
    return np.uint32(bits | _SIGN)
