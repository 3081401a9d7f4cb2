"""Reads a table for an audit, and tells all of its mistakes at once, with row and column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from e2fl.auditing.columns import Chosen, Header, choose
from e2fl.auditing.files import Column, Source, Tell, open_table
from e2fl.auditing.measures import build_measure
from e2fl.auditing.predictions import build_predictions
from e2fl.auditing.table import Codes, Measure, Options, Predictions, Table, compact, groupings
from e2fl.auditing.values import MAX_LABELS, Mistakes, Names, is_missing, number
from e2fl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Texts:
    """A column of labels or of numbers, kept as codes of distinct texts until there are too many to be labels."""

    title: str
    decimal_comma: bool
    codes: dict[str, int] = field(default_factory=dict)
    parts: list[NDArray[np.int32]] = field(default_factory=list)
    numbers: list[NDArray[np.float64]] | None = None
    percent_signs: bool = False
    plain_numbers: bool = False

    def take(self, column: Column) -> None:
        if self.numbers is None:
            known = dict(self.codes)
            places = np.array([known.setdefault(text, len(known)) for text in column.texts], dtype=np.int32)
            if len(known) <= MAX_LABELS + 1:
                self.codes = known
                self.parts.append(places[column.codes])
                return
            values = np.array([self.parse(text) for text in self.codes])
            self.numbers = [values[part] for part in self.parts]
            self.parts = []
        self.numbers.append(np.array([self.parse(text) for text in column.texts])[column.codes])

    def parse(self, text: str) -> float:
        found = number(text, self.decimal_comma)
        if text.rstrip().endswith("%"):
            self.percent_signs = True
        elif found:
            self.plain_numbers = True
        return found

    def as_codes(self) -> Codes:
        return np.concatenate(self.parts).astype(np.int64)

    def as_numbers(self) -> NDArray[np.float64]:
        if self.numbers is not None:
            return np.concatenate(self.numbers)
        return np.array([self.parse(text) for text in self.codes])[self.as_codes()]


def read_table(table: "Path | str | pd.DataFrame", options: Options, tell: Tell | None = None) -> Table:
    """Read a file or a DataFrame."""
    source = open_table(table, tell)
    header = Header(source.name, source.header)
    ll144 = options.profile == "ll144"
    chosen = choose(
        header,
        client=options.client,
        groups=options.groups,
        y=options.y,
        y_hat=options.y_hat,
        score=options.score,
        ll144=ll144,
    )
    columns = _Columns(source, header, chosen, options)
    columns.read()
    return columns.table()


class _Columns:
    """The chosen columns while they are read, and the table they make."""

    def __init__(self, source: Source, header: Header, chosen: Chosen, options: Options):
        self.source, self.chosen, self.options = source, chosen, options
        self.titles = [name.strip() for name in header.names]
        self.client = None if chosen.client is None else Names()
        self.groups = [Names() for _ in chosen.groups]
        places = {"y": chosen.y, "y_hat": chosen.y_hat, "score": chosen.score, "accuracy": chosen.accuracy}
        places["n"] = chosen.n
        self.places = {role: place for role, place in places.items() if place is not None}
        self.texts = {role: Texts(self.titles[place], source.decimal_comma) for role, place in self.places.items()}
        self.kept: list[NDArray[np.bool_]] = []
        self.rows = 0
        self.mistakes = Mistakes()

    def read(self) -> None:
        wanted = [*self.places.values(), *self.chosen.groups]
        if self.chosen.client is not None:
            wanted.append(self.chosen.client)
        for block in self.source.blocks(wanted):
            self._take(block)
        for line in self.source.mistakes:
            self.mistakes.add(line)
        if not self.rows and not self.mistakes.count:
            raise DataError(f"{self.source.name} has a header but no rows")

    def _take(self, block: Sequence[Column]) -> None:
        size = len(block[0].codes)
        kept = np.ones(size, dtype=bool)
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
        self._stop_at_mistakes()
        keep = np.concatenate(self.kept)
        notes = [*self.source.notes, *self.chosen.notes]
        dropped = int(len(keep) - keep.sum())
        if dropped:
            notes.append(f"{dropped:,} of {len(keep):,} rows have no label or prediction and were left out.")
        if not keep.any():
            raise DataError(f"{self.source.name} has no row with a value in every column that is needed")
        clients, client = self._clients(keep)
        names, groups, combo, combos = self._combos(keep, notes)
        data = self._data(keep, client, clients, combo, len(combos), notes)
        given = bool(self.options.groups) or self.options.profile == "ll144"
        return Table(
            name=self.source.name,
            sha256=self.source.sha256,
            rows=int(keep.sum()),
            clients=clients,
            groupings=groupings(names, groups, combos, crossed=given or len(names) == 2),
            data=data,
            notes=notes,
        )

    def _clients(self, keep: NDArray[np.bool_]) -> tuple[list[str] | None, Codes | None]:
        if self.client is None:
            return None, None
        names, codes = self.client.finish()
        return names, codes[keep].astype(np.int64)

    def _combos(self, keep: NDArray[np.bool_], notes: list[str]) -> tuple[list[str], list[list[str]], Codes, Codes]:
        names, groups, columns = [], [], []
        for found, place in zip(self.groups, self.chosen.groups, strict=True):
            known, codes = found.finish()
            title = self.titles[place]
            if found.missing:
                spelt = ", ".join(f"'{text}'" if text else "empty" for text in list(found.missing)[:6])
                notes.append(f"Column '{title}': missing values ({spelt}) are counted as unknown.")
            _note_alike(title, known, notes)
            names.append(title)
            groups.append(known)
            columns.append((np.where(codes[keep] < 0, len(known), codes[keep]).astype(np.int64), len(known) + 1))
        if not columns:
            return [], [], np.zeros(int(keep.sum()), dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        combo, parts = compact(*columns)
        return names, groups, combo, np.stack(parts, axis=1)

    def _data(
        self,
        keep: NDArray[np.bool_],
        client: Codes | None,
        clients: list[str] | None,
        combo: Codes,
        combos: int,
        notes: list[str],
    ) -> Predictions | Measure:
        per_person = "y" in self.texts or "y_hat" in self.texts
        if "score" in self.texts and (self.options.threshold is not None or self.options.profile == "ll144"):
            per_person = True
        if per_person:
            return build_predictions(
                self.source.name, self.texts, keep, client, combo, combos, self.options, notes, len(clients or ())
            )
        measure = build_measure(self.source.name, self.texts, keep, client, combo, self.options, notes, self.mistakes)
        if clients is not None:
            _require_single(measure, clients, self.mistakes)
        self._stop_at_mistakes()
        return measure

    def _stop_at_mistakes(self) -> None:
        if self.mistakes.count:
            raise DataError(self.mistakes.text(self.source.name))


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
