"""What one cell of a table means: nothing, a number or a word, the same whatever it was read from."""

import math
import re
from typing import Any

import numpy as np

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))  # in any case
BOOLEANS = {"true": "True", "false": "False"}  # in any case
BITS = {"True": "1", "False": "0"}
# Decimal commas, shares and dates: what people mean as numbers, but float() does not read.
ALMOST_NUMBER = re.compile(
    r"[+-]?\d[\d.]*,\d+ ?%?|[+-]?\d+(\.\d+)? ?%|\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}"
)


def is_nothing(value: Any) -> bool:
    """Whether a value says that there is none: None, NaN, or what pandas has for them."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def said(value: Any) -> str:
    """A cell as a word: "" where there is nothing, True or False however these are written, 1 for 1.0."""
    if isinstance(value, str):
        word = value.strip()
    elif isinstance(value, float | np.floating):
        word = str(int(value)) if value.is_integer() else str(value)
    elif isinstance(value, bytes):
        word = value.decode("utf-8", "replace").strip()
    else:
        word = "" if is_nothing(value) else str(value)
    lower = word.lower()
    return "" if lower in MISSING else BOOLEANS.get(lower, word)


def is_number(word: str) -> bool:
    """Whether a word is a number, or nothing."""
    try:
        float(word or 0)
    except ValueError:
        return False
    return True
