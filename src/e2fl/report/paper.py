"""The table of a comparison, for a terminal and for a paper, with chosen columns and order; ± is always explained."""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from e2fl.config.experiment import Experiment
from e2fl.construct import did_you_mean
from e2fl.csv_text import csv_text
from e2fl.errors import ConfigError
from e2fl.metrics.student import t_quantile
from e2fl.report.from_runs import labels_of
from e2fl.report.latex import tex
from e2fl.report.study import Method, Study
from e2fl.terminal import aligned

PlusMinus = Literal["std", "ci", "none"]

HEADS = {"group": "groups", "user": "clients", "protected": "protected groups"}
TITLES = {"mean": "mean", "worst10": "worst 10 %", "best10": "best 10 %", "variance": "variance", "std": "std. dev."}
BYTES = {"bytes/up": "bytes/up_per_client_round", "bytes/down": "bytes/down_per_client_round"}
KNOWN = (
    *(f"{level}/{measure}" for level in ("group", "user") for measure in TITLES),
    *BYTES,
    *(f"protected/{name}" for name in ("eod", "di", "spd")),
)
COLUMNS = tuple(f"{level}/{measure}" for level in ("group", "user") for measure in ("mean", "worst10", "variance"))
NAMES = {"Local": "Local training"}
LOWER_IS_BETTER = ("variance", "std", "up", "down")
PLUS_MINUS = {
    "std": "± is the standard deviation over {seeds} seeds",
    "ci": "± is half the 95 % confidence interval of the mean over {seeds} seeds",
}
TEX_PLUS_MINUS = r"\(\pm\)"
UNITS = (("MiB", 2.0**20), ("KiB", 2.0**10))
SMALL = 0.1  # of a unit: smaller values use the next smaller unit
FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"  # never wider than the page


