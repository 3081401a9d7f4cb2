"""The page of an audit: one self-contained HTML document, readable without scripts, ready to print."""

import base64
import math
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from e2fl.auditing.dotplot import dot_plot, histogram, safe
from e2fl.auditing.findings import compared
from e2fl.auditing.judging import SUPPRESSED, RateTable
from e2fl.auditing.result import Audit, TableAudit, client_rows, long_rows
from e2fl.auditing.wording import interval, p_value, percent, plain, ratio, shown, whole
from e2fl.csv_text import csv_text
from e2fl.metrics import f1
from e2fl.templates import asset, digest, environment
from e2fl.version import __version__

MOST_PLOTS = 6  # rates that are drawn; recalls of many classes are in the table
MOST_CLIENTS = 20_000  # clients in the CSV behind the page


def render(audit: Audit) -> str:
    """Return the whole document."""
    style, script = asset("e2fl.auditing", "page.css"), asset("e2fl.auditing", "page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template("page").render(
        audit=audit,
        views=[_view(each) for each in audit.tables],
        comparisons=[(each, compared(each)) for each in audit.comparisons],
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        ll144=audit.profile == "ll144",
    )


def notebook(audit: Audit) -> str:
    """Return a short form for a notebook: sentences and the rates by group."""
    return _template("notebook").render(audit=audit, views=[_view(each) for each in audit.tables])


def _template(name: str) -> Template:
    found = environment()
    words = {"percent": percent, "plain": plain, "whole": whole, "p_value": p_value, "ratio": ratio}
    found.filters |= words | {"name": _name}
    found.globals |= {"nan": math.nan, "shown": shown, "interval": interval, "isnan": math.isnan, "signed": _signed}
    return found.from_string(asset("e2fl.auditing", f"{name}.html.j2"))


def _name(text: str, most: int = 200) -> str:
    """Return a text for the page; a number and its percent sign stay on one line."""
    return safe(text, most).replace(" %", "\u00a0%")


def _signed(value: float, unit: str) -> str:
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.1f}" if unit == "%" else f"{value:+.4g}"


def _view(each: TableAudit) -> dict[str, Any]:
    """Return what the template needs to know about one table."""
    spread = each.spread
    return {
        "audit": each,
        "table": each.table,
        "figures": each.findings.figures,
        "sentences": each.findings.sentences,
        "groupings": [_grouping(tables) for tables in each.results if tables],
        "overall": each.overall,
        "spread": spread,
        "histograms": "" if spread is None else histogram(spread) + histogram(spread, narrow=True),
        "rates_csv": _link(csv_text(long_rows(each))),
        "clients_csv": _link(csv_text(client_rows(spread)))
        if spread is not None and len(spread.names) <= MOST_CLIENTS
        else None,
        "calibration": each.calibration,
        "notes": each.notes,
    }


def _grouping(tables: list[RateTable]) -> dict[str, Any]:
    drawn = [table for table in tables if not table.rate.label][:MOST_PLOTS]
    recalls = [table for table in tables if table.rate.label]
    if len(recalls) <= MOST_PLOTS - len(drawn):
        drawn += recalls
    groups = sorted(range(len(tables[0].rows)), key=lambda place: _order(tables[0], place))
    return {
        "name": tables[0].grouping,
        "tables": tables,
        "plots": [(table, wide, dot_plot(table, narrow=True)) for table in drawn if (wide := dot_plot(table))],
        "rows": [[table.rows[place] for table in tables] for place in groups],
        "two": _two_groups(tables),
    }  # fmt: skip


def _order(table: RateTable, place: int) -> tuple[bool, float]:
    value = table.rows[place].value
    sign = -1 if table.rate.better < 0 else 1
    return (math.isnan(value), -sign * value if not math.isnan(value) else 0.0)


def _two_groups(tables: list[RateTable]) -> dict[str, Any] | None:
    """Return the differences of the literature, where there are two groups and two classes."""
    by_key = {table.rate.key: table for table in tables}
    known = [row.group for row in tables[0].rows if row.status not in ("unknown", SUPPRESSED)]
    if len(known) != 2 or "true_positive_rate" not in by_key:
        return None
    reference = by_key["accuracy"].reference if by_key["accuracy"].reference in known else known[1]
    other = next(name for name in known if name != reference)

    def of(key: str, name: str) -> Any:
        return next(row for row in by_key[key].rows if row.group == name)

    def score(name: str) -> float:
        hits, positives = of("true_positive_rate", name).hits, of("true_positive_rate", name).base
        if of("true_positive_rate", name).status == SUPPRESSED:
            return math.nan
        return f1(hits, of("predictive_value", name).base - hits, positives - hits)

    keys = ("true_positive_rate", "false_positive_rate", "predictive_value", "selection_rate")
    differences = {key: of(key, other).value - of(key, reference).value for key in keys}
    odds = abs(differences["true_positive_rate"]), abs(differences["false_positive_rate"])
    return {
        "direction": f"{other} minus {reference}",
        "rows": [
            ("Equal opportunity difference (true positive rate)", differences["true_positive_rate"]),
            (
                "Equalized odds difference (larger of the gaps in true and false positive rate)",
                math.nan if any(map(math.isnan, odds)) else max(odds),
            ),
            ("Statistical parity difference (selection rate)", differences["selection_rate"]),
            ("Predictive parity difference (positive predictive value)", differences["predictive_value"]),
            ("F1 gap*", score(other) - score(reference)),
        ],
    }


def _link(text: str) -> str:
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(text.encode("utf-8", "replace")).decode()
