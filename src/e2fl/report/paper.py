"""One table for a paper: chosen columns, chosen order, names as papers write them, and ± said to be what it is."""

import csv
import io
import itertools
import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import stats

from e2fl.construct import did_you_mean
from e2fl.csv_text import neutral
from e2fl.errors import ConfigError
from e2fl.report.study import Method, Study
from e2fl.report.table import _tex

PlusMinus = Literal["std", "ci", "none"]

COLUMNS = ("group/mean", "group/worst10", "group/variance", "user/mean", "user/worst10", "user/variance")
HEADS = {"group": "Groups", "user": "Clients", "bytes": "Bytes", "protected": "Protected groups"}
TITLES = {"mean": "mean", "worst10": "worst 10 %", "best10": "best 10 %", "variance": "variance"}
NAMES = {"QFFL": "q-FFL", "FedPM": "FedPM", "Local": "Local training", "E2FLSteady": "E2FL, steady"}
LOWER_IS_BETTER = ("variance", "up", "down", "total")
PLUS_MINUS = {
    "std": "± is the standard deviation over {seeds} seeds",
    "ci": "± is half the 95 % confidence interval of the mean over {seeds} seeds",
}


class PaperTable:
    """The measures of all methods of a study."""

    def __init__(
        self, study: Study, columns: Sequence[str] = (), order: Sequence[str] = (), plus_minus: PlusMinus = "std"
    ):
        self.columns = tuple(columns) or tuple(
            column for column in COLUMNS if any(method.by_seed(column) for method in study.methods)
        )
        for column in self.columns:
            if not any(method.by_seed(column) for method in study.methods):
                raise ConfigError(f"no run has a measure '{column}'{did_you_mean(column, COLUMNS)}")
        self.rows = _ordered(_named(study.methods), order)
        self.seeds = min((len(method.outcomes) for method in self.rows.values()), default=0)
        self.plus_minus: PlusMinus = plus_minus if self.seeds > 1 else "none"

    @property
    def note(self) -> str:
        """What the numbers are, for the caption."""
        told = PLUS_MINUS.get(self.plus_minus, "").format(seeds=self.seeds)
        return ". ".join(part for part in ("Accuracy in percent", told) if part) + "."

    def latex(self) -> str:
        """A `table*` for \\usepackage{booktabs}; the best value of a column is bold."""
        heads = [column.split("/")[0] for column in self.columns]
        spans = [(head, len(list(columns))) for head, columns in itertools.groupby(heads)]
        lines = [
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{_tex(self.note).replace('±', chr(92) + '(' + chr(92) + 'pm' + chr(92) + ')')}}}",
            rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            " & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{_tex(HEADS.get(head, head))}}}" for head, n in spans)])
            + r" \\",
            " & ".join(["Method", *(_tex(_title(column)) for column in self.columns)]) + r" \\",
            r"\midrule",
        ]
        best = {column: self._best(column) for column in self.columns}
        for name, method in self.rows.items():
            cells = [self._tex_cell(method, column, best[column]) for column in self.columns]
            lines.append(" & ".join([_tex(name), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        ends = ("",) if self.plus_minus == "none" else ("", f"/{self.plus_minus}")
        writer.writerow(["method", *(f"{column}{end}" for column in self.columns for end in ends)])
        for name, method in self.rows.items():
            cells = []
            for column in self.columns:
                mean, spread = self._value(method, column)
                cells += [_number(mean), _number(spread)][: len(ends)]
            writer.writerow([neutral(name), *cells])
        return text.getvalue()

    def _value(self, method: Method, column: str) -> tuple[float, float]:
        """The mean over seeds and what follows ±; NaN where a seed lacks the measure."""
        values = list(method.by_seed(column).values())
        if not values:
            return math.nan, math.nan
        if len(values) == 1 or self.plus_minus == "none":
            return float(np.mean(values)), math.nan
        spread = float(np.std(values, ddof=1))
        if self.plus_minus == "ci":
            spread *= float(stats.t.ppf(0.975, len(values) - 1)) / math.sqrt(len(values))
        return float(np.mean(values)), spread

    def _best(self, column: str) -> float:
        means = [self._value(method, column)[0] for method in self.rows.values()]
        known = [round(mean, 2) for mean in means if math.isfinite(mean)]
        choose = min if column.rpartition("/")[2] in LOWER_IS_BETTER else max
        return choose(known, default=math.nan)

    def _tex_cell(self, method: Method, column: str, best: float) -> str:
        mean, spread = self._value(method, column)
        if not math.isfinite(mean):
            return "--"
        shown = rf"\textbf{{{mean:.2f}}}" if round(mean, 2) == best else f"{mean:.2f}"
        return rf"{shown} \(\pm\) {spread:.2f}" if math.isfinite(spread) else shown


def _named(methods: Sequence[Method]) -> dict[str, Method]:
    """The methods by the names that papers use; where two would share a name, they keep the report's labels."""
    names = [_display(method.label) for method in methods]
    return {
        name if names.count(name) == 1 else method.label: method for name, method in zip(names, methods, strict=True)
    }


def _display(label: str) -> str:
    """The name in a paper: "E2FL [algorithm.grouping.name=lowest_loss]" is "E2FL (lowest loss)"."""
    match = re.fullmatch(r"([^\[]+?)(?: \[(.*)\])?( \(.*\))?", label)
    if match is None:
        return label
    name, settings, view = match[1], match[2] or "", match[3] or ""
    grouping = re.search(r"grouping\.name=(\w+)", settings)
    if settings and grouping is None:
        return label
    told = f" ({grouping[1].replace('_', ' ')})" if grouping else ""
    return f"{NAMES.get(name, name)}{told}{view}"


def _ordered(rows: dict[str, Method], order: Sequence[str]) -> dict[str, Method]:
    """The named methods first, in this order, then the others."""
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in rows}
    first = []
    for wanted in order:
        found = plain.get(re.sub(r"[^a-z0-9]", "", wanted.lower()))
        if found is None:
            raise ConfigError(f"there is no method '{wanted}' to order; the runs have {', '.join(rows)}")
        first.append(found)
    return {name: rows[name] for name in dict.fromkeys([*first, *rows])}


def _title(column: str) -> str:
    last = column.rpartition("/")[2]
    return TITLES.get(last, last)


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else ""
