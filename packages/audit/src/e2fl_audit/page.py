"""The page of an audit: one self-contained HTML document, readable without scripts; its plots.

Plots are static SVG: every group named, sorted, with its interval and size, readable in grey. On a
narrow screen they are scrolled, so that text keeps its size. What stands where is computed here;
plots.svg.j2 draws it.
"""

import base64
import hashlib
import html
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from e2fl_audit import __version__
from e2fl_audit.api import Audit
from e2fl_audit.clients import ClientSpread
from e2fl_audit.counting import FOUR_FIFTHS, SUPPRESSED, RateTable
from e2fl_audit.findings import environment
from e2fl_audit.wording import interval, noun, safe, shown, whole

MOST_PLOTS = 6  # rates that are drawn; recalls of many classes are in the table
MOST_PRINTED = 40  # groups in a printed plot or table
MOST_ROWS = 400
WIDTH, HEIGHT = 700, 30  # of a plot, and of a row of it
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(audit: Audit) -> str:
    """Return the whole document."""
    style, script = (
        (files("e2fl_audit") / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    one, other = (_base64(hashlib.sha256(text.encode()).digest()) for text in (style, script))
    policy = f"default-src 'none'; style-src 'sha256-{one}'; script-src 'sha256-{other}'; "
    policy += "base-uri 'none'; form-action 'none'"
    spread = audit.spread
    page = environment().get_template("page.html.j2")
    return page.render(
        audit=audit,
        table=audit.table,
        groupings=[_grouping(tables) for tables in audit.results],
        spread=spread,
        histogram=None if spread is None else Markup(_histogram(spread)),
        rates_csv=_base64(csv_text(audit.rates)),
        clients_csv=None if spread is None else _base64(csv_text(audit.clients)),
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
        frames = map(rate_frame, audit.results)
        parts += [frame.to_html(index=False, escape=True) for frame in frames]
    return f'<div class="e2fl-audit">{"".join(parts)}</div>'


def _base64(text: str | bytes) -> str:
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return base64.b64encode(raw).decode()


def _grouping(tables: list[RateTable]) -> dict[str, Any]:
    first, recalls = tables[0], [table for table in tables if table.rate.label]
    drawn = [table for table in tables if not table.rate.label]
    if len(drawn) + len(recalls) <= MOST_PLOTS:
        drawn += recalls
    plots = [(table, Markup(_plots(table))) for table in drawn]
    return {
        "tables": tables,
        "plots": [(table, plot) for table, plot in plots if plot],
        "rows": [[one.rows[position] for one in tables] for position in in_order(first)],
        "two": _two_groups(tables),
    }


def _plots(table: RateTable) -> str:
    """Return the plot for screens, and a short one for print if it is long."""
    if len(table.rows) <= MOST_PRINTED:
        return dot_plot(table)
    return dot_plot(table, "long") + dot_plot(table, "short", most=MOST_PRINTED)


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
    return {"direction": f"{other} minus {reference}", "gaps": gaps}


def in_order(table: RateTable) -> list[int]:
    """Return the positions of the groups, most favourable first; those without a value are last."""
    values = (-1 if table.rate.better < 0 else 1) * table.frame["value"]
    return [int(position) for position in np.argsort(-values.to_numpy(), kind="stable")]


class _Scale:
    """Values to pixels, with round ticks."""

    def __init__(self, table: RateTable, rows: list[Any], left: float):
        ends = [end for row in rows for end in (row.value, row.low, row.high)]
        known = [value for value in (*ends, table.overall) if not math.isnan(value)]
        low, high = min(known), max(known)
        reach = (high - low) or max(abs(high), 1e-9) * 0.1
        low, high = low - 0.04 * reach, high + 0.04 * reach
        self.percent = table.unit == "%"
        if self.percent:
            low, high = max(-0.01, low), min(1.01, high)
        self.low, self.high, self.left, self.right = low, high, left, WIDTH - 168

    def __call__(self, value: float) -> float:
        return float(round(np.interp(value, [self.low, self.high], [self.left, self.right]), 1))

    def ticks(self) -> list[tuple[float, str]]:
        """Return the position of each tick and its text."""
        least = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(least))
        step = next(part * power for part in (1, 2, 5, 10) if part * power >= least * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [multiple * step for multiple in range(first, last + 1)]
        digits = 0 if step >= 0.0099 else 1
        texts = [f"{100 * one:.{digits}f}" if self.percent else shown(one, "") for one in values]
        return list(zip(map(self, values), texts, strict=True))


def dot_plot(table: RateTable, kind: str = "", most: int = MOST_ROWS) -> str:
    """Return the plot of one rate as an SVG element, in which every name is escaped.

    kind: its class in the style sheet. most: of more groups, the most and the least favourable ones
    are drawn.
    """
    rows = [table.rows[position] for position in in_order(table)]
    rows = [row for row in rows if not math.isnan(row.value)]
    if not rows:
        return ""
    rows = rows if len(rows) <= most else [*rows[: most // 2], *rows[-most // 2 :]]
    labels = [_label(table, row) for row in rows]
    left = min(300, int(6.9 * max(map(len, labels))) + 16)
    scale = _Scale(table, rows, left + 8)
    base = next((row.value for row in table.rows if row.group == table.reference), math.nan)
    fifths = FOUR_FIFTHS * base if table.rate.four_fifths else math.nan
    drawn: Any = environment().get_template("plots.svg.j2").module
    marks = list(zip(rows, labels, strict=True))
    return str(drawn.dots(table, marks, scale, fifths, WIDTH, HEIGHT, left, kind))


def _label(table: RateTable, row: Any) -> str:
    """Return the name and the size of a group, beside its row of a plot."""
    size = noun(row.base, "client") if table.is_measure else f"n={whole(row.base)}"
    return f"{safe(row.group, 34)} ({size})"


def _histogram(spread: ClientSpread) -> str:
    """Return how many clients have which value, as an SVG element."""
    value = spread.frame["value"].to_numpy()
    if np.ptp(value) == 0:
        return ""
    counts, edges = np.histogram(value, bins=24)
    texts = [shown(float(edge), spread.table.unit) for edge in edges]
    drawn: Any = environment().get_template("plots.svg.j2").module
    return str(drawn.histogram(counts.tolist(), texts, spread.title, WIDTH))


def rate_frame(tables: Sequence[RateTable], intervals: bool = True) -> pd.DataFrame:
    """Return the rates of a grouping as text, most favourable first: terminal, notebook, LaTeX."""
    first, order = tables[0], in_order(tables[0])
    size = "clients" if first.is_measure else "n"
    columns = {safe(first.grouping.name): [safe(first.rows[row].group) for row in order]}
    columns[size] = [whole(first.rows[row].n) for row in order]
    for table in tables:
        rows = [table.rows[position] for position in order]
        texts = [shown(row.value, table.unit) for row in rows]
        if intervals:
            reach = [interval(row.low, row.high, table.unit) for row in rows]
            texts = [f"{text} ({one})" for text, one in zip(texts, reach, strict=True)]
        columns[safe(table.rate.title)] = [
            text if row.judged else f"{text} [{row.status}]"
            for text, row in zip(texts, rows, strict=True)
        ]
    return pd.DataFrame(columns)


def neutral(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: '=1+1' gets an apostrophe in front."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV that is safe to open in a spreadsheet; NaN is an empty cell."""
    return frame.rename(columns=neutral).map(neutral).to_csv(index=False, lineterminator="\n")
