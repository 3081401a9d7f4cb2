"""`e2fl.audit`: the audit of a DataFrame, of arrays or of files, with fairlearn's argument names."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl.auditing.judging import Judging
from e2fl.auditing.reader import read_table
from e2fl.auditing.result import Audit, examine
from e2fl.auditing.table import Options
from e2fl.errors import ConfigError

MAX_RESAMPLES = 100_000
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

    data: a DataFrame, the path of a CSV, Parquet or xlsx file, or several of these to compare. y_true, y_pred,
    sensitive_features, client, score: names of columns, or arrays; columns with usual names (y, y_hat, group, client,
    accuracy, ...) are found without. sensitive_features may hold several features: each is examined alone, then all
    crossed. score: with y_true a score or probability that `threshold` turns into a prediction, otherwise a measure of
    each client, such as AUROC. positive: the label that counts as positive. reference: "best" (the default), "largest",
    or the names of groups that others are compared with. min_n: groups with fewer rows (clients, for a table of
    clients) are shown but not judged; 30 rows or 5 clients by default. suppress_below: groups with fewer are hidden.
    profile: "ll144" for the tables of New York City's Local Law 144.
    """
    _require(profile, unit)
    require_numbers(resamples, threshold, min_n, suppress_below)
    several = isinstance(data, Sequence) and not isinstance(data, str)
    tables: list[Any] = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    given = {"y_true": y_true, "y_pred": y_pred, "client": client, "score": score}
    if not tables:
        raise ConfigError("there is no table to audit")
    if several and not all(value is None or isinstance(value, str) for value in given.values()):
        raise ConfigError("with several tables, name columns instead of passing arrays")
    read = []
    for table in tables:
        frame, names, groups = _columns(table, given, sensitive_features)
        options = Options(
            client=names["client"],
            groups=tuple(groups),
            y=names["y_true"],
            y_hat=names["y_pred"],
            score=names["score"],
            positive=None if positive is None else str(positive),
            threshold=threshold,
            unit=unit,
            lower_is_better=lower_is_better,
            drop_missing=drop_missing,
            profile=profile,
        )
        read.append(read_table(frame, options))
    return examine(read, judging_of(reference, min_n, suppress_below, resamples, seed, profile), profile)


def judging_of(
    reference: str | Sequence[str] | None,
    min_n: int | None,
    suppress_below: int,
    resamples: int,
    seed: int,
    profile: str | None,
) -> Judging:
    """Return the settings of the comparison."""
    names = [] if reference is None else [reference] if isinstance(reference, str) else list(reference)
    special = [name for name in names if name in ("best", "largest")]
    return Judging(
        reference=tuple(str(name) for name in names if name not in ("best", "largest")),
        largest="largest" in special,
        min_n=min_n,
        suppress_below=suppress_below,
        resamples=resamples,
        seed=seed,
        ll144=profile == "ll144",
    )


def _require(profile: str | None, unit: str | None) -> None:
    if profile not in (None, "ll144"):
        raise ConfigError(f"there is no profile '{profile}'; known: ll144")
    if unit not in (None, "percent", "fraction"):
        raise ConfigError(f"unit must be percent or fraction, not '{unit}'")


def require_numbers(resamples: int, threshold: float | None, min_n: int | None, suppress_below: int) -> None:
    """Raise `ConfigError` for a number that no audit can use."""
    if not 50 <= resamples <= MAX_RESAMPLES:
        raise ConfigError(
            f"resamples: at least 50 are needed for an interval, and at most {MAX_RESAMPLES:,} used, not {resamples:,}"
        )
    if threshold is not None and not math.isfinite(threshold):
        raise ConfigError(f"threshold must be a number that scores can reach, not {threshold}")
    if min_n is not None and min_n < 1:
        raise ConfigError(f"min_n must be 1 or more, not {min_n}")
    if suppress_below < 0:
        raise ConfigError(f"suppress_below must be 0 or more, not {suppress_below}")


def _columns(
    data: Any, given: Mapping[str, Any], sensitive_features: Any
) -> tuple[Any, dict[str, str | None], list[str]]:
    """Return the table, with arrays added as columns, and the names of its columns."""
    names: dict[str, str | None] = {}
    added: dict[str, Any] = {}
    for role, value in given.items():
        if value is None or isinstance(value, str):
            names[role] = value
        else:
            names[role], added[role] = role, value
    groups, features = _features(data, sensitive_features)
    added |= features
    if not added:
        if data is None:
            raise ConfigError("pass a table, or y_true and y_pred")
        return data, names, groups
    if data is not None and not isinstance(data, pd.DataFrame):
        raise ConfigError("arrays can be combined with a DataFrame, not with a file")
    frame = pd.DataFrame() if data is None else data.copy(deep=False)
    lengths = {len(value) for value in added.values()} | ({len(frame)} if data is not None else set())
    if len(lengths) > 1:
        raise ConfigError(f"all columns need the same number of rows, not {', '.join(map(str, sorted(lengths)))}")
    for role, value in added.items():
        frame[role] = pd.Series(value).to_numpy() if not isinstance(value, pd.Series) else value.to_numpy()
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
        known = set(map(str, data.columns)) if isinstance(data, pd.DataFrame) else None
        if known is None or all(value in known for value in values) or len(values) != len(data):
            return values, {}
    return ["group"], {"group": pd.Series(values, dtype=object).infer_objects()}
