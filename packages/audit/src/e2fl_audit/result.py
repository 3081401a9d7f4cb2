"""The result of an audit: frames for Python, a page for people, JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from e2fl_audit import __version__
from e2fl_audit.calibration import calibration
from e2fl_audit.clients import ClientSpread, client_spread
from e2fl_audit.comparison import Comparison, compare
from e2fl_audit.findings import Findings, find
from e2fl_audit.rates import evaluate, overall
from e2fl_audit.ratetable import RateTable
from e2fl_audit.settings import MIN_CLIENTS, Settings
from e2fl_audit.table import Table


@dataclass
class TableAudit:
    """What was found in one table."""

    table: Table
    results: list[list[RateTable]]  # for each grouping, the table of each rate
    overall: list[RateTable]
    spread: ClientSpread | None
    findings: Findings
    calibration: list[dict[str, Any]]
    notes: list[str]

    def rates(self) -> pd.DataFrame:
        """Return one row per grouping, group and rate."""
        return pd.DataFrame(
            {"grouping": table.grouping, "rate": table.rate.name, **row._asdict()}
            | {"reference": table.reference}
            for tables in self.results
            for table in tables
            for row in table.rows
        )

    def clients(self) -> pd.DataFrame:
        """Return one row per client."""
        spread = self.spread
        if spread is None:
            return pd.DataFrame()
        title = spread.title.lower() if spread.is_rate else spread.title
        columns = {"client": spread.names, "n": spread.n, title: spread.value}
        bounds = {"low": spread.low, "high": spread.high}
        return pd.DataFrame(columns | bounds).astype({"low": float, "high": float})

    def to_dict(self) -> dict[str, Any]:
        table, spread = self.table, self.spread
        clients: dict[str, Any] | None = None
        if spread is not None:
            clients = {"measures": spread.measures, "chance": spread.chance}
            clients["below_overall"] = spread.below[:100]
        groupings = [
            {"name": tables[0].grouping, "rates": [_rate_dict(one) for one in tables]}
            for tables in self.results
        ]
        return {
            "name": table.name,
            "sha256": table.sha256,
            "rows": table.rows,
            "clients": None if table.clients is None else len(table.clients),
            "notes": self.notes,
            "key_figures": [asdict(figure) for figure in self.findings.figures],
            "findings": self.findings.sentences,
            "overall": {one.rate.key: one.rows[0]._asdict() for one in self.overall},
            "groupings": groupings,
            "calibration": self.calibration,
            "client_spread": clients,
        }


@dataclass
class Audit:
    """The audit of one or more tables.

    `rates` has one row per group and rate, with intervals, differences, ratios and tests; `by_group`
    has one row per group, as in fairlearn's MetricFrame; `clients` has one row per client. Rates are
    fractions. All frames are about the first table; `tables` holds the others.
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
            sentences += [prefix + sentence for sentence in one.findings.sentences]
        return sentences

    @property
    def rates(self) -> pd.DataFrame:
        return self.tables[0].rates()

    @property
    def by_group(self) -> pd.DataFrame:
        rows: dict[tuple[str, str], dict[str, float]] = {}
        for table in (table for tables in self.tables[0].results for table in tables):
            for row in table.rows:
                values = rows.setdefault((table.grouping, row.group), {"n": row.n})
                values[table.rate.name] = row.value
        index = pd.MultiIndex.from_tuples(rows, names=["grouping", "group"])
        return pd.DataFrame(list(rows.values()), index=index) if rows else pd.DataFrame()

    @property
    def overall(self) -> "pd.Series[float]":
        named = {one.rate.name: one.rows[0].value for one in self.tables[0].overall}
        return pd.Series(named, dtype=float, name="overall")

    @property
    def clients(self) -> pd.DataFrame:
        return self.tables[0].clients()

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
        return dict(_finite(values))

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


def examine(tables: Sequence[Table], settings: Settings) -> Audit:
    """Audit tables that were read; each further one is compared with the first."""
    audits = [_one(table, settings) for table in tables]
    comparisons = []
    for one in audits[1:]:
        comparison = compare(tables[0], one.table, settings.suppress_below)
        if comparison is not None:
            comparisons.append(comparison)
            continue
        one.findings.sentences.append(
            f"Not compared with {tables[0].name}: both tables need clients, and the same measure of "
            "them."
        )
    return Audit(audits, comparisons, settings)


def _one(table: Table, settings: Settings) -> TableAudit:
    results, everything = evaluate(table, settings), overall(table, settings)
    spread = None
    if not settings.ll144:
        spread = client_spread(table, settings.suppress_below, settings.seed)
    notes = list(table.notes)
    if table.is_measure and table.clients is None:
        notes.append("The table names no clients: each row is taken as one client.")
    if not table.is_measure and table.clients is not None:
        notes += _clustering_notes(results)
    findings = find(table, results, everything, spread)
    calibrated = calibration(table, settings)
    return TableAudit(table, results, everything, spread, findings, calibrated, notes)


def _clustering_notes(results: list[list[RateTable]]) -> list[str]:
    return [
        f"By {tables[0].grouping}, no group has {MIN_CLIENTS} clients or more: differences between "
        "groups cannot be told from differences between clients."
        for tables in results
        if tables and all(not row.clients >= MIN_CLIENTS for row in tables[0].rows)
    ]


def _rate_dict(table: RateTable) -> dict[str, Any]:
    return {
        "key": table.rate.key,
        "title": table.rate.title,
        "reference": table.reference,
        "p_any": table.p_any,
        "groups": [row._asdict() for row in table.rows],
    }


def _finite(value: Any) -> Any:
    """Return the value with null in place of NaN and inf."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return _finite(value.item()) if isinstance(value, np.generic) else value
