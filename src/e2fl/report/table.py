"""One table: a DataFrame and columns, written as text, CSV, LaTeX, HTML and JSON.

Beside the column KEY, the frame may hold what is written with its values: KEY_low and KEY_high, an
interval; KEY/std or KEY/ci, what follows ±; KEY_chance, what chance alone gives. The terminal,
paper.tex, notebooks and the page get their tables of methods from `summary_table` and
`method_table`: a row per method, measures as columns.
"""

import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
import pandas as pd

from e2fl.errors import ConfigError
from e2fl.files import write_text
from e2fl.metrics import COLUMNS, MEASURES, Interval, Measure, measure_of, tenth
from e2fl.metrics.intervals import over_seeds
from e2fl.report.study import Method, Study
from e2fl.text import aligned, neutral

Column = Measure  # a column of text, too, has a key, a title and a head
PlusMinus = Literal["std", "ci", "none"]
METHOD = Column("method", "method")
CELL_SUFFIXES = ("", "_low", "_high", "/std", "/ci", "_chance")
DASH = "–"
UNITS = (("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))
TEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "±": r"\(\pm\)",
    "–": "--",
    "²": r"\textsuperscript{2}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads((files("e2fl.report") / "words.toml").read_text(encoding="utf-8"))


def words(key: str, kind: str, **values: Any) -> str:
    """Return a sentence of words.toml with these values in it."""
    return _words()[key][kind].format(**values)


@cache
def environment(package: str, *, escape: bool = True) -> jinja2.Environment:
    """Return the templates of a package; a name that a template does not know is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, ""),
        autoescape=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def interval_cells(key: str, interval: Interval | None) -> dict[str, float | None]:
    """Return the cells of a value with its interval."""
    if interval is None:
        return {key: None}
    return {key: interval.value, f"{key}_low": interval.low, f"{key}_high": interval.high}


def seed_cells(key: str, values: "pd.Series[float]") -> dict[str, float | None]:
    """Return the cells of the mean of values from different seeds, with its interval."""
    finite = values.dropna().to_list()
    return interval_cells(key, over_seeds(finite)) if finite else {key: None}


class Table:
    """Rows under columns; the first column names the row, `bold` are cells (row, key) to mark.

    frame: exact values; None: missing, or not finite.
    """

    def __init__(
        self,
        key: str,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Mapping[str, Any]] | pd.DataFrame,
        note: str = "",
        bold: Iterable[tuple[int, str]] = (),
    ):
        """Take rows that hold cells by the keys of the columns."""
        self.key, self.title, self.columns = key, title, tuple(columns)
        self.note, self.bold = note, frozenset(bold)
        cells = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else list(rows), dtype=object)
        required = {column.key for column in columns}
        keys = [f"{column.key}{suffix}" for column in columns for suffix in CELL_SUFFIXES]
        cells = cells.reindex(columns=[key for key in keys if key in required or key in cells])
        exact = cells.reset_index(drop=True).astype(object)
        exact = exact.where(exact.map(_known).astype(bool), None)
        self.frame = exact[[key for key in exact if key in required or exact[key].notna().any()]]

    def __len__(self) -> int:
        return len(self.frame)

    def text(self) -> str:
        """Return the table for a terminal, and below it what chance gives and the note."""
        titles = [column.title for column in self.columns]
        heads = [cell for head, n in self.spans() for cell in (head, *[""] * (n - 1))]
        rows = [
            [self.cell(row, c) + self.spread(row, c) for c in self.columns]
            for row in range(len(self))
        ]
        parts = [aligned([titles, *rows], heads if any(heads) else None)]
        spreads = [c for c in self.columns if f"{c.key}_chance" in self.frame]
        if spreads:
            shown = [self.columns[0], *(replace(c, key=f"{c.key}_chance") for c in spreads)]
            title = words("results", "chance")
            parts += [title, Table("chance", title, shown, self.frame).text()]
        return "\n\n".join(filter(None, [*parts, self.note]))

    def csv(self) -> str:
        """Return the exact values; no cell is taken for a formula by a spreadsheet."""
        exact = self.frame.rename(columns=neutral).map(neutral)
        return str(exact.to_csv(index=False, lineterminator="\n"))

    def write(self, folder: Path, name: str) -> None:
        """Write the table to files of this name, as CSV and for LaTeX."""
        write_text(folder / f"{name}.csv", self.csv())
        write_text(folder / f"{name}.tex", self.latex())

    def json(self) -> dict[str, Any]:
        """Return the title and the exact values, with None for what is missing."""
        return {"title": self.title, "rows": self.frame.to_dict("records")}

    def latex(self) -> str:
        r"""Return a float with a label, for \usepackage{booktabs,graphicx}; marks are bold."""
        titles = [tex(_capital(column.title)) for column in self.columns]
        rows = [
            [self._tex_cell(row, column) for column in self.columns] for row in range(len(self))
        ]
        top, *lines = (" & ".join(line) + r" \\" for line in (titles, *rows))
        return words(
            "results",
            "latex",
            caption=tex(". ".join(filter(None, (self.title, self.note)))),
            label=self.key,
            align="".join("l" if text else "r" for text in self.texts()),
            rows="\n".join([*self._tex_heads(), top, r"\midrule", *lines]),
        )

    def html(self) -> str:
        """Return the table as HTML, for notebooks; every name is escaped."""
        return environment("e2fl.report").get_template("table.html.j2").render(table=self)

    def spans(self) -> list[tuple[str, int]]:
        """Return the titles over neighbouring columns, and the number of columns of each."""
        heads = itertools.groupby(column.head for column in self.columns)
        return [(head, len(list(columns))) for head, columns in heads]

    def texts(self) -> list[bool]:
        """Return which columns hold strings, which are aligned to the left."""
        cells = (self.frame[column.key] for column in self.columns[1:])
        return [True, *(any(isinstance(cell, str) and cell != DASH for cell in c) for c in cells)]

    def value(self, row: int, key: str) -> Any:
        """Return the exact value of a cell; None if it is missing."""
        return self.frame.at[row, key] if key in self.frame else None

    def cell(self, row: int, column: Column) -> str:
        """Return a cell as written, without what stands beside it."""
        return written(self.value(row, column.key), column)

    def spread(self, row: int, column: Column) -> str:
        """Return the spread to write after a cell, with ±; empty if there is none."""
        values = (self.value(row, f"{column.key}/{kind}") for kind in ("std", "ci"))
        plain = replace(column, signed=False)
        return "".join(f" ± {written(value, plain)}" for value in values if value is not None)

    def by_chance(self, row: int, column: Column) -> str:
        """Return the spread that chance alone gives, as written; empty if not known."""
        chance = self.value(row, f"{column.key}_chance")
        return "" if chance is None else f"chance {written(chance, _coarser(column))}"

    def interval(self, row: int, column: Column) -> str:
        """Return the interval of a cell, as written; empty if there is none."""
        low, high = (self.value(row, f"{column.key}_{end}") for end in ("low", "high"))
        ends = [written(end, _coarser(column)) for end in (low, high)]
        return "" if None in (low, high) or ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"

    def _tex_heads(self) -> list[str]:
        if not any(head for head, _ in self.spans()):
            return []
        heads, rules, first = [], "", 1
        for head, count in self.spans():
            heads.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(_capital(head))}}}")
            rules += rf"\cmidrule(lr){{{first}-{first + count - 1}}}" if head else ""
            first += count
        return [" & ".join(heads) + r" \\", rules]

    def _tex_cell(self, row: int, column: Column) -> str:
        text, interval = tex(self.cell(row, column)), self.interval(row, column)
        beside = self.spread(row, column) or (f" ({interval})" if interval else "")
        bold = (row, column.key) in self.bold
        return (rf"\textbf{{{text}}}" if bold else text) + (f" {tex(beside)}" if beside else "")


def _known(value: Any) -> bool:
    return isinstance(value, str) or (value is not None and math.isfinite(value))


def written(value: float | str | None, column: Column) -> str:
    """Return a value formatted for display; a dash if there is none."""
    if value is None:
        return DASH
    if isinstance(value, str):
        return value
    scaled = value * column.scale
    if isinstance(value, int) and scaled == value:
        return f"{value:,}"
    signed = column.signed and round(scaled, column.digits) != 0
    text = f"{scaled:{'+' if signed else ''},.{column.digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def byte_unit(sizes: Iterable[float | None]) -> tuple[str, float, int]:
    """Return the unit for these numbers of bytes, the bytes in it, and decimals that show them."""
    positive = [size for size in sizes if size]
    top = max(positive, default=0.0)
    name, size = next((unit for unit in UNITS if top >= unit[1]), UNITS[-1])
    return name, size, 0 if size == 1.0 else 2 if min(positive, default=size) >= 0.01 * size else 4


def tex(text: str) -> str:
    """Return the string for LaTeX: every special character is escaped, on one line."""
    return " ".join(text.split()).translate(str.maketrans(TEX))


def _coarser(column: Column) -> Column:
    return replace(column, digits=max(0, column.digits - 1))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def summary_table(
    study: Study, columns: Sequence[str] = (), plus_minus: PlusMinus = "std", *, views: bool = True
) -> Table:
    """Return the table of a comparison, for a terminal and for a paper; ± is always explained.

    columns: measures, by default those of `COLUMNS` and the user's own. views: whether other models
    of the same runs, such as (GM), have rows.
    """
    usual = "seeds" if len(study.seeds) > 1 else "printed"
    chosen = [measure_of(path, study.own) for path in columns]
    for measure in chosen:
        if not any(method.by_seed(measure.key) for method in study.methods):
            raise ConfigError(f"no run has a measure '{measure.key}'; choose others with --columns")
    methods = [method for method in study.methods if views or not method.view]
    seeds = min((len(method.seeds) for method in methods), default=0)
    shown: PlusMinus = plus_minus if seeds > 1 else "none"
    note = words("results", shown if seeds > 1 else "one", seeds=seeds)
    measures = chosen or known_measures(study.methods, usual, study.own)
    return method_table(study, "results", study.title, measures, methods, note, shown)


def known_measures(
    methods: Sequence[Method], table: str, own: Iterable[Measure] = ()
) -> list[Measure]:
    """Return the measures of a table of `COLUMNS`, and own ones, that any method has."""
    measures = [*(MEASURES[path] for path in COLUMNS[table]), *own]
    return [m for m in measures if any(method.by_seed(m.key) for method in methods)]


def method_table(
    study: Study,
    key: str,
    title: str,
    measures: Sequence[Measure],
    methods: Sequence[Method],
    note: str = "",
    plus_minus: PlusMinus | None = None,
) -> Table:
    """Return a table of measures, with the best cells marked, and what chance gives for spreads.

    plus_minus: what follows the means over seeds; by default, they have intervals.
    """
    rows = []
    for method in methods:
        row: dict[str, Any] = {"method": method.label}
        for path in (measure.key for measure in measures):
            row |= _cells(method, path, plus_minus) | {f"{path}_chance": method.chance.get(path)}
        rows.append(row)
    columns = (METHOD, *measure_columns(study, measures))
    bold = best_cells(methods, measures) if study.same_data else frozenset()
    return Table(key, title, columns, rows, note, bold)


def _cells(method: Method, key: str, plus_minus: PlusMinus | None) -> dict[str, float | None]:
    if plus_minus is None:
        return interval_cells(key, method.interval(key))
    values = list(method.by_seed(key).values())
    cells = {key: method.mean(key)}
    # What is sent hardly depends on the seed: ± 0.00 says nothing.
    if plus_minus != "none" and len(values) > 1 and not key.startswith("bytes/"):
        spread = over_seeds(values).half if plus_minus == "ci" else float(np.std(values, ddof=1))
        cells[f"{key}/{plus_minus}"] = spread
    return cells


def measure_columns(study: Study, measures: Sequence[Measure]) -> list[Column]:
    """Return the columns of these measures, with units that fit the values."""
    columns = []
    for measure in measures:
        column = measure
        if measure.unit == "bytes":
            alike = [other.key for other in measures if other.head == measure.head]
            sizes = [m.mean(key) for m in study.methods if not m.alone for key in alike]
            unit, size, digits = byte_unit(sizes)
            head = measure.head.format(unit=unit)
            column = replace(measure, digits=digits, head=head, scale=1 / size)
        elif measure.key.startswith("group/"):
            single = tenth(len(study.group_names) or 1) == 1
            title = measure.title.replace(" 10 %", "") if single else measure.title
            head = "found groups" if study.groups_found else measure.head
            column = replace(measure, title=title, head=head)
        columns.append(column)
    return columns


def best_cells(methods: Sequence[Method], measures: Sequence[Measure]) -> set[tuple[int, str]]:
    """Return the cells to mark: all that print the same as the best of their column.

    Training alone is not marked for bytes. In the column of a spread, nothing is marked if chance
    alone explains the spread of every method.
    """
    marked = set()
    for measure in measures:
        values = {
            row: round(value * measure.sign, measure.digits)
            for row, method in enumerate(methods)
            if not (method.alone and measure.unit == "bytes")
            and (value := method.mean(measure.key)) is not None
        }
        if len(values) > 1 and measure.sign and not all_by_chance(methods, measure.key):
            best = max(values.values())
            marked |= {(row, measure.key) for row, value in values.items() if value == best}
    return marked


def all_by_chance(methods: Iterable[Method], key: str) -> bool:
    """Return whether chance alone explains this spread for every method that has it."""
    measured = [method for method in methods if key in method.chance and method.by_seed(key)]
    return bool(measured) and all(method.by_chance(key) for method in measured)
