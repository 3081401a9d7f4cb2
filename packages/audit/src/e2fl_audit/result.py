"""The result of an audit: frames for Python, a page for people, JSON for programs."""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl_audit import __version__
from e2fl_audit.clients import ClientSpread, Comparison
from e2fl_audit.findings import Figure
from e2fl_audit.rates import RateTable
from e2fl_audit.reader import Table
from e2fl_audit.settings import Settings


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
        frames = [
            table.frame.assign(
                grouping=table.grouping.name, rate=table.rate.name, reference=table.reference
            )
            for tables in self.results
            for table in tables
        ]
        if not frames:
            return pd.DataFrame()
        frame = pd.concat(frames, ignore_index=True)
        return frame[["grouping", "rate", *frame.columns.drop(["grouping", "rate"])]]

    @property
    def clients(self) -> pd.DataFrame:
        """One row per client."""
        if self.spread is None:
            return pd.DataFrame()
        title = self.spread.title.lower() if self.spread.is_rate else self.spread.title
        return self.spread.frame.rename(columns={"value": title})

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
            frames[first.grouping.name] = pd.DataFrame(columns).set_axis(first.frame["group"])
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
    return about | {"p_any": table.p_any, "groups": [row._asdict() for row in table.rows]}
