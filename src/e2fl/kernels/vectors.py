# mypy: disallow-untyped-calls=False
"""Vectors of sixteen float32: explicit vector code for the training loops that the compiler does
not vectorise well.

`vector_code` turns a function that emits LLVM instructions into one that compiled code can call.
LLVM maps vectors of sixteen lanes to the registers of the machine, so the code runs on every
processor.  A Python loop below is unrolled code; `with emit.loop(...)` is a loop at run time.

Indices are not checked: the caller must keep them inside the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any  # Numba and llvmlite have hardly any type annotations

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from e2fl.kernels.machine_code import Float32, Int32, UInt16, UInt32, compiled

LANES = 16
# Whether the registers hold 32 vectors of sixteen lanes (AVX-512), not 8 (AVX2, NEON).  Tiles are
# sized by it; that changes how often a value is loaded, never the order of additions, so results do
# not depend on it.
_FEATURES = cpu_target.target_context.codegen()._tm_features
WIDE: bool = "+avx512f" in _FEATURES

_FLOAT = ir.FloatType()
_INT16, _INT32, _INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(_INT32, LANES)
_BITS = ir.VectorType(ir.IntType(1), LANES)
_POINTER = ir.PointerType()


def padded(size: int) -> int:
    """Return the next multiple of a vector's length."""
    return -(-size // LANES) * LANES


def row_length(size: int) -> int:
    """Return the length of a row: whole vectors, no power of two, whose rows share cache sets."""
    return padded(size) if padded(size) % 256 else padded(size) + LANES


def aligned(size: int, fill: float = 0.0) -> Float32:
    """Return an array aligned to a cache line, with room for one vector after its end."""
    raw = np.empty(4 * (size + LANES) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + 4 * (size + LANES)].view(np.float32)
    array.fill(fill)
    return array[:size]


def _pointer(kind: Any) -> Any:
    """Return a function that turns an address into a pointer to values of this kind."""

    @intrinsic
    def function(_: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), code

    return function


_to_floats, _to_int32, _to_uint16, _to_uint32 = map(
    _pointer, (types.float32, types.int32, types.uint16, types.uint32)
)


# Arrays from their address and size: compiled code reads them from a table of any length.


@compiled
def floats(place: Any) -> Float32:
    return carray(_to_floats(place[0]), (place[1],))


@compiled
def int32s(place: Any) -> Int32:
    return carray(_to_int32(place[0]), (place[1],))


@compiled
def uint16s(place: Any) -> UInt16:
    return carray(_to_uint16(place[0]), (place[1],))


@compiled
def uint32s(place: Any) -> UInt32:
    return carray(_to_uint32(place[0]), (place[1],))


class Emit:
    """An emitter of instructions into the function being compiled."""

    zero = ir.Constant(_VECTOR, [ir.Constant(_FLOAT, 0.0)] * LANES)
    lanes = ir.Constant(_INTEGERS, list(range(LANES)))

    def __init__(self, context: Any, builder: Any):
        self.context, self.builder = context, builder

    def index(self, *terms: Any) -> Any:
        """Return the sum of the terms; a tuple is a product."""
        total = None
        for term in terms:
            if isinstance(term, tuple):
                value = self.builder.mul(_integer(term[0]), _integer(term[1]))
            else:
                value = _integer(term)
            total = value if total is None else self.builder.add(total, value)
        return total

    @contextmanager
    def loop(self, start: Any, stop: Any, step: int = 1) -> Iterator[Any]:
        """Repeat what is emitted inside, for each integer of `range(start, stop, step)`."""
        limits = map(_integer, (start, stop, step))
        with cgutils.for_range_slice(self.builder, *limits) as (i, _):
            yield i

    def variable(self, value: Any) -> Any:
        """Return a variable that keeps its value across iterations: a register, once optimised."""
        place = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, place)
        return place

    def tiles(self, start: Any, stop: Any, *sizes: int) -> Iterator[tuple[Any, int]]:
        """Cover a range with tiles: as many as fit of the largest size, then of the next.

        Yields where a tile begins and its size, once for each size; what is emitted in the body of
        the loop is repeated for each tile of that size.
        """
        for size in sorted(set(sizes), reverse=True):
            length = self.builder.sub(_integer(stop), _integer(start))
            whole = self.builder.sub(length, self.builder.srem(length, _integer(size)))
            end = self.builder.add(_integer(start), whole)
            with self.loop(start, end, size) as at:
                yield at, size
            start = end

    def get(self, place: Any) -> Any:
        return self.builder.load(place)

    def set(self, place: Any, value: Any) -> None:
        self.builder.store(value, place)

    def scalar(self, array: Any, at: Any) -> Any:
        """Return one element."""
        return self.builder.load(self.builder.gep(array, [at]))

    def load(self, array: Any, at: Any, kind: Any = _VECTOR) -> Any:
        """Return sixteen elements, on any boundary."""
        place = self.builder.bitcast(self.builder.gep(array, [at]), kind.as_pointer())
        value = self.builder.load(place)
        value.align = 4
        return value

    def load_integers(self, array: Any, at: Any) -> Any:
        """Return sixteen int32."""
        return self.load(array, at, _INTEGERS)

    def store(self, value: Any, array: Any, at: Any) -> None:
        place = self.builder.bitcast(self.builder.gep(array, [at]), value.type.as_pointer())
        self.builder.store(value, place).align = 4

    def load_bits(self, array: Any, at: Any) -> Any:
        """Return sixteen truth values from one uint16."""
        return self.builder.bitcast(self.scalar(array, at), _BITS)

    def store_bits(self, bits: Any, array: Any, at: Any) -> None:
        self.builder.store(self.word(bits), self.builder.gep(array, [at]))

    def word(self, bits: Any) -> Any:
        """Return sixteen truth values as one uint16."""
        return self.builder.bitcast(bits, _INT16)

    def count(self, bits: Any) -> Any:
        """Return the number of true lanes."""
        return self.builder.zext(self._call("llvm.ctpop.i16", _INT16, [self.word(bits)]), _INT64)

    def spread(self, x: Any) -> Any:
        """Return a vector with the same number in every lane."""
        kind = _VECTOR if x.type == _FLOAT else _INTEGERS
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, x, ir.Constant(_INT32, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(_INTEGERS, [0] * LANES))

    def constant(self, value: float) -> Any:
        """Return a vector with the same float32 in every lane."""
        number = ir.Constant(_FLOAT, float(np.float32(value)))
        return ir.Constant(_VECTOR, [number] * LANES)

    def integers(self, value: int) -> Any:
        """Return a vector with the same int32 in every lane."""
        return ir.Constant(_INTEGERS, [value] * LANES)

    def narrow(self, index: Any) -> Any:
        """Return an index as int32."""
        return self.builder.trunc(index, _INT32)

    def wide(self, x: Any) -> Any:
        """Return an int32 as index."""
        return self.builder.sext(x, _INT64)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, rounded once."""
        return self._call("llvm.fma.v16f32", _VECTOR, [a, b, c])

    def add_products(self, sums: list[list[Any]], left: Iterable[Any], right: list[Any]) -> None:
        """Add left[r] * right[c] to the variable sums[r][c]."""
        for row, a in zip(sums, left, strict=True):
            for place, b in zip(row, right, strict=True):
                self.set(place, self.fused(a, b, self.get(place)))

    def total(self, vector: Any) -> Any:
        """Return the sum of the lanes."""
        arguments = [ir.Constant(_FLOAT, -0.0), vector]
        return self._call("llvm.vector.reduce.fadd.v16f32", _FLOAT, arguments, ("reassoc",))

    def compress(self, vector: Any, bits: Any, array: Any, at: Any) -> None:
        """Store the lanes whose bit is true contiguously.

        The rest of the sixteen elements is undefined.
        """
        if "+avx2" in _FEATURES and not WIDE:
            self._compress_by_table(vector, bits, array, at)
        else:
            name = "v16f32" if vector.type == _VECTOR else "v16i32"
            arguments = [vector, bits, ir.Constant(vector.type, ir.Undefined)]
            function = f"llvm.experimental.vector.compress.{name}"
            self.store(self._call(function, vector.type, arguments), array, at)

    def _compress_by_table(self, vector: Any, bits: Any, array: Any, at: Any) -> None:
        """Compress halves with a table of their 256 permutations: AVX2 has no such instruction."""
        build, half = self.builder, ir.VectorType(_INT32, 8)
        orders = [[k for k in range(8) if i >> k & 1] for i in range(256)]
        rows = [ir.Constant(half, order + [0] * (8 - len(order))) for order in orders]
        table = ir.Constant(ir.ArrayType(half, 256), rows)
        table = cgutils.global_constant(build, "e2fl.permutations", table)
        vector, word = build.bitcast(vector, _INTEGERS), self.word(bits)
        for first in (0, 8):
            byte = build.and_(build.lshr(word, word.type(first)), word.type(255))
            lanes = ir.Constant(half, list(range(first, first + 8)))
            part = build.shuffle_vector(vector, ir.Constant(_INTEGERS, ir.Undefined), lanes)
            order = build.load(build.gep(table, [_integer(0), build.zext(byte, _INT64)]))
            self.store(self._call("llvm.x86.avx2.permd", half, [part, order]), array, at)
            count = self._call("llvm.ctpop.i16", _INT16, [byte])
            at = self.index(at, build.zext(count, _INT64))

    def store_first(self, vector: Any, count: Any, array: Any, at: Any) -> None:
        """Store only the first `count` lanes."""
        bits = self.builder.icmp_signed("<", self.lanes, self.spread(self.narrow(count)))
        place = self.builder.bitcast(self.builder.gep(array, [at]), _POINTER)
        name = "v16f32" if vector.type == _VECTOR else "v16i32"
        boundary = ir.Constant(_INT32, 4)
        self._call(f"llvm.masked.store.{name}.p0", ir.VoidType(), [vector, place, boundary, bits])

    def transposed(self, rows: list[Any]) -> list[Any]:
        """Return sixteen vectors whose lanes are the columns of sixteen others."""
        half = LANES // 2
        low = [lane for i in range(half) for lane in (i, LANES + i)]
        high = [lane for i in range(half, LANES) for lane in (i, LANES + i)]
        # Interleaving both halves of the rows moves one bit of the row number into the lane number.
        for _ in range(4):
            pairs = [(rows[i], rows[half + i]) for i in range(half)]
            rows = [
                self.builder.shuffle_vector(a, b, ir.Constant(_INTEGERS, order))
                for a, b in pairs
                for order in (low, high)
            ]
        return rows

    def clip(self, value: Any, least: Any) -> Any:
        """Return the larger of two vectors, lane by lane; NaN stays NaN."""
        below = self.builder.fcmp_ordered("<", value, least)
        return self.builder.select(below, least, value)

    def unlikely(self, condition: Any) -> Any:
        """Return a context whose code runs only if the condition holds, which is rare."""
        return cgutils.if_unlikely(self.builder, condition)

    def _call(
        self, name: str, result: Any, arguments: list[Any], fastmath: tuple[str, ...] = ()
    ) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments, fastmath=fastmath)


def _integer(x: Any) -> Any:
    return ir.Constant(_INT64, x) if isinstance(x, int) else x


Code = Callable[..., Any]


def vector_code(write: Code) -> Any:
    """Turn a function that emits instructions into one that compiled code can call.

    write: takes an Emit, and lists of pointers to arrays, of integers and of floats; returns an
    integer, or None for zero. The result takes the same values as tuples, which may contain
    tuples: `f((arrays, ...), (integers, ...), (floats, ...))`.
    """

    @intrinsic
    def function(_: Any, arrays: Any, integers: Any, floats: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            pointers = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in _flat(builder, kinds[0], arguments[0])
            ]
            numbers = [value for _, value in _flat(builder, kinds[1], arguments[1])]
            reals = [value for _, value in _flat(builder, kinds[2], arguments[2])]
            result = write(Emit(context, builder), pointers, numbers, reals)
            return _integer(0) if result is None else result

        return types.int64(arrays, integers, floats), code

    return function


def _flat(builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """Return the types and values of a tuple, and of tuples inside it."""
    parts = getattr(kind, "types", None)  # of a tuple
    if parts is None:
        return [(kind, value)]
    items: list[tuple[Any, Any]] = []
    for i, part in enumerate(parts):
        items += _flat(builder, part, builder.extract_value(value, i))
    return items
