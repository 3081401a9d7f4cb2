"""Messages and their exact bytes (docs/ballots.md has the layout).

A message is a frozen dataclass whose field types define its format, so a new message is a new
dataclass. Received bytes are untrusted: `from_bytes` checks every length against the model before
it allocates, and raises only `WireError`.
"""

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e2fl.errors import WireError, with_article
from e2fl.models import Layer, ModelSpec, Params, defect_of_layers, is_finite
from e2fl.rankings.order import Mask, Ranking, ranking_size, read_ranking, write_ranking

MAGIC = b"E2FL"
VERSION = 1
HEADER_LIMIT = 64

# magic, version, length of the whole header, two zero bytes, kind, length of the payload,
# fingerprint of the model; then the CRC-32 of all other bytes, then the message's own numbers
_HEADER = struct.Struct("<4sBBHIQ8s")
_CRC = struct.Struct("<I")


class Message:
    """A frozen dataclass that is its own wire format."""

    # Set by a base class whose messages have several forms.
    forms: ClassVar[tuple[type["Message"], ...]] = ()
    wire_name: ClassVar[str]  # identifies the message in the header

    def __init_subclass__(cls, wire_name: str = "", **options: Any) -> None:
        """wire_name: default: the name of the class."""
        super().__init_subclass__(**options)
        cls.wire_name = wire_name or cls.__name__

    def to_bytes(self, model: ModelSpec) -> bytes:
        """Return header and payload as bytes; `WireError` if a field cannot be sent."""
        if wrong := self.defect(model):
            raise WireError(f"{type(self).__name__}.{wrong}")
        form = _form(type(self))
        numbers: list[int | float] = []
        payload: list[bytes] = []
        for field in form.fields:
            value = getattr(self, field.name)
            if field.in_header:
                numbers.append(value)
                continue
            if field.number >= 0:
                numbers.append(len(value))
            elements = value if field.many else (value,)
            payload += [field.item.write(element, model) for element in elements]
        body = b"".join(payload)
        try:
            scalars = form.numbers.pack(*numbers)
        except struct.error as error:
            raise WireError(
                f"{type(self).__name__} has a number that does not fit its field: {error}"
            ) from None
        header = _HEADER.pack(
            MAGIC, VERSION, form.header_size, 0, form.kind, len(body), model.fingerprint
        )
        crc = zlib.crc32(body, zlib.crc32(scalars, zlib.crc32(header)))
        return b"".join((header, _CRC.pack(crc), scalars, body))

    @classmethod
    def from_bytes(cls, raw: bytes, model: ModelSpec) -> Self:
        """Return the message in these bytes, or raise `WireError`."""
        form, numbers, body = _open(vars(cls).get("forms") or (cls,), memoryview(raw), model)
        # Every length is checked before decoding, so that a short message cannot cause a large
        # allocation.
        sizes = [field.size(numbers, model) for field in form.fields]
        if sum(sizes) != len(body):
            raise WireError(
                f"{form.message.__name__} has {len(body)} bytes of payload; "
                f"{sum(sizes)} are expected"
            )
        values: dict[str, Any] = {}
        for field, size in zip(form.fields, sizes, strict=True):
            chunk, body = body[:size], body[size:]
            if field.in_header:
                values[field.name] = numbers[field.number]
            elif field.many:
                step, count = field.item.size(model), numbers[field.number]
                starts = [position * step for position in range(count)]
                parts = (chunk[start : start + step] for start in starts)
                values[field.name] = tuple(field.item.read(part, model) for part in parts)
            else:
                values[field.name] = field.item.read(chunk, model)
        return cast(Self, form.message(**values))

    def defect(self, model: ModelSpec) -> str:
        """Return the defect of a field, such as "params has no layer 'fc1.weight'"; empty: none."""
        for field in self._fields():
            value = getattr(self, field.name)
            if field.many and not isinstance(value, tuple):
                return f"{field.name} is {with_article(type(value))}; it must be a tuple"
            for element in value if field.many else (value,):
                if wrong := field.item.defect(element, model):
                    return f"{field.name} {wrong}"
        return ""

    def grouping_bytes(self, model: ModelSpec) -> int:
        """Return the bytes that are sent only so that the client can find its group."""
        return 0

    def weights_field(self) -> str | None:
        """Return the name of the field with weights or a gradient, if there is exactly one."""
        names = [field.name for field in self._fields() if field.item is _WEIGHTS]
        single = len(names) == 1 and isinstance(getattr(self, names[0]), dict)
        return names[0] if single else None

    def finite(self) -> bool:
        """Return whether all weights in this message are finite."""
        fields = [field for field in self._fields() if field.item is _WEIGHTS]
        values = ((field.many, getattr(self, field.name)) for field in fields)
        return all(all(map(is_finite, value if many else (value,))) for many, value in values)

    def _fields(self) -> "tuple[_Field, ...]":
        """Return the fields; none for a message that is encoded as another one."""
        encodes_itself = type(self).to_bytes is Message.to_bytes
        return _form(type(self)).fields if encodes_itself else ()


