"""A section of the page: a question and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from e2fl.report.charts import Plot
from e2fl.report.table import Table


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
    open: bool = False  # shown at once; others are folded, and printed open

    @property
    def wide(self) -> bool:
        """Whether each plot takes the whole width."""
        return len(self.plots) < 2 or any(plot.rows for plot in self.plots)
