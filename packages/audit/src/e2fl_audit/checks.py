"""What a reader has to know about a table before its findings: repeats, identifiers, weights."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from e2fl_audit.columns import Roles, plain
from e2fl_audit.files import Flags, Sheet
from e2fl_audit.settings import Settings
from e2fl_audit.table import Grouping
from e2fl_audit.wording import listed, noun, percent

IDENTIFIERS = {"id", "uuid", "guid", "identifier", "ssn", "mrn", "email", "person", "patient"}
WEIGHTS = ("sample_weight", "weight", "weights", "survey_weight", "sampling_weight", "fnlwgt")
MANY = 20  # times as many possible rows as rows: repeats are then no coincidence


def cautions(sheet: Sheet, roles: Roles) -> list[str]:
    """Return what is suspicious about the columns that are not used, and about the rows."""
    sentences = []
    unused = [place for place in range(len(sheet.header)) if place not in roles.positions]
    for place in unused:
        title, words = sheet.header[place].strip(), plain(sheet.header[place])
        if words in WEIGHTS:
            sentences.append(f"Column '{title}' is not used: every row weighs the same.")
        elif IDENTIFIERS & set(words.split("_")):
            sentences += _identifier(title, sheet.cells[place])
    if "y" in roles.values or "y_hat" in roles.values:
        sentences += _repeats(sheet.cells)
    return sentences


def _identifier(title: str, cells: "pd.Series[str]") -> list[str]:
    count, rows = cells.nunique(), len(cells)
    if count == rows or count < 2:
        return []
    return [
        f"Column '{title}' looks like an identifier of persons: {noun(rows, 'row')} are of "
        f"{noun(count, 'person')}. Rows of one person are not independent; pass --client '{title}', "
        "or keep one row of each."
    ]


def _repeats(cells: pd.DataFrame) -> list[str]:
    """Return whether rows are repeated more often than a table with so few columns explains."""
    try:
        counts = np.unique(pd.util.hash_pandas_object(cells, index=False), return_counts=True)[1]
        possible = float(np.prod([float(cells[name].nunique()) for name in cells]))
    except TypeError:  # cells that cannot be compared
        return []
    times, repeats = int(np.gcd.reduce(counts)), len(cells) - len(counts)
    if times > 1 and len(counts) >= 10:
        return [f"Every row occurs {times} times, or a multiple of that: is the table repeated?"]
    if repeats and possible > MANY * len(cells):
        return [f"{noun(repeats, 'row')} of {len(cells):,} are exact repeats of another row."]
    return []


def left_out(
    keep: Flags, frame: pd.DataFrame, groupings: Sequence[Grouping], settings: Settings
) -> list[str]:
    """Return how many rows have no label or prediction, in all and by group."""
    if keep.all():
        return []
    count = f"{(~keep).sum():,} of {len(keep):,} rows"
    sentences = [f"{count} have no label or prediction and were left out."]
    for grouping in groupings if not settings.suppress_below else ():
        share = pd.Series(~keep).groupby(frame[grouping.column].to_numpy()).agg(["sum", "mean"])
        worst = share.sort_values("mean", ascending=False, kind="stable").itertuples()
        names = [*grouping.groups, "unknown"]
        parts = [f"{names[row[0]]} {row[1]:,} ({percent(row[2])})" for row in worst if row[1]]
        sentences.append(f"Left out by {grouping.name}: {listed(parts)}.")
    return sentences
