"""The page of an audit: one self-contained HTML document, readable without scripts."""

import base64
import hashlib
import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from e2fl_audit import __version__
from e2fl_audit.names import safe
from e2fl_audit.output import csv_text
from e2fl_audit.plots import asset, dot_plot, environment, histogram
from e2fl_audit.ratetable import SUPPRESSED, RateTable
from e2fl_audit.result import Audit, TableAudit
from e2fl_audit.wording import interval, p_value, percent, plain, ratio, shown, whole

MOST_PLOTS = 6  # rates that are drawn; recalls of many classes are in the table
MOST_PRINTED = 40  # groups in a printed plot or table
MOST_CLIENTS = 20_000  # clients in the CSV behind the page


def render(audit: Audit) -> str:
    """Return the whole document."""
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; "
        f"script-src 'sha256-{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    return _template("page").render(
        audit=audit,
        views=[_view(one) for one in audit.tables],
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        ll144=audit.settings.ll144,
        most_printed=MOST_PRINTED,
    )


def notebook(audit: Audit) -> str:
    """Return a short form for a notebook: sentences and the rates by group."""
    return _template("notebook").render(audit=audit, views=[_view(one) for one in audit.tables])


def _template(name: str) -> Template:
    templates = environment()
    words = {"percent": percent, "plain": plain, "whole": whole, "p_value": p_value, "ratio": ratio}
    templates.filters |= words | {"name": _name}
    templates.globals |= {"nan": math.nan, "isnan": math.isnan}
    templates.globals |= {"shown": shown, "interval": interval, "signed": _signed}
    return templates.from_string(asset(f"{name}.html.j2"))


def _digest(text: str) -> str:
    """Return the SHA-256 of a script or style as a content-security policy writes it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _name(text: str, most: int = 200) -> str:
    """Return a text for the page; a number and its percent sign stay on one line."""
    return safe(text, most).replace(" %", "\u00a0%")


def _signed(value: float, unit: str) -> str:
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.1f}" if unit == "%" else f"{value:+.4g}"


def _view(one: TableAudit) -> dict[str, Any]:
    """Return what the template needs to know about one table."""
    spread = one.spread
    listed = spread is not None and len(spread.names) <= MOST_CLIENTS
    pictures = [] if spread is None else [histogram(spread), histogram(spread, narrow=True)]
    return {
        "table": one.table,
        "findings": one.findings,
        "groupings": [_grouping(tables) for tables in one.results if tables],
        "spread": spread,
        "histograms": Markup("".join(pictures)),
        "rates_csv": _link(csv_text(one.rates())),
        "clients_csv": _link(csv_text(one.clients())) if listed else None,
        "calibration": one.calibration,
        "notes": one.notes,
    }


def _grouping(tables: list[RateTable]) -> dict[str, Any]:
    drawn = [table for table in tables if not table.rate.label][:MOST_PLOTS]
    recalls = [table for table in tables if table.rate.label]
    if len(recalls) <= MOST_PLOTS - len(drawn):
        drawn += recalls
    first = tables[0]
    order = sorted(range(len(first.rows)), key=lambda place: _order(first, place))
    return {
        "name": first.grouping,
        "tables": tables,
        "is_measure": first.is_measure,
        "only_fifths": len(tables) == 1 and first.rate.four_fifths,
        "plots": [(table, Markup(plots)) for table in drawn if (plots := _plots(table))],
        "rows": [[table.rows[place] for table in tables] for place in order],
        "two": _two_groups(tables),
    }


def _plots(table: RateTable) -> str:
    """Return the plot for wide and narrow screens, and a short one for print if it is long."""
    wide = dot_plot(table)
    if len(table.rows) > MOST_PRINTED:
        short = dot_plot(table, most=MOST_PRINTED).replace("dots wide", "dots short", 1)
        wide = wide.replace("dots wide", "dots wide long", 1) + short
    return wide + dot_plot(table, narrow=True)


def _order(table: RateTable, place: int) -> tuple[bool, float]:
    value = table.rows[place].value
    sign = -1 if table.rate.better < 0 else 1
    return (math.isnan(value), -sign * value if not math.isnan(value) else 0.0)


def _two_groups(tables: Sequence[RateTable]) -> dict[str, Any] | None:
    """Return the differences of the literature, where there are two groups and two classes."""
    by_key = {table.rate.key: {row.group: row for row in table.rows} for table in tables}
    known = [row.group for row in tables[0].rows if row.status not in ("unknown", SUPPRESSED)]
    if len(known) != 2 or "true_positive_rate" not in by_key:
        return None
    reference = known[0] if tables[0].reference == known[0] else known[1]
    other = next(name for name in known if name != reference)

    def f1(group: str) -> float:
        positives, selected = by_key["true_positive_rate"][group], by_key["predictive_value"][group]
        whole = positives.base + selected.base
        return 2 * positives.hits / whole if whole else 0.0

    tpr, fpr, ppv, selection = (
        by_key[key][other].value - by_key[key][reference].value
        for key in (
            "true_positive_rate",
            "false_positive_rate",
            "predictive_value",
            "selection_rate",
        )
    )
    odds = math.nan if math.isnan(tpr + fpr) else max(abs(tpr), abs(fpr))
    return {
        "direction": f"{other} minus {reference}",
        "rows": [
            ("Equal opportunity difference (true positive rate)", tpr),
            (
                "Equalized odds difference (larger of the gaps in true and false positive rate)",
                odds,
            ),
            ("Statistical parity difference (selection rate)", selection),
            ("Predictive parity difference (positive predictive value)", ppv),
            ("F1 gap*", f1(other) - f1(reference)),
        ],
    }


def _link(text: str) -> str:
    content = base64.b64encode(text.encode("utf-8", "replace")).decode()
    return f"data:text/csv;charset=utf-8;base64,{content}"
