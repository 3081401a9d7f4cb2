"""The meaning of one cell: missing, a number or a string, whatever the table was read from."""

import math
import re
from typing import Any

import numpy as np

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))  # in upper or lower case
BOOLEANS = {"true": "True", "false": "False"}  # in upper or lower case
BITS = {"True": "1", "False": "0"}
# Decimal commas, percentages and dates: meant as numbers, but float() does not read them.
ALMOST_NUMBER = re.compile(
    r"[+-]?\d[\d.]*,\d+ ?%?|[+-]?\d+(\.\d+)? ?%|\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}"
)


def is_missing_value(value: Any) -> bool:
    """Return whether a value is None, NaN, or one of pandas' marks for missing values."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_missing_text(text: str) -> bool:
    """Return whether a string is one of the marks for missing values."""
    return text.strip().lower() in MISSING


def as_written(value: Any) -> str:
    """Return a value as a CSV file would have it: "" if it is missing, 1 for 1.0."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if is_missing_value(value):
        return ""
    return str(int(value)) if isinstance(value, float | np.floating) and value.is_integer() else str(value)


def as_text(value: Any) -> str:
    """Return a cell as a string: "" if it is missing, True or False in any spelling, 1 for 1.0."""
    text = as_written(value).strip()
    lower = text.lower()
    return "" if lower in MISSING else BOOLEANS.get(lower, text)


def as_number(text: str) -> float | None:
    """Return the number a string stands for: NaN if it is missing, None if it is not a number."""
    try:
        return float(text or "nan")
    except ValueError:
        return None
