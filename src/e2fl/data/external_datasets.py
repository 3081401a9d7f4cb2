"""Data sets of torch and Hugging Face, read into arrays. Neither library is needed: only the row interface counts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from e2fl.errors import DataError, with_article

LABELS = ("label", "labels", "y", "target")  # columns that hold the label unless one is named

Rows = tuple[NDArray[Any], NDArray[Any]] | tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def is_dataset(value: object) -> bool:
    """Return whether this looks like a torch `Dataset` or a Hugging Face data set: rows by number."""
    plain = isinstance(value, tuple | list | dict | str | bytes | np.ndarray | torch.Tensor)
    return not plain and not hasattr(value, "columns") and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def rows_of(dataset: Any, *, inputs: str | None = None, label: str | None = None, group: str | None = None) -> Rows:
    """Return the rows of a data set as arrays (x, y), or (x, y, group) where rows have a group.

    dataset: its rows are (x, y) or (x, y, group), as in torch, or dictionaries, as in Hugging Face; x is a number, an
    array, a tensor or a PIL image. inputs, label, group: the columns of such dictionaries; default: label, and the only
    other column as input. All rows are read into memory.
    """
    if not is_dataset(dataset):
        hint = "; pass its dataset" if hasattr(dataset, "dataset") else ""
        raise DataError(
            f"{with_article(type(dataset))} is not a data set with rows by number, as torch's map-style data sets and "
            f"those of Hugging Face are{hint}"
        )
    rows = [_row(dataset[number], number, inputs, label, group) for number in range(len(dataset))]
    if not rows:
        raise DataError("the data set has no rows")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]) or row[0].shape != rows[0][0].shape:
            raise DataError(
                f"row {number} has {len(row)} parts and inputs of shape {row[0].shape}; row 0 has {len(rows[0])} and "
                f"{rows[0][0].shape}: give all rows the same shape, such as with a transform"
            )
    x, y, *groups = (np.stack(column) for column in zip(*rows, strict=True))
    return (x, y, *groups)  # type: ignore[return-value]  # two or three, as the rows have


def _row(row: Any, number: int, inputs: str | None, label: str | None, group: str | None) -> tuple[NDArray[Any], ...]:
    if isinstance(row, Mapping):
        row = _columns(row, inputs, label, group)
    if not isinstance(row, tuple | list) or len(row) not in (2, 3):
        raise DataError(f"row {number} is {with_article(type(row))}; it must be (x, y), (x, y, group) or a dictionary")
    x, *others = row
    return (_picture(x), *(np.asarray(_plain(value)).reshape(()) for value in others))


def _columns(row: Mapping[str, Any], inputs: str | None, label: str | None, group: str | None) -> tuple[Any, ...]:
    """Return the columns of a row, in the order x, y, group."""
    label = label or next((name for name in LABELS if name in row), None)
    rest = [name for name in row if name not in (label, group)]
    if inputs is None and len(rest) == 1:
        inputs = rest[0]
    wanted = {"inputs": inputs, "label": label} | ({} if group is None else {"group": group})
    for what, name in wanted.items():
        if name not in row:
            raise DataError(f"the columns are {', '.join(row)}: name one with rows_of(dataset, {what}='...')")
    return tuple(row[str(name)] for name in wanted.values())


def _picture(value: Any) -> NDArray[Any]:
    """Return inputs as an array; a PIL image becomes [channels, height, width]."""
    array = np.asarray(_plain(value))
    if not hasattr(value, "getbands"):
        return array
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _plain(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
