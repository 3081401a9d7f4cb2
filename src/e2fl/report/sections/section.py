"""A section of the page: a question and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2fl.report.charts import Plot
from e2fl.report.table import Table, words

OPEN = ("outcome", "groups", "attacks", "clients")  # others are folded, and printed open


@dataclass(frozen=True)
class Section:
    """A heading, a short text, tables, plots, and the tables behind the plots."""

    key: str
    title: str
    intro: str
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    behind: Sequence[Table] = ()
    picture: str = ""  # an image, as an address

    @classmethod
    def of(cls, key: str, *parts: Any, **values: Any) -> "Section":
        """Return a section of tables and so on, with the title and the text of words.toml."""
        title, intro = (words(key, kind, **values).strip() for kind in ("title", "intro"))
        return cls(key, title, intro, *parts)

    @property
    def open(self) -> bool:
        """Whether it is shown at once."""
        return self.key in OPEN