class PaperTable:
    """The measures of all methods of a study."""

    def __init__(
        self, study: Study, columns: Sequence[str] = (), order: Sequence[str] = (), plus_minus: PlusMinus = "std"
    ):
        require_columns(columns)
        for column in columns:
            if not any(_by_seed(method, column) for method in study.methods):
                raise ConfigError(f"no run has a measure '{column}'; choose others with --columns")
        self.columns = list(columns) or [c for c in COLUMNS if any(_by_seed(method, c) for method in study.methods)]
        sent = [value for method in study.methods for column in BYTES for value in _by_seed(method, column)]
        self.unit, self.size = UNITS[0] if max(sent, default=0.0) >= SMALL * UNITS[0][1] else UNITS[1]
        self.rows = _ordered(_named(study.methods), order)
        self.seeds = min((len(method.outcomes) for method in self.rows.values()), default=0)
        self.plus_minus: PlusMinus = plus_minus if self.seeds > 1 else "none"

    @property
    def note(self) -> str:
        """The meaning of the numbers, for the caption."""
        told = PLUS_MINUS.get(self.plus_minus, "").format(seeds=self.seeds)
        mean = f"Accuracy in percent{f', mean over {self.seeds} seeds' if self.seeds > 1 else ''}"
        return ". ".join(part for part in (mean, told) if part) + "."

    def text(self) -> str:
        """Return the table for a terminal, and what its numbers are."""
        head = ["", *(cell for title, n in self._spans() for cell in (title, *[""] * (n - 1)))]
        rows = [["method", *(_title(column) for column in self.columns)]]
        rows += [
            [name, *(self._cell(m, column, "–", " ± ") for column in self.columns)] for name, m in self.rows.items()
        ]
        return f"{aligned(rows, head)}\n\n{self.note}"

    def latex(self) -> str:
        r"""Return a `table*` for \usepackage{booktabs,graphicx}; the best value of a column is bold."""
        rules, place = [], 2
        for _, n in self._spans():
            rules.append(rf"\cmidrule(lr){{{place}-{place + n - 1}}}")
            place += n
        heads = [rf"\multicolumn{{{n}}}{{c}}{{{tex(title[:1].upper() + title[1:])}}}" for title, n in self._spans()]
        lines = [
            r"\begin{table*}",
            r"\centering",
            rf"\caption{{{tex(self.note).replace('±', TEX_PLUS_MINUS)}}}",
            r"\small\setlength{\tabcolsep}{4pt}",
            FIT,
            rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            " & ".join(["", *heads]) + r" \\",
            "".join(rules),
            " & ".join(["Method", *(tex(_title(column)) for column in self.columns)]) + r" \\",
            r"\midrule",
        ]
        best = {column: self._best(column) for column in self.columns}
        for name, method in self.rows.items():
            cells = [self._cell(method, c, "--", rf" {TEX_PLUS_MINUS} ", best[c]) for c in self.columns]
            lines.append(" & ".join([tex(name), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]) + "\n"

    def csv(self) -> str:
        rows = []
        for name, method in self.rows.items():
            row: dict[str, str] = {"method": name}
            for column in self.columns:
                mean, spread = self._value(method, column)
                row[column] = _number(mean)
                if self.plus_minus != "none":
                    row[f"{column}/{self.plus_minus}"] = _number(spread)
            rows.append(row)
        return csv_text(rows)

    def _spans(self) -> list[tuple[str, int]]:
        """Return the titles over neighbouring columns, and the number of columns of each."""
        heads = (column.split("/")[0] for column in self.columns)
        titles = HEADS | {"bytes": f"{self.unit} / client / round"}
        return [(titles.get(head, head), len(list(columns))) for head, columns in itertools.groupby(heads)]

    def _value(self, method: Method, column: str) -> tuple[float, float]:
        """Return the mean over seeds and what follows ±; NaN if a seed lacks the measure."""
        values = [value / (self.size if column in BYTES else 1.0) for value in _by_seed(method, column)]
        if not values:
            return math.nan, math.nan
        if len(values) == 1 or self.plus_minus == "none":
            return float(np.mean(values)), math.nan
        spread = float(np.std(values, ddof=1))
        if self.plus_minus == "ci":
            spread *= float(t_quantile(np.array([len(values) - 1.0]))[0]) / math.sqrt(len(values))
        return float(np.mean(values)), spread

    def _best(self, column: str) -> float:
        means = [self._value(method, column)[0] for method in self.rows.values()]
        known = [round(mean, 2) for mean in means if math.isfinite(mean)]
        choose = min if column.rpartition("/")[2] in LOWER_IS_BETTER else max
        return choose(known, default=math.nan)

    def _cell(self, method: Method, column: str, missing: str, between: str, best: float = math.nan) -> str:
        mean, spread = self._value(method, column)
        if not math.isfinite(mean):
            return missing
        shown = rf"\textbf{{{mean:.2f}}}" if round(mean, 2) == best else f"{mean:.2f}"
        # What is sent hardly depends on the seed: ± 0.00 says nothing.
        return shown if not math.isfinite(spread) or column in BYTES else f"{shown}{between}{spread:.2f}"


def require_columns(columns: Sequence[str]) -> None:
    """Raise an error for measures that no run can have; measures of single groups depend on the data."""
    for column in columns:
        if column not in KNOWN and not column.startswith(("groups/", "loss/")):
            raise ConfigError(f"--columns: there is no measure '{column}'{did_you_mean(column, KNOWN)}")


def require_order(order: Sequence[str], experiments: Sequence[Experiment]) -> None:
    """Raise an error for methods to order that a comparison of these experiments will not have."""
    names = [_display(label) for label in labels_of(experiments)]
    known = {_plain(name) for name in names}
    # A view of a method, such as E2FL (GM), is known when the method has run.
    _places([wanted for wanted in order if _plain(re.sub(r"\(.*\)$", "", wanted)) not in known], names)


def _by_seed(method: Method, column: str) -> list[float]:
    return list(method.by_seed(BYTES.get(column, column)).values())


def _named(methods: Sequence[Method]) -> dict[str, Method]:
    """Return the methods by the names that papers use; where two would share one, both keep the report's labels."""
    names = [_display(method.label) for method in methods]
    return {
        name if names.count(name) == 1 else method.label: method for name, method in zip(names, methods, strict=True)
    }


def _display(label: str) -> str:
    """Return the name in a paper: "E2FL [algorithm.grouping.name=lowest_loss]" is "E2FL (lowest loss)"."""
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
    """Return the named methods first, in this order, then the others."""
    return {name: rows[name] for name in dict.fromkeys([*_places(order, rows), *rows])}


def _places(order: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the names that are meant, in any case and punctuation; Local is short for Local training."""
    known = {_plain(short): name for name in names for short in (name, *(k for k, v in NAMES.items() if v == name))}
    for wanted in order:
        if _plain(wanted) not in known:
            raise ConfigError(
                f"--order: there is no method '{wanted}'; the methods are {', '.join(dict.fromkeys(known.values()))}"
            )
    return [known[_plain(wanted)] for wanted in order]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _title(column: str) -> str:
    last = column.rpartition("/")[2]
    return TITLES.get(last, last)


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else ""