@dataclass(frozen=True)
class _Item:
    """The encoding of one value in the payload; its size depends only on the model."""

    name: str
    one: str  # struct code of the header entry: the value or its length; empty: no entry
    many: str  # the same for a tuple of values: their number; empty: no tuples
    size: Callable[[ModelSpec], int]
    write: Callable[[Any, ModelSpec], bytes]
    read: Callable[[memoryview, ModelSpec], Any]
    defect: Callable[[Any, ModelSpec], str]  # of a value; empty: none


def _by_layer(
    name: str,
    kind: type[Any],
    bits: int,
    write: Callable[[Any, Layer], NDArray[Any]],
    read: Callable[[NDArray[np.uint8], Layer], Any],
    *,
    flat: bool,
) -> _Item:
    """Return the encoding of one array per layer, each with this many bits for every edge.

    write, read: one layer as bytes and back. kind, flat: of arrays, as in `defect_of_layers`.
    """

    def size_of(layer: Layer) -> int:
        return (layer.edges * bits + 7) // 8

    def read_all(raw: memoryview, model: ModelSpec) -> dict[str, Any]:
        values = {}
        for layer in model.layers:
            raw_layer, raw = raw[: size_of(layer)], raw[size_of(layer) :]
            values[layer.name] = read(np.frombuffer(raw_layer, dtype=np.uint8), layer)
        return values

    return _Item(
        name,
        one="",
        many="H",
        size=lambda model: sum(map(size_of, model.layers)),
        write=lambda value, model: b"".join(
            write(value[layer.name], layer).tobytes() for layer in model.layers
        ),
        read=read_all,
        defect=lambda value, model: defect_of_layers(value, model.layers, kind, flat=flat),
    )


def _edges(model: ModelSpec) -> dict[str, int]:
    return {layer.name: layer.edges for layer in model.layers}


def _read_mask(raw: NDArray[np.uint8], layer: Layer) -> Any:
    bits = np.unpackbits(raw, bitorder="little")
    if bits[layer.edges :].any():
        raise WireError(f"the mask of layer '{layer.name}' has bits set after its last edge")
    return bits[: layer.edges].astype(np.bool_)


def _read_weights(raw: NDArray[np.uint8], layer: Layer) -> Tensor:
    weights = raw.view("<f4").astype(np.float32)
    if not np.isfinite(weights).all():
        raise WireError("the weights are not finite, as after a learning_rate that is too high")
    return torch.from_numpy(weights).view(layer.shape)


def _number(code: str, kind: type) -> _Item:
    packed = struct.Struct(f"<{code}")

    def defect(value: Any, _: ModelSpec) -> str:
        try:
            packed.pack(value)
        except (struct.error, OverflowError, TypeError):
            return f"is {value!r:.40}; it must be {with_article(kind)} of {8 * packed.size} bits"
        return ""

    return _Item(
        packed.format,
        one=code,
        many="I",
        size=lambda _: packed.size,
        write=lambda value, _: packed.pack(value),
        read=lambda raw, _: packed.unpack(raw)[0],
        defect=defect,
    )


