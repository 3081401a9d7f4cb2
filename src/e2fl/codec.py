"""Dataclasses, containers and arrays as JSON and safetensors: records, states, what clients keep.

Keys in JSON are the names of fields. A field with its default is left out. Arrays stand apart, by
path. The type of every part comes from the annotation of its field, never from the file.
"""

import dataclasses
import hashlib
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import numpy as np

from e2fl.construct import fields_of, settings_of
from e2fl.errors import reason_of
from e2fl.files import parse, regular, replacing

if TYPE_CHECKING:  # what holds no arrays needs no torch
    from torch import Tensor

Arrays = dict[str, "Tensor"]

ARRAY = "$array"  # the key of a reference to an array
METADATA = "e2fl"  # the entry in the metadata of a file
LARGEST = 16 * 2**30  # bytes of a file with arrays


def encode(value: Any, arrays: Arrays, path: str = "state") -> Any:
    """Return a value as JSON; its arrays are added to `arrays`, named by their path."""
    if isinstance(value, np.ndarray) or hasattr(value, "untyped_storage"):
        import torch

        arrays[path] = torch.as_tensor(value).detach().cpu().contiguous().clone()
        return {ARRAY: path}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = settings_of(type(value))
        return {
            name: encode(getattr(value, name), arrays, f"{path}.{name}")
            for name, field in fields.items()
            if not _equal(getattr(value, name), field.default)
        }
    if isinstance(value, Mapping):
        items = [(key, encode(part, arrays, f"{path}.{key}")) for key, part in value.items()]
        named = all(isinstance(key, str) and key != ARRAY for key, _ in items)
        return dict(items) if named else [list(item) for item in items]
    if isinstance(value, tuple | list):
        return [encode(part, arrays, f"{path}.{position}") for position, part in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{path} is {type(value).__name__}, which cannot be stored")


def _equal(value: Any, default: Any) -> bool:
    """Return whether a value is the default of its field, which is plain or empty."""
    if isinstance(default, None | bool | int | float | str):
        return type(value) is type(default) and bool(value == default)
    return isinstance(default, Mapping | tuple | list) and not default and not len(value or ())


def decode(
    stored: Any, kind: Any, arrays: Mapping[str, "Tensor"] | None = None, **parts: Any
) -> Any:
    """Return what `encode` was given.

    kind: its class or annotation; `Any` for plain values. parts: the kinds of fields annotated Any.
    """
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(choice for choice in get_args(kind) if choice is not type(None))
    whole, inner = get_origin(kind) or kind, get_args(kind)
    if isinstance(stored, dict):
        if ARRAY in stored:
            tensor = (arrays or {})[stored[ARRAY]]
            return tensor if kind in (type(tensor), Any) else tensor.numpy()
        if dataclasses.is_dataclass(whole) and isinstance(whole, type):
            fields = {**fields_of(whole), **parts}
            if not stored.keys() <= fields.keys():
                unknown = ", ".join(sorted(stored.keys() - fields.keys()))
                raise ValueError(f"{whole.__name__} has no field {unknown}")
            return whole(**{key: decode(stored[key], fields[key], arrays) for key in stored})
        value_kind = inner[1] if len(inner) == 2 else Any
        return {key: decode(part, value_kind, arrays) for key, part in stored.items()}
    if not isinstance(stored, list):
        return stored
    if kind is Any:
        return [decode(part, Any, arrays) for part in stored]
    if isinstance(whole, type) and issubclass(whole, Mapping):
        return {key: decode(part, inner[1], arrays) for key, part in stored}
    fixed = whole is tuple and Ellipsis not in inner and len(inner) == len(stored)
    kinds = inner if fixed else (inner or (Any,))[:1] * len(stored)
    return tuple(decode(part, kinds[position], arrays) for position, part in enumerate(stored))


def to_json(record: Any) -> dict[str, Any]:
    """Return a dataclass without arrays as JSON."""
    encoded: dict[str, Any] = encode(record, {})
    return encoded


def save(path: Path, value: Any) -> None:
    """Write a value with arrays to one safetensors file, with its digest."""
    arrays: Arrays = {}
    save_tensors(path, arrays, json.dumps(encode(value, arrays)))


def load(path: Path, kind: Any, **parts: Any) -> Any:
    """Return the value in a file; `OSError` or `ValueError` if it is damaged or of another kind."""
    arrays, text = load_tensors(path)
    try:
        return decode(parse(json.loads, text), kind, arrays, **parts)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is of another kind: {error}") from error


def save_tensors(path: Path, tensors: Arrays, text: str = "") -> None:
    """Write named tensors and a text to a safetensors file, with the digest of both."""
    from safetensors.torch import save_file

    # One entry: safetensors writes several in any order, and equal runs have equal files.
    metadata = {METADATA: json.dumps({"sha256": _digest(tensors, text), "text": text})}
    with replacing(path) as partial:
        save_file(tensors, partial, metadata=metadata)


def load_tensors(path: Path) -> tuple[Arrays, str]:
    """Return what `save_tensors` wrote; `OSError` or `ValueError` if the file is damaged."""
    from safetensors import safe_open

    regular(path, LARGEST)
    try:
        with safe_open(path, "pt") as file:  # it checks the header before anything else is read
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            stored = parse(json.loads, file.metadata()[METADATA])
        text, recorded = stored["text"], stored["sha256"]
    except Exception as error:  # safetensors raises what its parts raise
        raise ValueError(f"it is not a file of arrays ({reason_of(error)})") from error
    if recorded != _digest(tensors, text):
        raise ValueError("it does not match its checksum")
    return tensors, text


def _digest(tensors: Arrays, text: str) -> str:
    from safetensors.torch import save

    return hashlib.sha256(save(tensors) + text.encode()).hexdigest()
