"""The role of each column of a table: as named by the user, or recognised by common names."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from e2fl_audit.files import Sheet, plain
from e2fl_audit.settings import AuditError, Settings, did_you_mean
from e2fl_audit.wording import noun, quoted

NAMES: dict[str, Any] = tomllib.loads(
    (files("e2fl_audit") / "names.toml").read_text(encoding="utf-8")
)
OPTIONS: dict[str, str] = NAMES["options"]
SEX, RACE = NAMES["attributes"]["sex"], NAMES["attributes"]["race"]
MANY = 20  # times as many possible rows as rows: repeats are then no coincidence


def choose(sheet: Sheet, settings: Settings) -> tuple[dict[str, str], list[str]]:
    """Return the columns of roles (y, y_hat, score, accuracy, n, client) and of groups.

    It is an error if one is missing.
    """
    values = {
        role: _named(sheet, getattr(settings, role), option)
        for role, option in OPTIONS.items()
        if getattr(settings, role)
    }
    for role, others in NAMES["unless"].items():
        name = None if values.keys() & set(others) else _alias(sheet, role)
        if name is not None:
            values[role] = name
    if not values.keys() & {"y_hat", "score", "accuracy"}:
        what = "y_hat" if "y" in values else "accuracy"
        raise AuditError(
            f"{sheet.name} has no column '{what}'{did_you_mean(what, [*sheet.cells][:40])}. An "
            "audit needs one of two forms: one row per person needs predictions (y_hat; name the "
            "column with --y-hat or --score) and labels (y), one row per client needs accuracy, or "
            "another measure named with --score"
        )
    named = dict.fromkeys(_named(sheet, name, "--group") for name in settings.groups)
    used = [*(name for role, name in values.items() if role != "client"), *named]
    for name in used:
        if used.count(name) > 1:
            what = f"column '{name}' is used twice, such as for label and group"
            raise AuditError(f"{sheet.name}: {what}; name another one")
    return values, list(named or _usual_groups(sheet, settings))


def _named(sheet: Sheet, name: str, option: str) -> str:
    """Return the column of this name, which the user gave with an option."""
    if plain(name) not in sheet.columns:
        hint = did_you_mean(name, [*sheet.cells][:200])
        raise AuditError(f"{option}: {sheet.name} has no column '{name}'{hint}")
    return sheet.columns[plain(name)]


def _known(sheet: Sheet, *names: str) -> list[str]:
    return [sheet.columns[name] for name in names if name in sheet.columns]


def _alias(sheet: Sheet, role: str) -> str | None:
    """Return the column whose name means this role. The first alias wins over all others."""
    first, *others = NAMES["aliases"][role]
    names = _known(sheet, first) or _known(sheet, *others)
    if len(names) > 1:
        what = f"columns {quoted(names)} both match; choose one"
        raise AuditError(f"{sheet.name}: {what} with {OPTIONS.get(role, '--score')}")
    return names[0] if names else None


def _usual_groups(sheet: Sheet, settings: Settings) -> list[str]:
    """Return the columns that usually make groups."""
    if settings.ll144:
        for part in (SEX, RACE):
            if not _known(sheet, *part):
                what = f"--profile ll144: {sheet.name} has no column '{part[0]}'"
                raise AuditError(f"{what}; name both, as in --group gender,ethnicity")
        return [_known(sheet, *part)[0] for part in (SEX, RACE)]
    groups, others = NAMES["attributes"]["group"], NAMES["attributes"]["others"]
    names = _known(sheet, *groups, *SEX, *RACE, *others)
    if set(map(plain, names)) - {groups[0]}:
        what = f"Groups were taken from the columns {quoted(names)}"
        sheet.notes.append(f"{what}; choose others with --group.")
    return names


def cautions(sheet: Sheet, roles: Mapping[str, str], groups: Sequence[str]) -> list[str]:
    """Return what is suspicious about the columns that are not used, and about the rows."""
    sentences, rows = [], len(sheet.cells)
    used = {*roles.values(), *groups}
    weights, identifiers = (NAMES["attributes"][kind] for kind in ("weights", "identifiers"))
    for name in (name for name in sheet.columns.values() if name not in used):
        if plain(name) in weights:
            sentences.append(f"Column '{name}' is not used: every row weighs the same.")
        elif set(identifiers) & set(plain(name).split("_")):
            persons = sheet.cells[name].nunique()
            if 1 < persons < rows:
                sentences.append(
                    f"Column '{name}' looks like an identifier of persons: {noun(rows, 'row')} "
                    f"are of {noun(persons, 'person')}. Rows of one person are not independent; "
                    f"pass --client '{name}', or keep one row of each."
                )
    return sentences + (_repeats(sheet.cells) if roles.keys() & {"y", "y_hat"} else [])


def _repeats(cells: pd.DataFrame) -> list[str]:
    """Return whether rows are repeated more often than a table with so few columns explains."""
    try:
        counts = pd.util.hash_pandas_object(cells, index=False).value_counts()
    except TypeError:  # lists in cells cannot be compared
        return []
    times, repeats = int(np.gcd.reduce(counts)), len(cells) - len(counts)
    if times > 1 and len(counts) >= 10:
        return [f"Every row occurs {times} times, or a multiple of that: is the table repeated?"]
    values = cells.nunique().to_numpy(float)
    if repeats and (2 * values.max() > len(cells) or values.prod() > MANY * len(cells)):
        return [f"{noun(repeats, 'row')} of {len(cells):,} are exact repeats of another row."]
    return []
