"""The result of an audit: frames for Python, a page for people, JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2fl.auditing.calibration import calibration
from e2fl.auditing.clients import ClientSpread, client_spread
from e2fl.auditing.comparison import Comparison, compare
from e2fl.auditing.findings import Findings, compared, find
from e2fl.auditing.judging import MIN_CLIENTS, GroupRate, Judging, RateTable
from e2fl.auditing.rates import evaluate, overall
from e2fl.auditing.table import Measure, Predictions, Table
from e2fl.files import finite
from e2fl.version import __version__

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class TableAudit:
    """What was found in one table."""

    table: Table
    results: list[list[RateTable]]
    overall: list[RateTable]
    spread: ClientSpread | None
    findings: Findings
    calibration: list[dict[str, Any]]
    notes: list[str]


@dataclass
class Audit:
    """The audit of one or more tables.

    `rates` has one row per group and rate, with intervals, differences, ratios and tests; `by_group` has one row per
    group, as in fairlearn's MetricFrame; `clients` has one row per client. Rates are fractions. All frames are about
    the first table; `tables` holds the others.
    """

    tables: list[TableAudit]
    comparisons: list[Comparison]
    judging: Judging
    profile: str | None = None
    command: str = ""
    created: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    about: dict[str, str] = field(default_factory=dict)  # system, purpose, auditor

    @property
    def sentences(self) -> list[str]:
        """What was found, in words; the comparison of tables first."""
        found = [compared(each) for each in self.comparisons]
        for each in self.tables:
            prefix = f"{each.table.name}: " if len(self.tables) > 1 else ""
            found += [prefix + sentence for sentence in each.findings.sentences]
        return found

    @property
    def rates(self) -> "pd.DataFrame":
        return self._frame(long_rows(self.tables[0]))

    @property
    def by_group(self) -> "pd.DataFrame":
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for tables in self.tables[0].results:
            for table in tables:
                for row in table.rows:
                    entry = rows.setdefault((table.grouping, row.group), {"n": row.n})
                    entry[table.rate.name] = row.value
        keys = [{"grouping": grouping, "group": group} for grouping, group in rows]
        frame = self._frame([key | values for key, values in zip(keys, rows.values(), strict=True)])
        return frame.set_index(["grouping", "group"]) if len(frame) else frame

    @property
    def overall(self) -> "pd.Series[float]":
        import pandas as pd

        named = {each.rate.name: each.rows[0].value for each in self.tables[0].overall}
        return pd.Series(named, dtype=float, name="overall")

    @property
    def clients(self) -> "pd.DataFrame":
        return self._frame(client_rows(self.tables[0].spread))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        found = {
            "e2fl": __version__,
            "created": self.created,
            "command": self.command,
            "profile": self.profile,
            "about": self.about,
            "settings": asdict(self.judging),
            "comparisons": [asdict(each) | {"text": compared(each)} for each in self.comparisons],
            "tables": [_table_dict(each) for each in self.tables],
        }
        return dict(finite(found))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return the page: one self-contained HTML document."""
        from e2fl.auditing.page import render

        return render(self)

    def _repr_html_(self) -> str:
        from e2fl.auditing.page import notebook

        return notebook(self)

    def save(self, path: Path | str) -> Path:
        """Write the page, or JSON where the path ends in .json."""
        from e2fl.auditing.output import write

        target = Path(path)
        write(target, self.to_json() if target.suffix.lower() == ".json" else self.to_html())
        return target

    @staticmethod
    def _frame(rows: Sequence[Mapping[str, Any]]) -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(list(rows))


def examine(tables: Sequence[Table], judging: Judging, profile: str | None, tell: Any = None) -> Audit:
    """Audit tables that were read; each further one is compared with the first."""
    found = [_one(table, judging, profile, tell) for table in tables]
    comparisons = []
    for each, other in zip(found[1:], tables[1:], strict=True):
        comparison = compare(tables[0], other, judging.suppress_below)
        if comparison is not None:
            comparisons.append(comparison)
        else:
            each.findings.sentences.append(
                f"Not compared with {tables[0].name}: both tables need clients, and the same measure of them."
            )
    return Audit(found, comparisons, judging, profile)


def _one(table: Table, judging: Judging, profile: str | None, tell: Any) -> TableAudit:
    results = evaluate(table, judging, tell)
    spread = None if profile == "ll144" else client_spread(table, judging.suppress_below, judging.seed)
    everything = overall(table, judging)
    findings = find(table, results, everything, spread, profile == "ll144")
    notes = list(table.notes)
    if isinstance(table.data, Predictions) and table.clients is not None:
        notes += _clustering_notes(results)
    if isinstance(table.data, Measure) and table.clients is None:
        notes.append("The table names no clients: each row is taken as one client.")
    return TableAudit(table, results, everything, spread, findings, calibration(table, judging), notes)


def _clustering_notes(results: list[list[RateTable]]) -> list[str]:
    return [
        f"By {tables[0].grouping}, no group has {MIN_CLIENTS} clients or more. Rows are taken as independent, so "
        "intervals and tests do not cover differences between clients."
        for tables in results
        if tables and all((row.clients or 0) < MIN_CLIENTS for row in tables[0].rows)
    ]


def long_rows(audit: TableAudit) -> list[dict[str, Any]]:
    """Return one row per grouping, group and rate."""
    return [
        {"grouping": table.grouping, "rate": table.rate.name} | _row(row) | {"reference": table.reference}
        for tables in audit.results
        for table in tables
        for row in table.rows
    ]


def client_rows(spread: ClientSpread | None) -> list[dict[str, Any]]:
    """Return one row per client."""
    if spread is None:
        return []
    return [
        {
            "client": name,
            "n": None if spread.n is None else float(spread.n[place]),
            spread.title.lower() if spread.is_rate else spread.title: float(spread.value[place]),
            "low": math.nan if spread.low is None else float(spread.low[place]),
            "high": math.nan if spread.high is None else float(spread.high[place]),
        }
        for place, name in enumerate(spread.names)
    ]


def _row(row: GroupRate) -> dict[str, Any]:
    return {key: value for key, value in asdict(row).items() if key != "status"} | {
        "judged": row.judged,
        "status": row.status or "judged",
        "below_four_fifths": row.below_four_fifths,
    }


def _table_dict(audit: TableAudit) -> dict[str, Any]:
    table, spread = audit.table, audit.spread
    return {
        "name": table.name,
        "sha256": table.sha256,
        "rows": table.rows,
        "clients": None if table.clients is None else len(table.clients),
        "notes": audit.notes,
        "key_figures": [asdict(figure) for figure in audit.findings.figures],
        "findings": audit.findings.sentences,
        "overall": {each.rate.key: _row(each.rows[0]) for each in audit.overall},
        "groupings": [
            {
                "name": tables[0].grouping,
                "rates": [
                    {
                        "key": each.rate.key,
                        "title": each.rate.title,
                        "reference": each.reference,
                        "p_any": each.p_any,
                        "groups": [_row(row) for row in each.rows],
                    }
                    for each in tables
                ],
            }
            for tables in audit.results
            if tables
        ],
        "calibration": audit.calibration,
        "client_spread": None
        if spread is None
        else {"measures": spread.measures, "chance": spread.chance, "below_overall": spread.below[:100]},
    }
