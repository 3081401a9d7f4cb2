"""Array types, and scratch memory that is reused."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt16 = NDArray[np.uint16]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]


class _Scratch(threading.local):
    """Memory that a thread keeps between sorts: touching fresh pages costs more than the sort itself."""

    def __init__(self) -> None:
        self.words: UInt64 = np.empty(0, np.uint64)

    def of(self, edges: int) -> tuple[UInt64, UInt64]:
        """Return two uninitialised arrays of this many words; the next call returns the same memory."""
        if self.words.size < 2 * edges:
            self.words = np.empty(2 * edges, np.uint64)
        return self.words[:edges], self.words[edges : 2 * edges]


scratch = _Scratch()
