"""Labels and predictions into counted cells."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.table import CALIBRATION_BINS, Codes, Numbers, Options, Predictions, compact
from e2fl.auditing.values import MAX_LABELS, LabelCodes, is_missing, number
from e2fl.construct import did_you_mean
from e2fl.errors import DataError


class TextColumn(Protocol):
    """A column of labels or numbers that was read."""

    title: str
    codes: dict[str, int]
    numbers: list[NDArray[np.float64]] | None

    def as_codes(self) -> Codes: ...

    def as_numbers(self) -> Numbers: ...


def build_predictions(
    table: str,
    texts: Mapping[str, TextColumn],
    keep: NDArray[np.bool_],
    client: Codes | None,
    combo: Codes,
    combos: int,
    options: Options,
    notes: list[str],
    clients: int,
) -> Predictions:
    """Return the counted cells of a table with one row per person."""
    labels = LabelCodes()
    truth = _labels(table, texts["y"], labels, keep) if "y" in texts else None
    score = _scores(table, texts, keep, options)
    if score is None:
        predicted = _labels(table, texts["y_hat"], labels, keep)
        positive = _positive(table, labels, options, needed=truth is None)
        _note_spellings(labels, notes)
        if truth is not None:
            _require_common(table, labels, texts, truth, predicted)
        threshold, median = None, False
    else:
        if truth is not None and len(labels.codes) > 2:
            raise DataError(f"{table}: scores need two labels, but '{texts['y'].title}' has {len(labels.codes)}")
        positive = _positive(table, labels, options, needed=True)
        threshold, median = _threshold(table, score, options, notes)
        chosen = score > threshold if median else score >= threshold
        assert positive is not None
        other = next((code for code in range(len(labels.codes)) if code != positive), None)
        predicted = np.where(chosen, positive, labels.code(f"not {labels.names[positive]}") if other is None else other)
    calibration = None
    if score is not None and truth is not None and score.min() >= 0 and score.max() <= 1:
        calibration = _calibration(score, truth == positive, combo, combos)
    size = len(labels.codes)
    columns = [(combo, combos), (predicted, size)]
    columns += [] if truth is None else [(truth, size)]
    columns += [] if client is None else [(client, clients)]
    inverse, parts = compact(*columns)
    return Predictions(
        client=None if client is None else parts[-1],
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


def _labels(table: str, column: TextColumn, labels: LabelCodes, keep: NDArray[np.bool_]) -> Codes:
    if column.numbers is not None:
        raise DataError(f"{table}: column '{column.title}' has more than {MAX_LABELS:,} different values; {_HINT}")
    codes = column.as_codes()[keep]
    present = set(np.unique(codes).tolist())
    texts = list(column.codes)
    fractional = [text for place, text in enumerate(texts) if place in present and number(text, True) % 1 not in (0.0,)]
    fractional = [text for text in fractional if np.isfinite(number(text, True))]
    if fractional:
        raise DataError(f"{table}: column '{column.title}' holds {fractional[0].strip()!r}, not a label; {_HINT}")
    places = np.array([labels.code(text) if place in present else -1 for place, text in enumerate(texts)])
    return places[codes].astype(np.int64)


_HINT = "labels are classes; for a numeric measure of each client, name its column with --score and leave y out"


def _scores(table: str, texts: Mapping[str, TextColumn], keep: NDArray[np.bool_], options: Options) -> Numbers | None:
    """Return scores or probabilities, where predictions are such; None where they are labels."""
    if "y_hat" not in texts:
        return texts["score"].as_numbers()[keep]
    column = texts["y_hat"]
    if column.numbers is None:
        codes = set(np.unique(column.as_codes()[keep]).tolist())
        found = [text for place, text in enumerate(column.codes) if place in codes and not is_missing(text)]
        values = np.array([number(text, True) for text in found])
        if not np.isfinite(values).all():
            if options.threshold is not None:
                raise DataError(f"--threshold: column '{column.title}' of {table} holds labels, not numbers")
            return None
        if (values % 1 == 0).all() and options.threshold is None:
            return None
    score = column.as_numbers()[keep]
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0]) + 1
        raise DataError(f"{table}: row {row} of column '{column.title}' is neither a label nor a number")
    return score


def _threshold(table: str, score: Numbers, options: Options, notes: list[str]) -> tuple[float, bool]:
    if options.threshold is not None:
        notes.append(f"Scores of {options.threshold:g} or more count as predictions of the positive class.")
        return options.threshold, False
    if options.profile == "ll144":
        median = float(np.median(score))
        notes.append(f"A score above the median of all rows ({median:g}) counts as selected: the scoring rate.")
        return median, True
    if score.min() < 0 or score.max() > 1:
        raise DataError(f"{table}: predictions are scores from {score.min():g} to {score.max():g}; pass --threshold")
    notes.append("Predictions are probabilities; 0.5 or more counts as positive. Change this with --threshold.")
    return 0.5, False


def _positive(table: str, labels: LabelCodes, options: Options, needed: bool) -> int | None:
    if options.positive is not None:
        key = LabelCodes.key(options.positive)
        if key not in labels.codes and labels.codes:
            raise DataError(
                f"--positive: {table} has no label '{options.positive}'{did_you_mean(options.positive, labels.names)}"
            )
        return labels.code(options.positive)
    if not labels.codes:
        return labels.code("1")
    found = labels.positive()
    if found is None and needed:
        known = ", ".join(f"'{name}'" for name in labels.names[:6])
        raise DataError(f"{table}: which label is the positive one ({known})? Name it with --positive")
    return found


def _require_common(
    table: str, labels: LabelCodes, texts: Mapping[str, TextColumn], truth: Codes, predicted: Codes
) -> None:
    """Reject labels and predictions that have nothing in common: they are coded differently."""
    one, other = set(np.unique(truth).tolist()), set(np.unique(predicted).tolist())
    if one & other or labels.positive() is not None:
        return
    names = labels.names
    raise DataError(
        f"{table}: '{texts['y'].title}' holds {_some(names, one)} but '{texts['y_hat'].title}' holds "
        f"{_some(names, other)}; they share no label. Use the same labels in both columns"
    )


def _some(names: list[str], codes: set[int]) -> str:
    return ", ".join(f"'{names[code]}'" for code in sorted(codes)[:4])


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
