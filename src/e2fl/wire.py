"""Messages: what is sent, and its exact bytes (docs/ballots.md has the layout).

A message is a frozen dataclass whose field types define its format, so a new message is a new
dataclass. Received bytes are untrusted: `from_bytes` checks every length against the model before
it allocates, and raises only `WireError`.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

import numpy as np
import torch

from e2fl.errors import WireError, with_article
from e2fl.models import ModelSpec, Params, defect_of_layers
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

    def to_bytes(self, model: ModelSpec) -> bytes:
        """Return this message as bytes: header and payload.

        Raise `WireError` if a field cannot be sent.
        """
        if wrong := self.defect(model):
            raise WireError(f"{type(self).__name__}.{wrong}")
        form = _form(type(self))
        numbers: list[int | float] = []
        payload: list[bytes] = []
        for field in form.fields:
            value = getattr(self, field.name)
            if field.item is None:
                numbers.append(value)
                continue
            if field.counted:
                numbers.append(len(value))
            parts = value if field.many else (value,)
            payload += [field.item.write(part, model) for part in parts]
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
        if vars(cls).get("forms"):
            return cast(Self, _one_of(cls.forms, raw).from_bytes(raw, model))
        form = _form(cls)
        numbers, body = _open(form, memoryview(raw), model)
        # Every length is checked before decoding, so that a short message cannot cause a large
        # allocation.
        sizes = [_size(field, numbers, model) for field in form.fields]
        if sum(sizes) != len(body):
            raise WireError(
                f"{cls.__name__} has {len(body)} bytes of payload; {sum(sizes)} are expected"
            )
        values: dict[str, Any] = {}
        for field, size in zip(form.fields, sizes, strict=True):
            part, body = body[:size], body[size:]
            if field.item is None:
                values[field.name] = numbers[field.number]
            elif field.many:
                one, count = field.item.size(model), numbers[field.number]
                starts = [position * one for position in range(count)]
                parts = [field.item.read(part[start : start + one], model) for start in starts]
                values[field.name] = tuple(parts)
            else:
                values[field.name] = field.item.read(part, model)
        return cls(**values)

    def defect(self, model: ModelSpec) -> str:
        """Return what is wrong with a field: "params has no layer 'fc1.weight'"; empty: nothing."""
        for field in self._fields():
            value = getattr(self, field.name)
            if field.many and not isinstance(value, tuple):
                return f"{field.name} is {with_article(type(value))}; it must be a tuple"
            for part in value if field.many else (value,):
                if wrong := (field.item or _SCALARS[field.scalar]).defect(part, model):
                    return f"{field.name} {wrong}"
        return ""

    def grouping_bytes(self, model: ModelSpec) -> int:
        """Return how many of these bytes are sent only so that the client can find its group."""
        return 0

    def weights_field(self) -> str | None:
        """Return the name of the field with weights or a gradient.

        None unless there is exactly one.
        """
        names = [field.name for field in self._fields() if field.item is _LAYERED[Params]]
        single = len(names) == 1 and isinstance(getattr(self, names[0]), dict)
        return names[0] if single else None

    def finite(self) -> bool:
        """Return whether all weights in this message are finite."""
        for field in self._fields():
            if field.item is _LAYERED[Params]:
                value = getattr(self, field.name)
                for params in value if field.many else (value,):
                    if not all(bool(tensor.isfinite().all()) for tensor in params.values()):
                        return False
        return True

    def _fields(self) -> "tuple[_Field, ...]":
        """Return the fields; none for a message that is encoded as another one."""
        own = type(self).to_bytes is Message.to_bytes
        return _form(type(self)).fields if own else ()


@dataclass(frozen=True)
class _Item:
    """The encoding of one value in the payload; its size depends only on the model."""

    name: str
    size: Callable[[ModelSpec], int]
    write: Callable[[Any, ModelSpec], bytes]
    read: Callable[[memoryview, ModelSpec], Any]
    defect: Callable[[Any, ModelSpec], str]  # what is wrong with a value; empty: nothing


def _edges(model: ModelSpec) -> dict[str, int]:
    return {layer.name: layer.edges for layer in model.layers}


def mask_size(model: ModelSpec) -> int:
    """Return the bytes of one mask, one bit per edge."""
    return sum((layer.edges + 7) // 8 for layer in model.layers)


def _write_mask(mask: Mask, model: ModelSpec) -> bytes:
    packed = (np.packbits(mask[layer.name], bitorder="little") for layer in model.layers)
    return b"".join(bits.tobytes() for bits in packed)


def _read_mask(raw: memoryview, model: ModelSpec) -> Mask:
    mask: Mask = {}
    for layer in model.layers:
        size = (layer.edges + 7) // 8
        part, raw = raw[:size], raw[size:]
        bits = np.unpackbits(np.frombuffer(part, dtype=np.uint8), bitorder="little")
        if bits[layer.edges :].any():
            raise WireError(f"the mask of layer '{layer.name}' has bits set after its last edge")
        mask[layer.name] = bits[: layer.edges].astype(np.bool_)
    return mask


def weights_size(model: ModelSpec) -> int:
    """Return the bytes of one dense model."""
    return 4 * model.edges


def _write_weights(params: Params, model: ModelSpec) -> bytes:
    arrays = (params[layer.name].detach().cpu().numpy() for layer in model.layers)
    return b"".join(array.astype("<f4", copy=False).tobytes() for array in arrays)


def _read_weights(raw: memoryview, model: ModelSpec) -> Params:
    flat = np.frombuffer(raw, dtype="<f4").astype(np.float32)
    if not np.isfinite(flat).all():
        raise WireError("the weights are not finite, as after a learning_rate that is too high")
    params: Params = {}
    start = 0
    for layer in model.layers:
        params[layer.name] = torch.from_numpy(flat[start : start + layer.edges]).view(layer.shape)
        start += layer.edges
    return params


def _number(code: str, kind: type) -> _Item:
    size = struct.calcsize(code)

    def defect(value: Any, _: ModelSpec) -> str:
        try:
            struct.pack(code, value)
        except (struct.error, OverflowError, TypeError):
            return f"is {value!r:.40}; it must be {with_article(kind)} of {8 * size} bits"
        return ""

    return _Item(
        code,
        lambda _: size,
        lambda value, _: struct.pack(code, value),
        lambda raw, _: struct.unpack(code, raw)[0],
        defect,
    )


def _layered(kind: type[Any], *, flat: bool) -> Callable[[Any, ModelSpec], str]:
    return lambda value, model: defect_of_layers(value, model.layers, kind, flat=flat)


_NUMBERS = {int: "i", float: "d"}  # in the header
_SCALARS = {int: _number("<i", int), float: _number("<d", float)}  # in a tuple, in the payload
_LAYERED: dict[Any, _Item] = {
    Ranking: _Item(
        "ranking",
        lambda model: ranking_size(_edges(model)),
        lambda ranking, model: write_ranking(ranking, _edges(model)),
        lambda raw, model: read_ranking(raw, _edges(model)),
        _layered(np.ndarray, flat=True),
    ),
    Mask: _Item("mask", mask_size, _write_mask, _read_mask, _layered(np.ndarray, flat=True)),
    Params: _Item(
        "weights", weights_size, _write_weights, _read_weights, _layered(torch.Tensor, flat=False)
    ),
}


# Bytes of any length; the length is in the header.
_BYTES = _Item(
    "bytes",
    lambda _: 1,
    lambda value, _: bytes(value),
    lambda raw, _: bytes(raw),
    lambda value, _: (
        "" if isinstance(value, bytes) else f"is {with_article(type(value))}; it must be bytes"
    ),
)


@dataclass(frozen=True)
class _Field:
    name: str
    item: _Item | None  # None: a number in the header
    many: bool
    number: int  # which number of the header is its value, or its count
    scalar: type = int  # of a number in the header

    @property
    def counted(self) -> bool:
        """Whether the header has its length."""
        return self.many or self.item is _BYTES


@dataclass(frozen=True)
class _Form:
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
    schema = message.__name__
    for field in fields(message):
        kind = hints[field.name]
        inner = get_args(kind)[0] if get_origin(kind) is tuple else None
        if kind in _NUMBERS:
            form.append(_Field(field.name, None, False, len(codes), kind))
            codes += _NUMBERS[kind]
        elif kind in _LAYERED:
            form.append(_Field(field.name, _LAYERED[kind], False, -1))
        elif kind is bytes:
            form.append(_Field(field.name, _BYTES, False, len(codes)))
            codes += "I"
        elif inner in _LAYERED:
            form.append(_Field(field.name, _LAYERED[inner], True, len(codes)))
            codes += "H"
        elif inner in _SCALARS:
            form.append(_Field(field.name, _SCALARS[inner], True, len(codes)))
            codes += "I"
        else:
            raise TypeError(f"{message.__name__}.{field.name}: no wire format for {kind}")
        item = form[-1].item
        schema += f",{field.name}:{codes if item is None else item.name}{'*' * form[-1].many}"
    numbers = struct.Struct("<" + codes)
    size = _HEADER.size + _CRC.size + numbers.size
    if size > HEADER_LIMIT:
        raise TypeError(
            f"{message.__name__} needs a header of {size} bytes; {HEADER_LIMIT} is the limit"
        )
    return _Form(zlib.crc32(schema.encode()), numbers, tuple(form), size)


def _size(field: _Field, numbers: tuple[Any, ...], model: ModelSpec) -> int:
    """Return the bytes that a field takes in the payload."""
    if field.item is None:
        return 0
    return int(field.item.size(model) * (numbers[field.number] if field.counted else 1))


def _one_of(forms: tuple[type[Message], ...], raw: bytes) -> type[Message]:
    """Return the form whose kind is in the header."""
    if len(raw) < _HEADER.size:
        raise WireError(f"{len(raw)} bytes are too short for a message")
    kind = _HEADER.unpack(raw[: _HEADER.size])[4]
    for form in forms:
        if _form(form).kind == kind:
            return form
    raise WireError("the message is not of the expected kind")


def _open(form: _Form, raw: memoryview, model: ModelSpec) -> tuple[tuple[Any, ...], memoryview]:
    """Check the header; return its numbers and the payload."""
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
    if kind != form.kind or header_size != form.header_size or zero != 0:
        raise WireError("the message is not of the expected kind")
    if fingerprint != model.fingerprint:
        raise WireError("the message is for another model")
    if len(raw) != header_size + length:
        raise WireError(f"the message has {len(raw)} bytes; its header says {header_size + length}")
    (crc,) = _CRC.unpack(raw[_HEADER.size : fixed])
    if crc != zlib.crc32(raw[fixed:], zlib.crc32(raw[: _HEADER.size])):
        raise WireError("the message is damaged (wrong checksum)")
    return form.numbers.unpack(raw[fixed:header_size]), raw[header_size:]


@dataclass(frozen=True)
class Nothing(Message):
    """A message without content."""


@dataclass(frozen=True)
class Weights(Message):
    """A dense model."""

    params: Params
