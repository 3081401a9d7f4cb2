"""Tables of our own studies of Adult: how the paper can be read, and the learning rate of dense training."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from e2fl.reproduce.ledger import Entry, Json
from e2fl.reproduce.our_tables import Cells, Variation, rows_by, variations
from e2fl.reproduce.paper_tables import adult_columns
from e2fl.reproduce.selection import other_alpha, select
from e2fl.reproduce.studies import SMALL, paper
from e2fl.reproduce.tables import (
    NONE,
    Column,
    MethodRow,
    Repeats,
    Table,
    build,
    cell,
    interval,
    level,
)

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
ALPHAS = (5000, 1)
ROUNDS = paper()["rounds_adult"]
RATE_ROUNDS = (1, 4, 8, 10)


def readings(entries: Sequence[Entry], alpha: float) -> Table:
    """Return accuracy, EOD and DI of every reading of the paper, with a smaller network."""
    own = select(entries, "adult", SMALL | other_alpha(alpha))
    lines = [
        MethodRow(f"{name}: {MODELS[view]}" if len(views) > 1 else name, method, view=view)
        for method, (name, views) in METHODS.items()
        for view in views
        if method != "one_sex" or alpha == ALPHAS[0]  # it does not depend on alpha
    ]
    found = build(lines, [_only_elected(entry) for entry in own], adult_columns, papers=False)
    measured = [row for row in found.rows if set(row[4:]) != {NONE}]
    return replace(
        found,
        titles=(found.titles[0], *found.titles[2:]),
        rows=tuple((label, *cells) for label, _, *cells in measured),
    )


def _only_elected(entry: Entry) -> Entry:
    """Return the entry without the models of groups that nobody voted in: they are the global model again."""

    def elected(line: Json) -> Json:
        seen = line.get("notes", {}).get("groups_seen", (0, 1))
        unelected = {f"as_group{group}" for group in (0, 1) if group not in seen}
        return line | {"views": {name: view for name, view in line.get("views", {}).items() if name not in unelected}}

    return replace(entry, history=tuple(elected(line) for line in entry.history))


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
        shown = [cell(interval(at, column), column.digits) for column in columns for at in at_rounds]
        rows.append((rate, str(len(repeats.entries)), *shown))
    titles = [f"{column.title}, round {number}" for column in columns for number in RATE_ROUNDS]
    return Table(("rate", "seeds", *titles), tuple(rows), empty=not rows)


def against_the_paper(entries: Sequence[Entry]) -> list[str]:
    """Return sentences that compare Table 4 with the paper, as far as it was run."""
    by_alpha = {alpha: select(entries, "adult", other_alpha(alpha)) for alpha in ALPHAS}
    return [*_agreement(entries), *(text for text in (_nearest(by_alpha), _women_against_fedavg(by_alpha)) if text)]


def agreement(entries: Sequence[Entry]) -> dict[tuple[str, str | None, str, int], bool]:
    """Return whether our interval holds the paper's number, by method, model that scores, figure and alpha."""
    found = {}
    for alpha in ALPHAS:
        own = select(entries, "adult", other_alpha(alpha))
        for method, views in (("fedavg", (OWN,)), ("fairfed", (OWN,)), ("e2fl", tuple(MODELS))):
            runs = tuple(entry for entry in own if entry.method == method)
            for view in views:
                for column in adult_columns(view):
                    ours = interval(Repeats(runs, ROUNDS), column)
                    if ours is not None and ours.half is not None:
                        given = paper()["table4"][method][f"{alpha}"][column.key[0]]
                        found[method, view, column.title, alpha] = abs(ours.mean - given) <= ours.half
    return found


def _agreement(entries: Sequence[Entry]) -> list[str]:
    """Say for each method, and each reading of E2FL, which of the paper's numbers lie in our intervals."""
    words: dict[tuple[str, str | None], dict[bool, dict[str, list[int]]]] = {}
    for (method, view, figure, alpha), holds in agreement(entries).items():
        words.setdefault((method, view), {True: {}, False: {}})[holds].setdefault(figure, []).append(alpha)
    sentences = []
    for (method, view), found in words.items():
        name = f"E2FL, {MODELS[view]}" if method == "e2fl" else METHODS[method][0]
        inside, outside = _listed(found[True]), _listed(found[False])
        sentences.append(f"**{name}.** The paper's numbers inside our 95 % intervals: {inside}; outside: {outside}.")
    return sentences


def _listed(figures: Mapping[str, Sequence[int]]) -> str:
    texts = (
        f"{figure} ({'both alphas' if len(alphas) == len(ALPHAS) else f'alpha {alphas[0]}'})"
        for figure, alphas in figures.items()
    )
    return ", ".join(texts) or "none"


def _nearest(by_alpha: Mapping[int, Sequence[Entry]]) -> str:
    """Say which reading of E2FL comes nearest to the paper's EOD."""
    nearest: Counter[str | None] = Counter()
    for alpha, own in by_alpha.items():
        given = paper()["table4"]["e2fl"][f"{alpha}"]["eod"]
        for entry in (entry for entry in own if entry.method == "e2fl"):
            line = entry.at(ROUNDS) or {}
            by_view = {view: level("protected", "eod", view)(entry, line) for view in MODELS}
            away = {view: abs(value - given) for view, value in by_view.items() if value is not None}
            if len(away) == len(MODELS):
                nearest[min(away, key=lambda view: away[view])] += 1
    if not nearest:
        return ""
    words = ", ".join(f"{MODELS[view]} in {count}" for view, count in nearest.most_common())
    return f"Of E2FL's four readings, nearest to the paper's EOD: {words} of {nearest.total()} runs."


def _women_against_fedavg(by_alpha: Mapping[int, Sequence[Entry]]) -> str:
    """Say how large the gaps of the women's model are, relative to FedAvg's."""
    parts = []
    for alpha, own in by_alpha.items():
        eod, di = (_share(own, figure) for figure in ("eod", "di"))
        if eod is not None and di is not None:
            parts.append(f"EOD is {eod:.0f} % of FedAvg's and DI {di:.0f} % (alpha {alpha})")
    return f"With the women's model for all rows, {'; '.join(parts)}." if parts else ""


def _share(entries: Sequence[Entry], figure: str) -> float | None:
    """Return the mean size of the women's model's figure in percent of FedAvg's, on the seeds of both."""
    readers = {"e2fl": level("protected", figure, WOMEN), "fedavg": level("protected", figure)}
    sizes: dict[str, dict[int, float]] = {method: {} for method in readers}
    for entry in entries:
        value = readers[entry.method](entry, entry.at(ROUNDS) or {}) if entry.method in readers else None
        if value is not None:
            sizes[entry.method][entry.seed] = abs(value)
    seeds = sizes["e2fl"].keys() & sizes["fedavg"].keys()
    women, dense = (sum(sizes[method][seed] for seed in seeds) for method in ("e2fl", "fedavg"))
    return 100 * women / dense if dense else None
