"""Tables of our own studies of Adult: how the paper can be read, and the learning rate of dense training."""

from collections.abc import Sequence
from dataclasses import replace

from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.our_tables import Cells, Variation, rows_by, variations
from e2fl.reproduce.paper_tables import adult_columns
from e2fl.reproduce.selection import other_alpha, select
from e2fl.reproduce.studies import SMALL
from e2fl.reproduce.tables import NONE, Column, MethodRow, Repeats, Table, build, interval, level, with_interval

OWN, GLOBAL, WOMEN, MEN = None, "global", "as_group0", "as_group1"  # the model that scores a row
MODELS = {
    OWN: "each row with its own model",
    GLOBAL: "the global model",
    WOMEN: "the women's model",
    MEN: "the men's model",
}
METHODS = {
    "fedavg": ("FedAvg", (OWN,)),
    "fairfed": ("FairFed", (OWN,)),
    "e2fl": ("E2FL, a ballot for each sex", tuple(MODELS)),
    "one_sex": ("E2FL, clients of one sex", tuple(MODELS)),
    "one_ranking": ("E2FL, one ballot for the larger sex", tuple(MODELS)),
    "lowest_loss": ("E2FL, lowest loss, two groups", (OWN,)),
}
RATE_ROUNDS = (1, 4, 8, 10)


def readings(entries: Sequence[Entry], alpha: float) -> Table:
    """Return accuracy, EOD and DI of every reading of the paper, with a smaller network."""
    own = select(entries, "adult", SMALL | other_alpha(alpha))
    lines = [
        MethodRow(f"{name}: {MODELS[view]}" if len(views) > 1 else name, method, view=view)
        for method, (name, views) in METHODS.items()
        for view in views
    ]
    found = build(lines, own, adult_columns, papers=False)
    measured = [row for row in found.rows if set(row[4:]) != {NONE}]  # a model that no client voted for does not exist
    return replace(
        found,
        titles=(found.titles[0], *found.titles[2:]),
        rows=tuple((label, *cells) for label, _, *cells in measured),
    )


def rates(entries: Sequence[Entry]) -> Table:
    """Return accuracy and EOD of FedAvg on validation rows, by learning rate and round."""

    def cells(run: Variation) -> Cells | None:
        chosen = run.entry.method == "fedavg" and "data.pooled_validation_share" in run.changes
        known = run.only("data.pooled_validation_share", "learner.learning_rate")
        return (f"{run.entry.config['learner']['learning_rate']:g}",) if chosen and known else None

    columns = [Column("accuracy", (), level("user", "mean")), Column("EOD", (), level("protected", "eod"), 3)]
    rows = []
    found = rows_by(variations(entries, "adult"), cells)
    for (rate,), repeats in sorted(found.items()):
        at_rounds = [Repeats(repeats.entries, number) for number in RATE_ROUNDS]
        means = [(interval(at, column), column.digits) for column in columns for at in at_rounds]
        shown = [NONE if mean is None else with_interval(mean, digits) for mean, digits in means]
        rows.append((rate, str(len(repeats.entries)), *shown))
    titles = [f"{column.title}, round {number}" for column in columns for number in RATE_ROUNDS]
    return Table(("rate", "seeds", *titles), tuple(rows), empty=not rows)
