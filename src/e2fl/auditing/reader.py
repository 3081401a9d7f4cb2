"""Reading of a table for an audit; all mistakes are reported at once, with row and column."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.columns import ChosenColumns, Header, choose
from e2fl.auditing.measures import build_measure
from e2fl.auditing.predictions import build_predictions
from e2fl.auditing.table import Codes, Measure, Options, Predictions, Table, compact, groupings
from e2fl.auditing.values import Mistakes, Names, Rows, Texts, is_missing, number
from e2fl.errors import DataError
from e2fl.tables.files import Block, Column, Source, Tell, open_table

if TYPE_CHECKING:
    import pandas as pd


def read_table(table: "Path | str | pd.DataFrame", options: Options, tell: Tell | None = None) -> Table:
    """Read a file or a DataFrame."""
    source = open_table(table)
    header = Header(source.name, source.header)
    columns = _Columns(source, choose(header, options), options)
    columns.read(tell)
    return columns.table()


class _Columns:
    """The chosen columns while they are read, and the table they make."""

    def __init__(self, source: Source, chosen: ChosenColumns, options: Options):
        self.source, self.chosen, self.options = source, chosen, options
        self.titles = [name.strip() for name in source.header]
        self.client = None if chosen.client is None else Names()
        self.groups = [Names() for _ in chosen.groups]
        places = chosen.places.items()
        self.texts = {role: Texts(self.titles[place], source.decimal_comma) for role, place in places}
        self.kept: list[NDArray[np.bool_]] = []
        self.rows = 0
        self.mistakes = Mistakes()

    def read(self, tell: Tell | None) -> None:
        wanted = [*self.chosen.places.values(), *self.chosen.groups]
        wanted += [] if self.chosen.client is None else [self.chosen.client]
        for block in self.source.blocks(wanted, tell):
            self._take(block)
        if not self.rows:
            raise DataError(f"{self.source.name} has a header but no rows")

    def _take(self, rows: Block) -> None:
        block, size = rows.columns, len(rows.too_long)
        kept = np.ones(size, dtype=bool)
        width = len(self.titles)
        self.mistakes.rows(rows.too_long, self.rows, lambda _: f"has more values than the header, which has {width}")
        for (role, texts), column in zip(self.texts.items(), block, strict=False):
            self._check(role, texts, column, kept)
            texts.take(column)
        for names, column in zip(self.groups, block[len(self.texts) :], strict=False):
            names.take(column)
        if self.client is not None:
            title = self.titles[self.chosen.client or 0]
            self.mistakes.rows(self.client.take(block[-1]), self.rows, lambda _: f"has nothing in column '{title}'")
        self.kept.append(kept)
        self.rows += size

    def _check(self, role: str, texts: Texts, column: Column, kept: NDArray[np.bool_]) -> None:
        """Add the mistakes of a block, or drop its rows without a value where that is wanted."""
        empty = np.array([is_missing(text) for text in column.texts], dtype=bool)
        if empty.any():
            missing = empty[column.codes]
            if self.options.drop_missing and role != "n":
                kept &= ~missing
            else:
                hint = "" if role == "n" else "; fill it in, or leave such rows out with --drop-missing"
                self.mistakes.rows(missing, self.rows, lambda _: f"has nothing in column '{texts.title}'{hint}")
        if role in ("score", "accuracy", "n"):
            values = np.array([number(text, texts.decimal_comma) for text in column.texts])
            bad = ~empty & ~(np.isfinite(values) & ((values > 0) & (values <= 1e15) if role == "n" else True))
            if bad.any():
                right = "a number above 0 and at most 1e15" if role == "n" else "a number"
                say = f"in column '{texts.title}'; it must be {right}"
                self.mistakes.rows(
                    bad[column.codes],
                    self.rows,
                    lambda place: f"has {column.texts[column.codes[place]].strip()[:60]!r} {say}",
                )

    def table(self) -> Table:
        self.mistakes.stop(self.source.name)
        keep = np.concatenate(self.kept)
        notes = [*self.source.notes, *self.chosen.notes]
        dropped = int(len(keep) - keep.sum())
        if dropped:
            notes.append(f"{dropped:,} of {len(keep):,} rows have no label or prediction and were left out.")
        if not keep.any():
            raise DataError(f"{self.source.name} has no row with a value in every column that is needed")
        clients, client = None, None
        if self.client is not None:
            clients, codes = self.client.finish()
            client = codes[keep].astype(np.int64)
        names = [self.titles[place] for place in self.chosen.groups]
        groups, combo, combos = self._combos(keep, notes)
        rows = Rows(
            self.source.name, self.options, self.texts, keep, clients, client, combo, combos, notes, self.mistakes
        )
        given = bool(self.options.groups) or self.options.profile == "ll144"
        return Table(
            name=self.source.name,
            sha256=self.source.sha256(),
            rows=int(keep.sum()),
            clients=clients,
            data=self._data(rows),
            groupings=groupings(names, groups, combos, crossed=given or len(names) == 2),
            notes=notes,
        )

    def _combos(self, keep: NDArray[np.bool_], notes: list[str]) -> tuple[list[list[str]], Codes, Codes]:
        """Return the groups of each attribute, each row's combination, and the codes of every combination."""
        groups, columns = [], []
        for found, place in zip(self.groups, self.chosen.groups, strict=True):
            known, codes = found.finish()
            title = self.titles[place]
            if found.missing:
                spelt = ", ".join(f"'{text}'" if text else "empty" for text in list(found.missing)[:6])
                notes.append(f"Column '{title}': missing values ({spelt}) are counted as unknown.")
            _note_alike(title, known, notes)
            groups.append(known)
            columns.append((np.where(codes[keep] < 0, len(known), codes[keep]).astype(np.int64), len(known) + 1))
        if not columns:
            return [], np.zeros(int(keep.sum()), dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        combo, parts = compact(*columns)
        return groups, combo, np.stack(parts, axis=1)

    def _data(self, rows: Rows) -> Predictions | Measure:
        scored = self.options.threshold is not None or self.options.profile == "ll144"
        if "y" in rows.texts or "y_hat" in rows.texts or ("score" in rows.texts and scored):
            return build_predictions(rows)
        measure = build_measure(rows)
        if rows.clients is not None:
            _require_single(measure, rows.clients, self.mistakes)
        self.mistakes.stop(self.source.name)
        return measure


def _require_single(measure: Measure, clients: list[str], mistakes: Mistakes) -> None:
    """Require one row for each client, or for each of its groups."""
    key = measure.client * (int(measure.combo.max()) + 1) + measure.combo
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    for place in np.flatnonzero(first[inverse] != np.arange(len(key))):
        mistakes.add(
            f"rows {int(first[inverse[place]]) + 1} and {int(place) + 1} are both of client "
            f"'{clients[int(measure.client[place])]}' in the same group; give one row per client, or one row per "
            "person with y and y_hat"
        )


def _note_alike(title: str, names: list[str], notes: list[str]) -> None:
    """Point at group names that differ in case only: they are probably one group."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            notes.append(f"Column '{title}': '{other}' and '{name}' are counted as two groups; are they one?")
