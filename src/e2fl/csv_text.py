"""CSV that is safe to open in a spreadsheet."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def neutral(value: Any, *, formatted: bool = True) -> Any:
    """Return a cell that no spreadsheet runs as a formula: strings such as '=1+1' get an apostrophe in front.

    Numbers stay as they are, and so do strings that are numbers, such as '-0.5', unless formatted is False: then
    numbers are never strings, and '-0.5' is a name. `plain` undoes it.
    """
    if (
        not isinstance(value, str)
        or not _begins_formula(value)
        or (formatted and _is_number(value))
    ):
        return value
    return f"'{value}"


def plain(text: str) -> str:
    """Return the string that `neutral` changed."""
    return text[1:] if text.startswith("'") and _begins_formula(text) else text


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as CSV, with a header; NaN is an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if rows:
        writer.writerow([neutral(key) for key in rows[0]])
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return file.getvalue()


def _begins_formula(text: str) -> bool:
    return text.lstrip("'").startswith(FORMULA)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and math.isnan(value) else neutral(value)
