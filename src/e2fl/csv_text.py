"""CSV that is safe to open in a spreadsheet."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def neutral(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: texts such as '=1+1' get an apostrophe in front.

    Numbers stay as they are, and so do texts that are numbers, such as '-0.5'.
    """
    if isinstance(value, float) and math.isnan(value):
        return ""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as CSV, with a header."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if rows:
        writer.writerow([neutral(key) for key in rows[0]])
        writer.writerows([neutral(value) for value in row.values()] for row in rows)
    return file.getvalue()
