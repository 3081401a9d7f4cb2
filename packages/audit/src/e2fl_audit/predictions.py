"""Conversion of labels and predictions into counted cells."""

import numpy as np
import pandas as pd

from e2fl_audit.errors import AuditError, did_you_mean
from e2fl_audit.files import Codes, Column, Numbers, as_number
from e2fl_audit.names import Labels
from e2fl_audit.table import Predictions, Rows

MAX_LABELS = 1000
FOREIGN = 0.05  # share of predictions that may be of classes without a label
BINS = 10
_HINT = (
    "labels are classes; for a numeric measure of each client, name its column with --score and "
    "leave y out"
)


def build_predictions(rows: Rows) -> Predictions:
    """Return the counted cells of a table with one row per person."""
    labels = Labels()
    truth = _codes(rows, rows.columns["y"], labels) if "y" in rows.columns else None
    score = _scores(rows)
    if score is None:
        predicted = _codes(rows, rows.columns["y_hat"], labels)
        positive = _positive(rows, labels, needed=truth is None)
        _note_spellings(labels, rows.notes)
        if positive is None and len(labels.names) == 2:
            one, other = labels.names
            rows.cautions.append(
                f"It is not known whether '{one}' or '{other}' is the positive label, so selection "
                f"rates and true and false positive rates are not shown; name it, as in --positive "
                f"'{other}'."
            )
        if truth is not None:
            _require_common(rows, labels, truth, predicted)
    else:
        if truth is not None and len(labels.names) > 2:
            title, count = rows.columns["y"].title, len(labels.names)
            raise AuditError(f"{rows.table}: scores need two labels, but '{title}' has {count}")
        positive = _positive(rows, labels, needed=True)
        assert positive is not None
        predicted = np.where(_chosen(rows, score), positive, _other(labels, positive))
    frame = rows.frame.assign(predicted=predicted)
    if truth is not None:
        frame["truth"] = truth
    keys = list(frame.columns)
    cells = frame.groupby(keys).size().rename("count").reset_index()
    bins = None
    if score is not None and truth is not None and score.min() >= 0 and score.max() <= 1:
        bins = _bins(rows, score, truth == positive)
    return Predictions(cells, labels.names, positive, bins)


def _codes(rows: Rows, column: Column, labels: Labels) -> Codes:
    if len(column.values) > MAX_LABELS:
        many = f"column '{column.title}' has more than {MAX_LABELS:,} different values"
        raise AuditError(f"{rows.table}: {many}; {_HINT}")
    for text in column.values:
        value = as_number(text, decimal_comma=True)
        if np.isfinite(value) and value % 1:
            what = f"column '{column.title}' holds {text.strip()!r}, not a label"
            raise AuditError(f"{rows.table}: {what}; {_HINT}")
    return np.array([labels.code(text) for text in column.values], np.int64)[column.codes]


def _other(labels: Labels, positive: int) -> int:
    """Return the label that is not the positive one."""
    others = [code for code in range(len(labels.names)) if code != positive]
    return others[0] if others else labels.code(f"not {labels.names[positive]}")


def _scores(rows: Rows) -> Numbers | None:
    """Return scores or probabilities, where predictions are such; None where they are labels."""
    if "y_hat" not in rows.columns:
        return rows.columns["score"].numbers
    column, threshold = rows.columns["y_hat"], rows.settings.threshold
    values = np.array([as_number(text, decimal_comma=True) for text in column.values])
    if len(values) <= MAX_LABELS:
        if not np.isfinite(values).all():
            if threshold is None:
                return None
            what = f"column '{column.title}' of {rows.table} holds labels, not numbers"
            raise AuditError(f"--threshold: {what}")
        if (values % 1 == 0).all() and threshold is None:
            return None
    score = column.numbers
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0]) + 1
        what = f"row {row} of column '{column.title}' is neither a label nor a number"
        raise AuditError(f"{rows.table}: {what}")
    return score


def _chosen(rows: Rows, score: Numbers) -> "np.typing.NDArray[np.bool_]":
    """Return which scores count as predictions of the positive class."""
    threshold, notes = rows.settings.threshold, rows.notes
    if threshold is not None:
        notes.append(f"Scores of {threshold:g} or more count as predictions of the positive class.")
        return score >= threshold
    if rows.settings.ll144:
        median = float(np.median(score))
        what = f"A score above the median of all rows ({median:g}) counts as selected"
        notes.append(f"{what}: the scoring rate.")
        return score > median
    if score.min() < 0 or score.max() > 1:
        reach = f"{score.min():g} to {score.max():g}"
        raise AuditError(f"{rows.table}: predictions are scores from {reach}; pass --threshold")
    notes.append(
        "Predictions are probabilities; 0.5 or more counts as positive. Change it with --threshold."
    )
    return score >= 0.5


def _positive(rows: Rows, labels: Labels, needed: bool) -> int | None:
    wanted = rows.settings.positive
    if wanted is not None:
        if labels.names and labels.key(wanted) not in labels.spellings:
            hint = did_you_mean(wanted, labels.names)
            raise AuditError(f"--positive: {rows.table} has no label '{wanted}'{hint}")
        return labels.code(wanted)
    if not labels.names:
        return labels.code("1")
    positive = labels.positive()
    if positive is None and needed:
        known = ", ".join(f"'{name}'" for name in labels.names[:6])
        question = f"which label is the positive one ({known})"
        raise AuditError(f"{rows.table}: {question}? Name it with --positive")
    return positive


def _require_common(rows: Rows, labels: Labels, truth: Codes, predicted: Codes) -> None:
    """Reject predictions of classes that never occur among the labels: they are coded otherwise.

    A class may be missing among many labels by chance; a class of two may if all labels are one.
    """
    one, other = set(np.unique(truth).tolist()), set(np.unique(predicted).tolist())
    foreign = sorted(other - one)
    share = float(np.isin(predicted, foreign).mean())
    coded_alike = len(one | other) <= 2 and (one & other or labels.positive() is not None)
    if not foreign or coded_alike:
        return

    def named(codes: set[int] | list[int]) -> str:
        return ", ".join(f"'{labels.names[code]}'" for code in sorted(codes)[:4])

    titles = rows.columns["y"].title, rows.columns["y_hat"].title
    if len(one) > 2 and share <= FOREIGN:
        count = f"{np.isin(predicted, foreign).sum():,} predictions"
        rows.cautions.append(
            f"{count} are of classes that never occur in '{titles[0]}' ({named(foreign)})."
        )
        return
    what = (
        "share no label" if not one & other else f"{named(foreign)} never occurs in '{titles[0]}'"
    )
    raise AuditError(
        f"{rows.table}: '{titles[0]}' holds {named(one)} but '{titles[1]}' holds {named(other)}; "
        f"{what}. Use the same labels in both columns"
    )


def _note_spellings(labels: Labels, notes: list[str]) -> None:
    for spellings in labels.spellings.values():
        if len(spellings) > 1:
            listed = ", ".join(f"'{text}'" for text in spellings[:5])
            notes.append(f"The labels {listed} are read as one label.")


def _bins(rows: Rows, score: Numbers, positive: "np.typing.NDArray[np.bool_]") -> pd.DataFrame:
    """Return the number of rows, the sum of scores and the positives of each group and tenth."""
    tenth = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    frame = rows.frame[rows.keys].assign(bin=tenth, n=1.0, score=score, positives=positive * 1.0)
    return frame.groupby([*rows.keys, "bin"])[["n", "score", "positives"]].sum().reset_index()
