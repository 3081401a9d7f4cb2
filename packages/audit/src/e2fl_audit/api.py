"""`audit` with fairlearn's argument names, and its result: frames for Python, a page, JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit import __version__
from e2fl_audit.clients import ClientSpread, Comparison, client_spread, compare
from e2fl_audit.counting import RateTable
from e2fl_audit.findings import Figure, find
from e2fl_audit.rates import calibration, evaluate, overall
from e2fl_audit.reader import Table, read_table
from e2fl_audit.settings import MIN_CLIENTS, AuditError, Settings

Data = pd.DataFrame | Path | str


@dataclass
class TableAudit:
    """What was found in one table."""

    table: Table
    results: list[list[RateTable]]  # for each grouping, the table of each rate
    overall: list[RateTable]
    spread: ClientSpread | None
    figures: list[Figure]
    sentences: list[str]
    calibration: pd.DataFrame
    notes: list[str]

    @property
    def rates(self) -> pd.DataFrame:
        """One row per grouping, group and rate."""
        parts = []
        for table in (table for tables in self.results for table in tables):
            part = table.frame.assign(reference=table.reference)
            part.insert(0, "rate", table.rate.name)
            part.insert(0, "grouping", table.grouping.name)
            parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def clients(self) -> pd.DataFrame:
        """One row per client."""
        if self.spread is None:
            return pd.DataFrame()
        return self.spread.frame.rename(columns={"value": self.spread.title})

    def to_dict(self) -> dict[str, Any]:
        table, spread = self.table, self.spread
        groupings = [
            {"name": tables[0].grouping.name, "rates": [_rate_dict(one) for one in tables]}
            for tables in self.results
        ]
        clients: dict[str, Any] | None = None
        if spread is not None:
            clients = {"measures": spread.measures, "chance": spread.chance}
            clients["below_overall"] = spread.below[:100]
        return {
            "name": table.name,
            "sha256": table.sha256,
            "rows": table.rows,
            "clients": None if table.clients is None else len(table.clients),
            "notes": self.notes,
            "key_figures": [asdict(figure) for figure in self.figures],
            "findings": self.sentences,
            "overall": {one.rate.key: one.rows[0]._asdict() for one in self.overall},
            "groupings": groupings,
            "calibration": self.calibration.to_dict("records"),
            "client_spread": clients,
        }


@dataclass
class Audit:
    """The audit of one or more tables.

    `rates` has one row per group and rate, with intervals, differences, ratios and tests;
    `by_group` has one row per group, as in fairlearn's MetricFrame; `clients` has one row per
    client. Rates are fractions. All frames are about the first table; `tables` holds the others.
    """

    tables: list[TableAudit]
    comparisons: list[Comparison]
    settings: Settings
    command: str = ""
    created: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    about: dict[str, str] = field(default_factory=dict)  # system, purpose, auditor

    @property
    def sentences(self) -> list[str]:
        """What was found, in words; the comparison of tables first."""
        sentences = [comparison.text() for comparison in self.comparisons]
        for one in self.tables:
            prefix = f"{one.table.name}: " if len(self.tables) > 1 else ""
            sentences += [prefix + sentence for sentence in one.sentences]
        return sentences

    @property
    def rates(self) -> pd.DataFrame:
        return self.tables[0].rates

    @property
    def by_group(self) -> pd.DataFrame:
        frames = {}
        for first, *others in self.tables[0].results:
            columns = {"n": first.frame["n"]}
            columns |= {table.rate.name: table.frame["value"] for table in (first, *others)}
            frame = pd.DataFrame(columns).set_axis(first.grouping.groups)
            frames[first.grouping.name] = frame
        return pd.concat(frames, names=["grouping", "group"]) if frames else pd.DataFrame()

    @property
    def overall(self) -> "pd.Series[float]":
        named = {one.rate.name: one.rows[0].value for one in self.tables[0].overall}
        return pd.Series(named, dtype=float, name="overall")

    @property
    def clients(self) -> pd.DataFrame:
        return self.tables[0].clients

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        values = {
            "e2fl": __version__,
            "created": self.created,
            "command": self.command,
            "profile": self.settings.profile,
            "about": self.about,
            "settings": asdict(self.settings),
            "comparisons": [asdict(one) | {"text": one.text()} for one in self.comparisons],
            "tables": [one.to_dict() for one in self.tables],
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

    def save(self, path: Path | str) -> Path:
        """Write the page, or JSON where the path ends in .json."""
        from e2fl_audit.output import write

        target = Path(path)
        write(target, self.to_json() if target.suffix.lower() == ".json" else self.to_html())
        return target


def _rate_dict(table: RateTable) -> dict[str, Any]:
    about = {"key": table.rate.key, "title": table.rate.title, "reference": table.reference}
    return about | {"groups": [row._asdict() for row in table.rows]}


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
    probability that `threshold` turns into a prediction, otherwise a measure of each client, such
    as AUROC. positive: the label that counts as positive. reference: "best" (the default),
    "largest", or the names of groups that others are compared with. min_n: groups with fewer rows
    (clients, for a table of clients) are shown but not judged; 30 rows or 5 clients by default.
    suppress_below: groups with fewer are hidden. profile: "ll144" for the tables of New York City's
    Local Law 144. unit: "percent" or "fraction", for accuracies; inferred by default. drop_missing:
    leave out rows without a label or prediction.
    """
    settings = Settings(
        positive=None if positive is None else str(positive),
        threshold=threshold,
        reference=(reference,) if isinstance(reference, str) else tuple(map(str, reference or ())),
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
    data: Any, given: Mapping[str, Any], features: Any, several: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the table, with arrays added as columns, and the names of its columns."""
    names = {role: role if _is_array(value) else value for role, value in given.items()}
    arrays = {role: value for role, value in given.items() if _is_array(value)}
    if isinstance(features, pd.Series):
        features = {"group" if features.name is None else features.name: features}
    elif _is_array(features) and not isinstance(features, pd.DataFrame | Mapping):
        features = [*features]
        texts = data is not None and all(isinstance(name, str) for name in features)
        known = set(data.columns) if isinstance(data, pd.DataFrame) else set(features)
        named = texts and (known.issuperset(features) or len(features) != len(data))
        features = dict.fromkeys(features) if named else {"group": features}
    features = {features: None} if isinstance(features, str) else features
    groups = {} if features is None else {str(name): features[name] for name in features}
    arrays |= {name: value for name, value in groups.items() if value is not None}
    if arrays and (several or isinstance(data, Path | str)):
        raise AuditError("arrays can be combined with one DataFrame; otherwise name columns")
    if data is None and not arrays:
        raise AuditError("pass a table, or y_true and y_pred")
    if arrays:
        columns: dict[Any, Any] = {}
        if data is not None:
            columns |= dict(data.reset_index(drop=True).items())
        columns |= {name: pd.Series(value).reset_index(drop=True) for name, value in arrays.items()}
        lengths = sorted({len(column) for column in columns.values()})
        if len(lengths) > 1:
            counts = ", ".join(map(str, lengths))
            raise AuditError(f"all columns need the same number of rows, not {counts}")
        data = pd.DataFrame(columns)
    return data, names | {"groups": tuple(groups)}


def _is_array(value: Any) -> bool:
    return not isinstance(value, str | None)


def examine(tables: Sequence[Table], settings: Settings) -> Audit:
    """Audit tables that were read; each further one is compared with the first."""
    audits = [_examine_one(table, settings) for table in tables]
    comparisons = []
    for one in audits[1:]:
        comparison = compare(tables[0], one.table, settings.suppress_below)
        if comparison is not None:
            comparisons.append(comparison)
            continue
        why = "both tables need the same clients, and the same measure of them"
        one.sentences.append(f"Not compared with {tables[0].name}: {why}.")
    return Audit(audits, comparisons, settings)


def _examine_one(table: Table, settings: Settings) -> TableAudit:
    results, everything = evaluate(table, settings), overall(table, settings)
    spread = None
    if not settings.ll144:
        spread = client_spread(table, settings.suppress_below, settings.seed)
    figures, sentences = find(table, results, everything, spread)
    notes = [
        f"By {first.grouping.name}, no group has {MIN_CLIENTS} clients or more: differences "
        "between groups cannot be told from differences between clients."
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
