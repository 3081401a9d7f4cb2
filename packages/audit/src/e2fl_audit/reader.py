"""Reading of a table for an audit; all mistakes are reported at once, with row and column."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from e2fl_audit.checks import cautions, left_out
from e2fl_audit.columns import Header, Roles, choose
from e2fl_audit.errors import AuditError
from e2fl_audit.files import Column, Flags, Sheet, open_table
from e2fl_audit.measures import build_measure
from e2fl_audit.names import name_codes, note_alike
from e2fl_audit.predictions import build_predictions
from e2fl_audit.settings import Settings
from e2fl_audit.table import CROSS, UNKNOWN, Grouping, Mistakes, Rows, Table


def read_table(source: Path | str | pd.DataFrame, settings: Settings) -> Table:
    """Read a file or a DataFrame; all its mistakes are reported at once, with row and column."""
    sheet = open_table(source)
    roles = choose(Header(sheet.name, sheet.header), settings)
    rows = _rows(sheet, roles, settings)
    scored = settings.threshold is not None or settings.ll144
    people = rows.columns.keys() & {"y", "y_hat"} or ("score" in rows.columns and scored)
    return Table(
        name=sheet.name,
        sha256=sheet.sha256,
        rows=len(rows.frame),
        clients=rows.clients,
        groupings=rows.groupings,
        data=build_predictions(rows) if people else build_measure(rows),
        notes=rows.notes,
        cautions=rows.cautions,
    )


def _rows(sheet: Sheet, roles: Roles, settings: Settings) -> Rows:
    if not len(sheet.cells):
        raise AuditError(f"{sheet.name} has a header but no rows")
    mistakes, notes = Mistakes(sheet.name), [*sheet.notes, *roles.notes]
    columns = {role: sheet.column(position) for role, position in roles.values.items()}
    keep = np.ones(len(sheet.cells), np.bool_)
    for role, column in columns.items():
        _check(role, column, settings, keep, mistakes)
    attributes = [sheet.column(position) for position in roles.groups]
    frame, clients = pd.DataFrame(index=range(len(keep))), None
    if roles.client is not None:
        client = sheet.column(roles.client)
        mistakes.rows(client.missing, lambda _: f"has nothing in column '{client.title}'")
        clients, frame["client"] = name_codes(client, [])
    mistakes.stop()
    if not keep.any():
        raise AuditError(f"{sheet.name} has no row with a value in every column that is needed")
    groupings = _groupings(attributes, frame, keep, notes)
    warnings = cautions(sheet, roles) + left_out(keep, frame, groupings, settings)
    kept = {role: column.kept(keep) for role, column in columns.items()}
    frame = frame[keep].reset_index(drop=True)
    crossed = bool(settings.groups) or settings.ll144 or len(attributes) == 2
    if len(attributes) > 1 and crossed:
        groupings.append(_crossed(groupings, frame))
    return Rows(sheet.name, settings, kept, frame, clients, groupings, notes, warnings, mistakes)


def _check(role: str, column: Column, settings: Settings, keep: Flags, mistakes: Mistakes) -> None:
    """Add the mistakes of a column, or drop its rows without a value where that is wanted."""
    if settings.drop_missing and role != "n":
        keep &= ~column.missing
    else:
        hint = "" if role == "n" else "; fill it in, or leave such rows out with --drop-missing"
        mistakes.rows(column.missing, lambda _: f"has nothing in column '{column.title}'{hint}")
    if role in ("y", "y_hat"):
        return
    values = column.numbers
    right = np.isfinite(values) & ((values > 0) & (values <= 1e15) if role == "n" else True)
    kind = "a number above 0 and at most 1e15" if role == "n" else "a number"

    def say(row: int) -> str:
        text = column.values[column.codes[row]].strip()[:60]
        return f"has {text!r} in column '{column.title}'; it must be {kind}"

    mistakes.rows(~column.missing & ~right, say)


def _groupings(
    attributes: Sequence[Column], frame: pd.DataFrame, keep: Flags, notes: list[str]
) -> list[Grouping]:
    """Return a grouping for each attribute; the codes of its groups go to the frame."""
    groupings = []
    for place, attribute in enumerate(attributes):
        names, codes = name_codes(attribute, notes)
        note_alike(attribute.title, names, notes)
        unknown = len(names) if (codes[keep] < 0).any() else None
        groups = names if unknown is None else [*names, UNKNOWN]
        groupings.append(Grouping(attribute.title, groups, f"group{place}", unknown))
        frame[f"group{place}"] = np.where(codes < 0, len(names), codes)
    return groupings


def _crossed(groupings: Sequence[Grouping], frame: pd.DataFrame) -> Grouping:
    """Return the grouping by all attributes at once; a row is unknown if one of them is."""
    columns = [grouping.column for grouping in groupings]
    combinations = frame[columns].drop_duplicates().sort_values(columns)
    names = []
    for codes in combinations.itertuples(index=False, name=None):
        parts = list(zip(groupings, codes, strict=True))
        known = all(code != grouping.unknown for grouping, code in parts)
        crossed = CROSS.join(grouping.groups[code] for grouping, code in parts)
        names.append(crossed if known else UNKNOWN)
    groups = list(dict.fromkeys(name for name in names if name != UNKNOWN))
    unknown = len(groups) if UNKNOWN in names else None
    code_of = {name: code for code, name in enumerate([*groups, UNKNOWN])}
    combination = frame.groupby(columns).ngroup().to_numpy()
    frame["crossed"] = np.array([code_of[name] for name in names])[combination]
    *first, last = [grouping.name for grouping in groupings]
    title = f"{', '.join(first)} and {last}"
    shown = groups if unknown is None else [*groups, UNKNOWN]
    return Grouping(title, shown, "crossed", unknown, crossed=True)
