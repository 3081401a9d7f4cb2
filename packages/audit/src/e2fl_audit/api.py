"""`audit` with fairlearn's argument names, and its result: frames for Python, a page, JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit import __version__
from e2fl_audit.clients import client_spread
from e2fl_audit.counting import hide_small
from e2fl_audit.files import write
from e2fl_audit.findings import find
from e2fl_audit.rates import calibration, evaluate, overall
from e2fl_audit.reader import Table, read_table
from e2fl_audit.settings import MIN_CLIENTS, AuditError, Settings


@dataclass
class Audit:
    """The audit of a table.

    `rates` has one row per group and rate, with intervals, differences, ratios and tests;
    `by_group` has one row per group, as in fairlearn's MetricFrame; `clients` has one row per
    client; `sentences` say what was found. Rates are fractions.
    """

    table: Table
    settings: Settings
    command: str = ""

    def __post_init__(self) -> None:
        settings = self.settings
        self.created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        self.table = table = hide_small(self.table, settings.suppress_below)
        self.results = evaluate(table, settings)  # for each grouping, the table of each rate
        self.all_rows = overall(table, settings)  # the rates of all rows together
        self.spread = None if settings.ll144 else client_spread(table, settings)
        self.figures, self.sentences = find(table, self.results, self.all_rows, self.spread)
        self.calibration = calibration(table, settings)
        self.notes = table.notes + [
            f"By {first.grouping.name}, no group has {MIN_CLIENTS} clients or more: differences "
            "between groups cannot be told from differences between clients."
            for first, *_ in self.results
            if first.frame["clients"].max() < MIN_CLIENTS and not table.is_measure
        ]

    @property
    def rates(self) -> pd.DataFrame:
        parts = []
        for table in (table for tables in self.results for table in tables):
            part = table.frame.assign(reference=table.reference)
            part.insert(0, "rate", table.rate.name)
            part.insert(0, "grouping", table.grouping.name)
            parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def by_group(self) -> pd.DataFrame:
        frames = {}
        for tables in self.results:
            columns = {"n": tables[0].frame["n"]}
            columns |= {table.rate.name: table.frame["value"] for table in tables}
            grouping = tables[0].grouping
            frames[grouping.name] = pd.DataFrame(columns).set_axis(grouping.groups)
        return pd.concat(frames, names=["grouping", "group"]) if frames else pd.DataFrame()

    @property
    def overall(self) -> "pd.Series[float]":
        named = {one.rate.name: one.rows[0].value for one in self.all_rows}
        return pd.Series(named, dtype=float, name="overall")

    @property
    def clients(self) -> pd.DataFrame:
        if self.spread is None:
            return pd.DataFrame()
        return self.spread.frame.rename(columns={"value": self.spread.title})

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        spread = self.spread
        values = {
            "e2fl": __version__,
            "created": self.created,
            "command": self.command,
            "settings": asdict(self.settings),
            "name": self.table.name,
            "sha256": self.table.sha256,
            "rows": self.table.rows,
            "clients": None if self.table.clients is None else len(self.table.clients),
            "notes": self.notes,
            "key_figures": [asdict(figure) for figure in self.figures],
            "findings": self.sentences,
            "overall": {one.rate.key: one.rows[0]._asdict() for one in self.all_rows},
            "rates": self.rates.to_dict("records"),
            "calibration": self.calibration.to_dict("records"),
            "client_spread": spread and {"measures": spread.measures, "chance": spread.chance},
            "clients_below_overall": spread.below[:100] if spread else [],
        }
        # Through text: NaN and infinity become None, NumPy's numbers Python's.
        text = json.dumps(values, default=lambda number: number.item())
        return dict(json.loads(text, parse_constant=lambda _: None))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return the page: one self-contained HTML document."""
        from e2fl_audit.page import render

        return render(self)

    def _repr_html_(self) -> str:
        from e2fl_audit.page import notebook

        return notebook(self)

    def save(self, path: Path | str, *, as_json: bool = False) -> Path:
        """Write the page, or JSON if asked for or where the path ends in .json."""
        target = Path(path)
        as_json = as_json or target.suffix.lower() == ".json"
        write(target, self.to_json() if as_json else self.to_html())
        return target


def audit(
    data: pd.DataFrame | Path | str | None = None,
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
    lower_is_better: bool = False,
    drop_missing: bool = False,
    resamples: int = 400,
    seed: int = 0,
) -> Audit:
    """Audit predictions or scores by group and by client.

    data: a DataFrame, or the path of a CSV, Parquet or xlsx file. y_true, y_pred,
    sensitive_features, client, score: names of its columns, or without data arrays; columns with
    usual names (y, y_hat, group, client, accuracy, ...) are found by themselves. Of several
    sensitive features, each is examined alone, then all crossed. score: with y_true a score or
    probability that `threshold` turns into a prediction, otherwise a measure of each client, such
    as AUROC. positive: the label that counts as positive. reference: "best" (the default),
    "largest", or the names of groups that others are compared with. min_n: groups with fewer rows
    (clients, for a table of clients) are shown but not judged; 30 rows or 5 clients by default.
    suppress_below: groups and clients with fewer are hidden. profile: "ll144" for the tables of New
    York City's Local Law 144. drop_missing: leave out rows without a label or prediction.
    """
    settings = Settings(
        positive=None if positive is None else str(positive),
        threshold=threshold,
        reference=(reference,) if isinstance(reference, str) else tuple(map(str, reference or ())),
        min_n=min_n,
        suppress_below=suppress_below,
        profile=profile,
        lower_is_better=lower_is_better,
        drop_missing=drop_missing,
        resamples=resamples,
        seed=seed,
    )
    roles = {"y": y_true, "y_hat": y_pred, "client": client, "score": score}
    features = [sensitive_features] if isinstance(sensitive_features, str) else sensitive_features
    if data is None:
        data, roles, features = _of_arrays(roles, features)
    names = [*roles.values(), *(features if isinstance(features, list | tuple) else [features])]
    if not all(isinstance(name, str | None) for name in names):
        raise AuditError("name columns of the table; add arrays to it, as in frame.assign(p=p)")
    named = replace(settings, groups=tuple(features or ()), **roles)
    return Audit(read_table(data, named), settings)


def _of_arrays(
    roles: Mapping[str, Any], features: Any
) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
    """Return arrays as the columns of a table, and the names of these columns."""
    if isinstance(features, pd.DataFrame | Mapping):
        groups = {str(name): features[name] for name in features}
    else:
        groups = {} if features is None else {str(getattr(features, "name", "group")): features}
    given = {role: value for role, value in roles.items() if value is not None}
    arrays = (given | groups).items()
    columns = {name: pd.Series(value).reset_index(drop=True) for name, value in arrays}
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) != 1:
        what = f"; these have {', '.join(map(str, lengths))}" if lengths else ""
        raise AuditError(f"pass a table, or arrays with the same number of rows{what}")
    return pd.DataFrame(columns), {role: role for role in given}, list(groups)
