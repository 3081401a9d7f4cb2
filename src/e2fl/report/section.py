"""A section of the page: a question and its answer."""

from dataclasses import dataclass

from e2fl.report.chart import Plot
from e2fl.report.dotplot import DotPlot
from e2fl.report.table import Table


@dataclass(frozen=True)
class Section:
    """A heading, a short text, tables, plots, and the tables behind the plots."""

    key: str
    title: str
    intro: str
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot | DotPlot, ...] = ()
    behind: tuple[Table, ...] = ()
    picture: str = ""  # an image, as an address
    picture_words: str = ""
    open: bool = False  # shown at once; others are folded, and printed open

    @property
    def wide(self) -> bool:
        """Whether each plot takes the whole width."""
        return len(self.plots) < 2 or any(isinstance(plot, DotPlot) for plot in self.plots)
