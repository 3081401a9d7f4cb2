"""`audit`: the audit of a DataFrame, of arrays or of files, with fairlearn's argument names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit.clients import client_spread, compare
from e2fl_audit.findings import find
from e2fl_audit.rates import calibration, evaluate, overall
from e2fl_audit.reader import Table, read_table
from e2fl_audit.result import Audit, TableAudit
from e2fl_audit.settings import MIN_CLIENTS, AuditError, Settings

Data = pd.DataFrame | Path | str


def audit(
    data: "Data | Sequence[Data] | None" = None,
    *,
    y_true: Any = None,
    y_pred: Any = None,
    sensitive_features: Any = None,
    client: Any = None,
    score: Any = None,
    positive: Any = None,
    threshold: float | None = None,
    reference: str | Sequence[str] | None = None,
    min_n: int | None = None,
    suppress_below: int = 0,
    profile: str | None = None,
    unit: str | None = None,
    lower_is_better: bool = False,
    drop_missing: bool = False,
    resamples: int = 400,
    seed: int = 0,
) -> Audit:
    """Audit predictions or scores by group and by client.

    data: a DataFrame, the path of a CSV, Parquet or xlsx file, or several of these to compare.
    y_true, y_pred, sensitive_features, client, score: names of columns, or arrays; columns with
    usual names (y, y_hat, group, client, accuracy, ...) are found without. sensitive_features may
    hold several features: each is examined alone, then all crossed. score: with y_true a score or
    probability that `threshold` turns into a prediction, otherwise a measure of each client, such as
    AUROC. positive: the label that counts as positive. reference: "best" (the default), "largest",
    or the names of groups that others are compared with. min_n: groups with fewer rows (clients, for
    a table of clients) are shown but not judged; 30 rows or 5 clients by default. suppress_below:
    groups with fewer are hidden. profile: "ll144" for the tables of New York City's Local Law 144.
    unit: "percent" or "fraction", for accuracies; inferred by default. drop_missing: leave out rows
    without a label or prediction.
    """
    settings = Settings(
        positive=None if positive is None else str(positive),
        threshold=threshold,
        reference=(reference,) if isinstance(reference, str) else tuple(reference or ()),
        min_n=min_n,
        suppress_below=suppress_below,
        profile=profile,
        unit=unit,
        lower_is_better=lower_is_better,
        drop_missing=drop_missing,
        resamples=resamples,
        seed=seed,
    )
    given = {"y": y_true, "y_hat": y_pred, "client": client, "score": score}
    several = not (data is None or isinstance(data, pd.DataFrame | Path | str))
    tables: Sequence[Any] = list(data) if several else [data]  # type: ignore[arg-type]
    if not tables:
        raise AuditError("there is no table to audit")
    read = []
    for table in tables:
        frame, names = _with_arrays(table, given, sensitive_features, several)
        read.append(read_table(frame, replace(settings, **names)))
    return examine(read, settings)


def _with_arrays(
    data: Any, given: Mapping[str, Any], sensitive_features: Any, several: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the table, with arrays added as columns, and the names of its columns."""
    arrays = {role: value for role, value in given.items() if not isinstance(value, str | None)}
    names = {role: role if role in arrays else value for role, value in given.items()}
    groups, features = _features(data, sensitive_features)
    arrays |= features
    if arrays and several:
        raise AuditError("with several tables, name columns instead of passing arrays")
    if data is None and not arrays:
        raise AuditError("pass a table, or y_true and y_pred")
    if arrays and not (data is None or isinstance(data, pd.DataFrame)):
        raise AuditError("arrays can be combined with a DataFrame, not with a file")
    if arrays:
        columns = {role: pd.Series(value).reset_index(drop=True) for role, value in arrays.items()}
        columns |= {} if data is None else dict(data.reset_index(drop=True).items()) | columns
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            counts = ", ".join(map(str, sorted(lengths)))
            raise AuditError(f"all columns need the same number of rows, not {counts}")
        data = pd.DataFrame(columns)
    return data, names | {"groups": tuple(groups)}


def _features(data: Any, given: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the sensitive features, and those that are arrays."""
    if given is None or isinstance(given, str):
        return [given] if given else [], {}
    if isinstance(given, pd.Series):
        given = {"group" if given.name is None else given.name: given}
    if isinstance(given, pd.DataFrame | Mapping):
        return [str(name) for name in given], {str(name): given[name] for name in given}
    values = list(given)
    if data is not None and values and all(isinstance(value, str) for value in values):
        known = data.columns if isinstance(data, pd.DataFrame) else values
        if set(values) <= set(map(str, known)) or len(values) != len(data):
            return values, {}
    return ["group"], {"group": pd.Series(values, dtype=object).infer_objects()}


def examine(tables: Sequence[Table], settings: Settings) -> Audit:
    """Audit tables that were read; each further one is compared with the first."""
    audits = [_examine_one(table, settings) for table in tables]
    comparisons = []
    for one in audits[1:]:
        comparison = compare(tables[0], one.table, settings.suppress_below)
        if comparison is not None:
            comparisons.append(comparison)
            continue
        why = "both tables need clients, and the same measure of them"
        one.sentences.append(f"Not compared with {tables[0].name}: {why}.")
    return Audit(audits, comparisons, settings)


def _examine_one(table: Table, settings: Settings) -> TableAudit:
    results, everything = evaluate(table, settings), overall(table, settings)
    spread = None
    if not settings.ll144:
        spread = client_spread(table, settings.suppress_below, settings.seed)
    figures, sentences = find(table, results, everything, spread)
    notes = [
        f"By {first.grouping.name}, no group has {MIN_CLIENTS} clients or more: differences between "
        "groups cannot be told from differences between clients."
        for first, *_ in results
        if first.frame["clients"].max() < MIN_CLIENTS and not table.is_measure
    ]
    return TableAudit(
        table=table,
        results=results,
        overall=everything,
        spread=spread,
        figures=figures,
        sentences=sentences,
        calibration=calibration(table, settings),
        notes=[*table.notes, *notes],
    )
