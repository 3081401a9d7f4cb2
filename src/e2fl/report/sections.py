"""What the page says, in which order: sections of tables and plots."""

from dataclasses import dataclass

from e2fl.report import bars, contents, lines, points
from e2fl.report.chart import Plot
from e2fl.report.study import Study
from e2fl.report.table import Column, Table, text_cells
from e2fl.report.theme import Paint
from e2fl.report.verdict import chosen


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, plots with the table behind them, and tables that stand in the open."""

    key: str
    title: str
    intro: str
    plots: tuple[Plot, ...] = ()
    behind: tuple[Table, ...] = ()  # the numbers behind the plots
    tables: tuple[Table, ...] = ()  # that stand in the open

    @property
    def empty(self) -> bool:
        return not self.plots and not self.tables and not self.behind


def sections(study: Study, paint: Paint) -> list[Section]:
    """All that this study has anything to say about."""
    found = [
        _outcome(study),
        _groups(study, paint),
        _clients(study, paint),
        _gains(study, paint),
        _learning(study, paint),
        _tradeoff(study, paint),
        _inference(study, paint),
        _protected(study, paint),
        _data(study, paint),
    ]
    return [section for section in found if not section.empty]


def _known(*found: Plot | None) -> tuple[Plot, ...]:
    return tuple(plot for plot in found if plot is not None)


def _tables(*found: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in found if table is not None)


def _outcome(study: Study) -> Section:
    pair = chosen(study)
    differences = None if pair is None else contents.difference_table(study, pair.subject)
    intro = (
        "Same split of the data, same draws of clients, same budget for all; the final round, never the best one."
        if study.source == "runs"
        else "Every client weighs the same, and so does every group."
    )
    return Section("outcome", "Outcome", intro, tables=_tables(contents.main_table(study), differences))


def _groups(study: Study, paint: Paint) -> Section:
    if not study.group_names:
        return Section("groups", "Groups", "")
    drawn = _known(*(bars.group_bars(study, paint, kind) for kind in ("accuracy", "loss")))
    intro = "Equity: does every group get a good model, however small it is?"
    return Section("groups", "Groups", intro, drawn, (contents.group_table(study),))


def _clients(study: Study, paint: Paint) -> Section:
    plot = points.distribution(study, paint)
    intro = "Equality: do all clients get about the same accuracy?"
    return Section("clients", "Clients", intro, _known(plot), (contents.distribution_table(study),) if plot else ())


def _gains(study: Study, paint: Paint) -> Section:
    plot = points.gain_points(study, paint)
    intro = "Would a client rather have stayed alone?"
    return Section("gains", "Taking part or training alone", intro, _known(plot), _tables(contents.gain_table(study)))


def _learning(study: Study, paint: Paint) -> Section:
    drawn = lines.curves(study, paint)
    intro = "By round, and by what had been sent by then: the same curves, priced."
    if len(study.seeds) > 1:
        intro += " Shaded: 95 % interval over seeds, cut at the frame."
    if drawn and any(len(contents.curve(contender, study.worst)) == 1 for contender in study.contenders):
        intro += " A dotted level is an algorithm that was evaluated once, at its end."
    return Section("learning", "Learning", intro, tuple(drawn), (contents.curve_table(study),) if drawn else ())


def _tradeoff(study: Study, paint: Paint) -> Section:
    drawn = points.tradeoff(study, paint)
    intro = "Accuracy, equity and bytes pull against each other; what matters is who is not beaten in all of them."
    return Section("tradeoff", "Trade-off", intro, tuple(drawn), (contents.tradeoff_table(study),) if drawn else ())


def _inference(study: Study, paint: Paint) -> Section:
    table = contents.inference_table(study)
    plot = lines.inference(study, paint)
    return Section(
        "inference",
        "Inferred groups",
        "How well groups were found where clients did not declare them.",
        _known(plot),
        _tables(table),
    )


def _protected(study: Study, paint: Paint) -> Section:
    table = contents.protected_table(study)
    plot = bars.protected(study, paint)
    return Section(
        "protected", "Protected attribute", "Are the two groups given the same chances?", _known(plot), _tables(table)
    )


def _data(study: Study, paint: Paint) -> Section:
    """Group sizes, and the picture of the data where it could be drawn."""
    tables = []
    drawn: list[Plot | None] = []
    if study.group_names:
        drawn.append(bars.sizes(study, paint))
        tables.append(contents.size_table(study))
    mix = (study.data or {}).get("labels")
    if mix:
        drawn.append(bars.label_mix(study, paint))
        tables.append(_labels(mix, (study.data or {}).get("looked", 0)))
    return Section("data", "Data", "Who is there, and what they hold.", _known(*drawn), tuple(tables))


def _labels(mix: dict[str, dict[str, int]], looked: int) -> Table:
    names = list(dict.fromkeys(label for counts in mix.values() for label in counts))
    rows = tuple(text_cells([group, *(counts.get(name, 0) for name in names)]) for group, counts in mix.items())
    columns = (Column("group", "group"), *(Column(f"label_{name}", name, 0) for name in names))
    note = f"Training examples of the {looked:,} clients that were looked at, of the first seed."
    return Table("labels", "Labels of each group", columns, rows, note)
