"""`audit`: the audit of a DataFrame, of arrays or of files, with fairlearn's argument names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit.errors import AuditError
from e2fl_audit.reader import read_table
from e2fl_audit.result import Audit, examine
from e2fl_audit.settings import Settings, names_of

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
        reference=names_of(reference),
        min_n=min_n,
        suppress_below=suppress_below,
        profile=profile,
        unit=unit,
        lower_is_better=lower_is_better,
        drop_missing=drop_missing,
        resamples=resamples,
        seed=seed,
    )
    single = data is None or isinstance(data, pd.DataFrame | Path | str)
    tables: Sequence[Any] = [data] if single else list(data)  # type: ignore[arg-type]
    given = {"y": y_true, "y_hat": y_pred, "client": client, "score": score}
    if not tables:
        raise AuditError("there is no table to audit")
    if not single and not all(value is None or isinstance(value, str) for value in given.values()):
        raise AuditError("with several tables, name columns instead of passing arrays")
    read = []
    for table in tables:
        frame, names, groups = _columns(table, given, sensitive_features)
        chosen = vars(settings) | names | {"groups": tuple(groups)}
        read.append(read_table(frame, Settings(**chosen)))
    return examine(read, settings)


def _columns(
    data: Any, given: Mapping[str, Any], sensitive_features: Any
) -> tuple[Any, dict[str, str | None], list[str]]:
    """Return the table, with arrays added as columns, and the names of its columns."""
    arrays = {
        role: value
        for role, value in given.items()
        if value is not None and not isinstance(value, str)
    }
    names = {role: role if role in arrays else value for role, value in given.items()}
    groups, features = _features(data, sensitive_features)
    arrays |= features
    if not arrays:
        if data is None:
            raise AuditError("pass a table, or y_true and y_pred")
        return data, names, groups
    if data is not None and not isinstance(data, pd.DataFrame):
        raise AuditError("arrays can be combined with a DataFrame, not with a file")
    frame = pd.DataFrame() if data is None else data.copy(deep=False)
    lengths = {len(value) for value in arrays.values()} | (
        {len(frame)} if data is not None else set()
    )
    if len(lengths) > 1:
        counts = ", ".join(map(str, sorted(lengths)))
        raise AuditError(f"all columns need the same number of rows, not {counts}")
    for role, value in arrays.items():
        frame[role] = pd.Series(value).to_numpy()
    return frame, names, groups


def _features(data: Any, given: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the sensitive features, and those that are arrays."""
    if given is None:
        return [], {}
    if isinstance(given, str):
        return [given], {}
    if isinstance(given, pd.Series):
        name = str(given.name) if given.name is not None else "group"
        return [name], {name: given}
    if isinstance(given, pd.DataFrame | Mapping):
        return [str(name) for name in given], {str(name): given[name] for name in given}
    values = list(given)
    if data is not None and values and all(isinstance(value, str) for value in values):
        known = set(map(str, data.columns)) if isinstance(data, pd.DataFrame) else set(values)
        if known.issuperset(values) or len(values) != len(data):
            return values, {}
    return ["group"], {"group": pd.Series(values, dtype=object).infer_objects()}
