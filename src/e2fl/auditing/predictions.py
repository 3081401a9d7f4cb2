"""Conversion of labels and predictions into counted cells."""

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.table import CALIBRATION_BINS, Codes, Numbers, Predictions, compact
from e2fl.auditing.values import MAX_LABELS, LabelCodes, Rows, is_missing, number
from e2fl.construct import did_you_mean
from e2fl.errors import DataError


def build_predictions(rows: Rows) -> Predictions:
    """Return the counted cells of a table with one row per person."""
    labels = LabelCodes()
    truth = _labels(rows, "y", labels) if "y" in rows.texts else None
    score = _scores(rows)
    threshold, median = None, False
    if score is None:
        predicted = _labels(rows, "y_hat", labels)
        positive = _positive(rows, labels, needed=truth is None)
        _note_spellings(labels, rows.notes)
        if truth is not None:
            _require_common(rows, labels, truth, predicted)
    else:
        if truth is not None and len(labels.codes) > 2:
            title, count = rows.texts["y"].title, len(labels.codes)
            raise DataError(f"{rows.table}: scores need two labels, but '{title}' has {count}")
        positive = _positive(rows, labels, needed=True)
        threshold, median = _threshold(rows, score)
        chosen = score > threshold if median else score >= threshold
        assert positive is not None
        other = next((code for code in range(len(labels.codes)) if code != positive), None)
        predicted = np.where(chosen, positive, labels.code(f"not {labels.names[positive]}") if other is None else other)
    calibration = None
    if score is not None and truth is not None and score.min() >= 0 and score.max() <= 1:
        calibration = _calibration(score, truth == positive, rows.combo, len(rows.combos))
    size = len(labels.codes)
    columns = [(rows.combo, len(rows.combos)), (predicted, size)]
    columns += [] if truth is None else [(truth, size)]
    columns += [] if rows.client is None else [(rows.client, len(rows.clients or ()))]
    inverse, parts = compact(*columns)
    return Predictions(
        client=None if rows.client is None else parts[-1],
        combo=parts[0],
        truth=None if truth is None else parts[2],
        predicted=parts[1],
        count=np.bincount(inverse).astype(np.float64),
        labels=labels.names,
        positive=positive,
        threshold=threshold,
        above_median=median,
        calibration=calibration,
    )


def _labels(rows: Rows, role: str, labels: LabelCodes) -> Codes:
    column = rows.texts[role]
    if column.numbers is not None:
        raise DataError(f"{rows.table}: column '{column.title}' has more than {MAX_LABELS:,} different values; {_HINT}")
    codes = rows.codes(role)
    present = set(np.unique(codes).tolist())
    places = np.full(len(column.codes), -1)
    for place, text in enumerate(column.codes):
        if place in present:
            value = number(text, True)
            if np.isfinite(value) and value % 1:
                raise DataError(f"{rows.table}: column '{column.title}' holds {text.strip()!r}, not a label; {_HINT}")
            places[place] = labels.code(text)
    return places[codes].astype(np.int64)


_HINT = "labels are classes; for a numeric measure of each client, name its column with --score and leave y out"


def _scores(rows: Rows) -> Numbers | None:
    """Return scores or probabilities, where predictions are such; None where they are labels."""
    if "y_hat" not in rows.texts:
        return rows.numbers("score")
    column, options = rows.texts["y_hat"], rows.options
    if column.numbers is None:
        codes = set(np.unique(rows.codes("y_hat")).tolist())
        found = [text for place, text in enumerate(column.codes) if place in codes and not is_missing(text)]
        values = np.array([number(text, True) for text in found])
        if not np.isfinite(values).all():
            if options.threshold is not None:
                raise DataError(f"--threshold: column '{column.title}' of {rows.table} holds labels, not numbers")
            return None
        if (values % 1 == 0).all() and options.threshold is None:
            return None
    score = rows.numbers("y_hat")
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0]) + 1
        raise DataError(f"{rows.table}: row {row} of column '{column.title}' is neither a label nor a number")
    return score


def _threshold(rows: Rows, score: Numbers) -> tuple[float, bool]:
    options, notes = rows.options, rows.notes
    if options.threshold is not None:
        notes.append(f"Scores of {options.threshold:g} or more count as predictions of the positive class.")
        return options.threshold, False
    if options.profile == "ll144":
        median = float(np.median(score))
        notes.append(f"A score above the median of all rows ({median:g}) counts as selected: the scoring rate.")
        return median, True
    if score.min() < 0 or score.max() > 1:
        reach = f"{score.min():g} to {score.max():g}"
        raise DataError(f"{rows.table}: predictions are scores from {reach}; pass --threshold")
    notes.append("Predictions are probabilities; 0.5 or more counts as positive. Change this with --threshold.")
    return 0.5, False


def _positive(rows: Rows, labels: LabelCodes, needed: bool) -> int | None:
    wanted = rows.options.positive
    if wanted is not None:
        if labels.codes and LabelCodes.key(wanted) not in labels.codes:
            hint = did_you_mean(wanted, labels.names)
            raise DataError(f"--positive: {rows.table} has no label '{wanted}'{hint}")
        return labels.code(wanted)
    if not labels.codes:
        return labels.code("1")
    found = labels.positive()
    if found is None and needed:
        known = ", ".join(f"'{name}'" for name in labels.names[:6])
        raise DataError(f"{rows.table}: which label is the positive one ({known})? Name it with --positive")
    return found


def _require_common(rows: Rows, labels: LabelCodes, truth: Codes, predicted: Codes) -> None:
    """Reject labels and predictions that have nothing in common: they are coded differently."""
    one, other = set(np.unique(truth).tolist()), set(np.unique(predicted).tolist())
    if one & other or labels.positive() is not None:
        return
    some = [", ".join(f"'{labels.names[code]}'" for code in sorted(codes)[:4]) for codes in (one, other)]
    raise DataError(
        f"{rows.table}: '{rows.texts['y'].title}' holds {some[0]} but '{rows.texts['y_hat'].title}' holds "
        f"{some[1]}; they share no label. Use the same labels in both columns"
    )


def _note_spellings(labels: LabelCodes, notes: list[str]) -> None:
    for spellings in labels.spellings:
        if len(spellings) > 1:
            listed = ", ".join(f"'{text}'" for text in spellings[:5])
            notes += [f"The labels {listed} are read as one label."]


def _calibration(score: Numbers, positive: NDArray[np.bool_], combo: Codes, combos: int) -> Numbers:
    cell = combo * CALIBRATION_BINS + np.minimum((score * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    size = combos * CALIBRATION_BINS
    counted = [
        np.bincount(cell, minlength=size),
        np.bincount(cell, weights=score, minlength=size),
        np.bincount(cell, weights=positive, minlength=size),
    ]
    return np.stack(counted).reshape(3, combos, CALIBRATION_BINS).astype(np.float64)