# Bytes of any length.
_BYTES = _Item(
    "bytes",
    one="I",
    many="",
    size=lambda _: 1,
    write=lambda value, _: bytes(value),
    read=lambda raw, _: bytes(raw),
    defect=lambda value, _: (
        "" if isinstance(value, bytes) else f"is {with_article(type(value))}; it must be bytes"
    ),
)
_RANKING = _Item(
    "ranking",
    one="",
    many="H",
    size=lambda model: ranking_size(_edges(model)),
    write=lambda ranking, model: write_ranking(ranking, _edges(model)),
    read=lambda raw, model: read_ranking(raw, _edges(model)),
    defect=lambda value, model: defect_of_layers(value, model.layers, np.ndarray, flat=True),
)
_MASK = _by_layer(
    "mask",
    np.ndarray,
    1,
    lambda mask, layer: np.packbits(mask, bitorder="little"),
    _read_mask,
    flat=True,
)
_WEIGHTS = _by_layer(
    "weights",
    Tensor,
    32,
    lambda weights, layer: weights.detach().cpu().numpy().astype("<f4", copy=False),
    _read_weights,
    flat=False,
)
_ITEMS: dict[Any, _Item] = {
    int: _number("i", int),
    float: _number("d", float),
    bytes: _BYTES,
    Ranking: _RANKING,
    Mask: _MASK,
    Params: _WEIGHTS,
}
mask_size = _MASK.size  # bytes of one mask, one bit per edge
weights_size = _WEIGHTS.size  # bytes of one dense model


@dataclass(frozen=True)
class _Field:
    name: str
    item: _Item
    many: bool
    number: int  # which number of the header is its value, its length or its count; -1: none
    in_header: bool  # its value is that number

    def size(self, numbers: tuple[Any, ...], model: ModelSpec) -> int:
        """Return the bytes that it takes in the payload."""
        if self.in_header:
            return 0
        return self.item.size(model) * int(numbers[self.number] if self.number >= 0 else 1)


@dataclass(frozen=True)
class _Form:
    message: type[Message]
    kind: int
    numbers: struct.Struct
    fields: tuple[_Field, ...]
    header_size: int


_FORMS: dict[type[Message], _Form] = {}


def _form(message: type[Message]) -> _Form:
    """Return the wire format of a class of messages."""
    if message not in _FORMS:
        _FORMS[message] = _make_form(message)
    return _FORMS[message]


def _make_form(message: type[Any]) -> _Form:
    hints = get_type_hints(message)
    form: list[_Field] = []
    codes = ""  # of the numbers in the header
    schema = message.wire_name
    for field in fields(message):
        kind = hints[field.name]
        many = get_origin(kind) is tuple
        item = _ITEMS.get(get_args(kind)[0] if many else kind)
        if item is None or (many and not item.many):
            raise TypeError(f"{message.__name__}.{field.name}: no wire format for {kind}")
        code, in_header = item.many if many else item.one, kind in (int, float)
        form.append(_Field(field.name, item, many, len(codes) if code else -1, in_header))
        codes += code
        schema += f",{field.name}:{codes if in_header else item.name}{'*' * many}"
    numbers = struct.Struct("<" + codes)
    size = _HEADER.size + _CRC.size + numbers.size
    if size > HEADER_LIMIT:
        raise TypeError(
            f"{message.__name__} needs a header of {size} bytes; {HEADER_LIMIT} is the limit"
        )
    return _Form(message, zlib.crc32(schema.encode()), numbers, tuple(form), size)


def _open(
    messages: Iterable[type[Message]], raw: memoryview, model: ModelSpec
) -> tuple[_Form, tuple[Any, ...], memoryview]:
    """Check the header; return which of these messages it is, its numbers and the payload."""
    fixed = _HEADER.size + _CRC.size
    if len(raw) < fixed:
        raise WireError(f"{len(raw)} bytes are too short for a message")
    magic, version, header_size, zero, kind, length, fingerprint = _HEADER.unpack(
        raw[: _HEADER.size]
    )
    if magic != MAGIC:
        raise WireError("these bytes are not an e2fl message")
    if version != VERSION:
        raise WireError(f"the message has format version {version}; {VERSION} is expected")
    form = next((form for form in map(_form, messages) if form.kind == kind), None)
    if form is None or header_size != form.header_size or zero != 0:
        raise WireError("the message is not of the expected kind")
    if fingerprint != model.fingerprint:
        raise WireError("the message is for another model")
    if len(raw) != header_size + length:
        raise WireError(f"the message has {len(raw)} bytes; its header says {header_size + length}")
    (crc,) = _CRC.unpack(raw[_HEADER.size : fixed])
    if crc != zlib.crc32(raw[fixed:], zlib.crc32(raw[: _HEADER.size])):
        raise WireError("the message is damaged (wrong checksum)")
    return form, form.numbers.unpack(raw[fixed:header_size]), raw[header_size:]


@dataclass(frozen=True)
class Nothing(Message):
    """A message without content."""


@dataclass(frozen=True)
class Weights(Message):
    """A dense model."""

    params: Params
