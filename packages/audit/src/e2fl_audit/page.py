"""The page of an audit: one self-contained HTML document, readable without scripts."""

import base64
import hashlib
import html
import math
from importlib.resources import files
from typing import Any

import pandas as pd
from markupsafe import Markup

from e2fl_audit import __version__
from e2fl_audit.names import safe
from e2fl_audit.output import csv_text, rate_frame
from e2fl_audit.plots import dot_plot, environment, histogram, in_order
from e2fl_audit.rates import SUPPRESSED, RateTable
from e2fl_audit.result import Audit, TableAudit

MOST_PLOTS = 6  # rates that are drawn; recalls of many classes are in the table
MOST_PRINTED = 40  # groups in a printed plot or table
MOST_CLIENTS = 20_000  # clients in the CSV behind the page
TWO_GROUPS = {
    "Equal opportunity difference (true positive rate)": "true_positive_rate",
    "Equalized odds difference (larger of the gaps in true and false positive rate)": "odds",
    "Statistical parity difference (selection rate)": "selection_rate",
    "Predictive parity difference (positive predictive value)": "predictive_value",
    "F1 gap*": "f1",
}


def render(audit: Audit) -> str:
    """Return the whole document."""
    templates = environment().overlay()
    # A number and its percent sign stay on one line.
    templates.filters = templates.filters | {
        "name": lambda text, most=200: safe(text, most).replace(" %", "\u00a0%")
    }
    style, script = (
        (files("e2fl_audit") / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; "
        f"script-src 'sha256-{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    return templates.get_template("page.html.j2").render(
        audit=audit,
        views=[_view(one) for one in audit.tables],
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        most_printed=MOST_PRINTED,
    )


def notebook(audit: Audit) -> str:
    """Return a short form for a notebook: sentences and the rates by group."""
    parts = [f"<p>{html.escape(safe(sentence, 2000))}</p>" for sentence in audit.sentences]
    with pd.option_context("display.max_colwidth", None):
        frames = [rate_frame(tables) for one in audit.tables for tables in one.results]
        parts += [frame.to_html(index=False, escape=True) for frame in frames]
    return f'<div class="e2fl-audit">{"".join(parts)}</div>'


def _digest(text: str) -> str:
    """Return the SHA-256 of a script or style as a content-security policy writes it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _view(one: TableAudit) -> dict[str, Any]:
    """Return what the template needs to know about one table."""
    spread, pictures = one.spread, ""
    listed = spread is not None and len(spread.frame) <= MOST_CLIENTS
    if spread is not None:
        pictures = histogram(spread, "wide") + histogram(spread, "narrow")
    return {
        "one": one,
        "table": one.table,
        "groupings": [_grouping(tables) for tables in one.results],
        "spread": spread,
        "histograms": Markup(pictures),
        "rates_csv": _link(csv_text(one.rates)),
        "clients_csv": _link(csv_text(one.clients)) if listed else None,
    }


def _grouping(tables: list[RateTable]) -> dict[str, Any]:
    first, recalls = tables[0], [table for table in tables if table.rate.label]
    drawn = [table for table in tables if not table.rate.label]
    if len(drawn) + len(recalls) <= MOST_PLOTS:
        drawn += recalls
    plots = [(table, Markup(_plots(table))) for table in drawn]
    return {
        "name": first.grouping.name,
        "tables": tables,
        "is_measure": first.is_measure,
        "only_fifths": len(tables) == 1 and first.rate.four_fifths,
        "plots": [(table, plot) for table, plot in plots if plot],
        "rows": [[one.rows[position] for one in tables] for position in in_order(first)],
        "two": _two_groups(tables),
    }


def _plots(table: RateTable) -> str:
    """Return the plot for wide and narrow screens, and a short one for print if it is long."""
    narrow = dot_plot(table, "narrow")
    if len(table.rows) <= MOST_PRINTED:
        return dot_plot(table) + narrow
    return dot_plot(table, "wide long") + dot_plot(table, "short", most=MOST_PRINTED) + narrow


def _two_groups(tables: list[RateTable]) -> dict[str, Any] | None:
    """Return the differences of the literature, where there are two groups and two classes."""
    rows = {table.rate.key: {row.group: row for row in table.rows} for table in tables}
    known = [row.group for row in tables[0].rows if row.status not in ("unknown", SUPPRESSED)]
    if len(known) != 2 or "true_positive_rate" not in rows:
        return None
    other, reference = known if tables[0].reference != known[0] else known[::-1]
    gaps = {key: rows[key][other].value - rows[key][reference].value for key in rows}
    both = gaps["true_positive_rate"], gaps["false_positive_rate"]
    gaps["odds"] = math.nan if math.isnan(sum(both)) else max(map(abs, both))
    scores = []
    for group in (other, reference):
        found, said = rows["true_positive_rate"][group], rows["predictive_value"][group]
        size = found.base + said.base
        scores.append(2 * found.hits / size if size else 0.0)
    gaps["f1"] = scores[0] - scores[1]
    named = [(title, gaps[key]) for title, key in TWO_GROUPS.items()]
    return {"direction": f"{other} minus {reference}", "rows": named}


def _link(text: str) -> str:
    content = base64.b64encode(text.encode("utf-8", "replace")).decode()
    return f"data:text/csv;charset=utf-8;base64,{content}"
