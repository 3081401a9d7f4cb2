"""The role of each column of a table: as named by the user, or recognised by common names."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from e2fl_audit.files import Sheet, plain
from e2fl_audit.settings import AuditError, Settings, did_you_mean
from e2fl_audit.wording import noun

ALIASES = {
    "client": "client client_id user user_id site site_id clinic hospital node device",
    "y": "y y_true label labels target truth true_label actual ground_truth outcome",
    "y_hat": "y_hat yhat y_pred ypred pred prediction predictions predicted predicted_label "
    "decision selected hired",
    "score": "score y_score y_prob proba prob probability predicted_probability",
    "accuracy": "accuracy acc",
    "n": "n count n_test examples num_examples support",
}
OPTIONS = {"client": "--client", "y": "--y", "y_hat": "--y-hat"}  # --score for the others
GROUPS = ("group", "sensitive_feature", "sensitive_features")
SEX = ("sex", "gender")
RACE = ("race", "ethnicity", "race_ethnicity", "race/ethnicity")
PROTECTED = (*SEX, *RACE, "age_group", "disability", "religion", "nationality")
IDENTIFIERS = {"id", "uuid", "guid", "identifier", "ssn", "mrn", "email", "person", "patient"}
WEIGHTS = ("sample_weight", "weight", "weights", "survey_weight", "sampling_weight", "fnlwgt")
MANY = 20  # times as many possible rows as rows: repeats are then no coincidence


@dataclass
class Roles:
    """The position of each column that is used."""

    values: dict[str, int]  # of y, y_hat, score, accuracy, n and client, where there are such
    groups: list[int]


class _Header:
    """The names of the columns of a table."""

    def __init__(self, table: str, names: Sequence[str]):
        self.table, self.names = table, list(names)
        self.positions: dict[str, list[int]] = defaultdict(list)
        for position, name in enumerate(names):
            self.positions[plain(name)].append(position)

    def known(self, *names: str) -> list[str]:
        return [name for name in names if name in self.positions]

    def named(self, name: str, option: str = "") -> int:
        """Return the column of this name, which the user gave with an option."""
        positions = self.positions.get(plain(name), [])
        exact = [position for position in positions if self.names[position] == name]
        if not positions:
            hint = did_you_mean(name, filter(str.strip, self.names[:200]))
            raise AuditError(f"{option}: {self.table} has no column '{name}'{hint}")
        if len(exact or positions) > 1:
            twice = self.names[positions[0]]
            raise AuditError(f"{self.table} has two columns '{twice}'; rename one")
        return (exact or positions)[0]

    def alias(self, role: str) -> int | None:
        """Return the column whose name means this role. The first alias wins over all others."""
        first, *others = ALIASES[role].split()
        names = self.known(first) or self.known(*others)
        if len(names) > 1:
            quoted = ", ".join(f"'{name}'" for name in names)
            option = OPTIONS.get(role, "--score")
            raise AuditError(f"{self.table}: columns {quoted} both match; choose one with {option}")
        return self.named(names[0]) if names else None


def choose(sheet: Sheet, settings: Settings) -> Roles:
    """Return the columns to read, or raise an error that says which one is missing."""
    header = _Header(sheet.name, sheet.header)
    given = {role: getattr(settings, role) for role in ("client", "y", "y_hat", "score")}
    values = {
        role: header.named(name, OPTIONS.get(role, "--score"))
        for role, name in given.items()
        if name
    }
    unless = {  # a column is looked for unless there is one of these already
        "client": {"client"},
        "y": {"y"},
        "y_hat": {"y_hat", "score"},
        "accuracy": {"y", "y_hat", "score"},
        "score": {"y_hat", "score", "accuracy"},
        "n": {"y", "y_hat"},
    }
    for role, others in unless.items():
        position = None if values.keys() & others else header.alias(role)
        if position is not None:
            values[role] = position
    if not values.keys() & {"y_hat", "score", "accuracy"}:
        what = "y_hat" if "y" in values else "accuracy"
        hint = did_you_mean(what, [name.strip() for name in header.names[:40]])
        raise AuditError(
            f"{sheet.name} has no column '{what}'{hint}. An audit needs one of two forms: one row "
            "per person needs predictions (y_hat; name the column with --y-hat or --score) and "
            "labels (y), one row per client needs accuracy, or another measure named with --score"
        )
    return Roles(values, _groups(header, settings, sheet.notes))


def _groups(header: _Header, settings: Settings, notes: list[str]) -> list[int]:
    if settings.groups:
        positions = [header.named(name, "--group") for name in settings.groups]
        if len(set(positions)) < len(positions):
            raise AuditError("--group names one column twice")
        return positions
    names = header.known(*GROUPS, *PROTECTED)
    if settings.ll144:
        for part in (SEX, RACE):
            if not header.known(*part):
                missing = f"--profile ll144: {header.table} has no column '{part[0]}'"
                raise AuditError(f"{missing}; name both, as in --group gender,ethnicity")
        names = [header.known(*part)[0] for part in (SEX, RACE)]
    elif len(names) > 1 or (names and names[0] not in GROUPS):
        quoted = ", ".join(f"'{header.names[header.named(name)].strip()}'" for name in names)
        notes.append(f"Groups were taken from the columns {quoted}; choose others with --group.")
    return [header.named(name) for name in names]


def cautions(sheet: Sheet, roles: Roles) -> list[str]:
    """Return what is suspicious about the columns that are not used, and about the rows."""
    sentences = []
    for position, name in enumerate(sheet.header):
        title, words = name.strip(), plain(name)
        if position in (*roles.values.values(), *roles.groups):
            continue
        if words in WEIGHTS:
            sentences.append(f"Column '{title}' is not used: every row weighs the same.")
        elif IDENTIFIERS & set(words.split("_")):
            persons, rows = sheet.cells[position].nunique(), len(sheet.cells)
            if 1 < persons < rows:
                sentences.append(
                    f"Column '{title}' looks like an identifier of persons: {noun(rows, 'row')} "
                    f"are of {noun(persons, 'person')}. Rows of one person are not independent; "
                    f"pass --client '{title}', or keep one row of each."
                )
    return sentences + (_repeats(sheet.cells) if roles.values.keys() & {"y", "y_hat"} else [])


def _repeats(cells: pd.DataFrame) -> list[str]:
    """Return whether rows are repeated more often than a table with so few columns explains."""
    try:
        counts = np.unique(pd.util.hash_pandas_object(cells, index=False), return_counts=True)[1]
        possible = math.prod(float(cells[name].nunique()) for name in cells)
    except TypeError:  # cells that cannot be compared
        return []
    times, repeats = int(np.gcd.reduce(counts)), len(cells) - len(counts)
    if times > 1 and len(counts) >= 10:
        return [f"Every row occurs {times} times, or a multiple of that: is the table repeated?"]
    if repeats and possible > MANY * len(cells):
        return [f"{noun(repeats, 'row')} of {len(cells):,} are exact repeats of another row."]
    return []
