"""The tables of the paper, from the given runs."""

from collections.abc import Sequence
from dataclasses import replace

from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.studies import LAYERS, RULES, paper
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
    repeats_of,
    spread_columns,
    traffic_columns,
)

INFERENCE_ROUNDS = (30, 60, 100, 200, 300)


def table1(entries: Sequence[Entry], *, papers: bool = True) -> Table:
    """Return Table 1. papers: our runs have the paper's number of images; its rows are shown where ours are missing."""
    rows = paper()["table1"]
    three, six = paper()["rounds"], paper()["rounds_qffl"]
    lines = [
        MethodRow("Local", "local", rows["local"], paper_rounds=None),
        MethodRow("FedAvg", "fedavg", rows["fedavg"], paper_rounds=three),
        MethodRow("IFCA, groups found", "ifca", rows["ifca"], paper_rounds=three),
        MethodRow("IFCA, groups known", "ifca_oracle"),
        MethodRow("q-FFL", "qffl", rows["qffl"], paper_rounds=six),
        MethodRow("E2FL, groups known", "e2fl", rows["e2fl"], paper_rounds=three),
        MethodRow("E2FL (GM)", "e2fl", view="global"),
        MethodRow("E2FL, lowest loss", "e2fl_lowest_loss", rows["e2fl"], paper_rounds=three),
        MethodRow("E2FL, rank clustering", "e2fl_rank_clustering"),
        MethodRow("E2FL, absent groups do not vote", "e2fl_present_only"),
        MethodRow("E2FL steady (ours)", "e2fl_steady"),
        MethodRow("FRL", "frl"),
    ]
    return build(
        lines,
        entries,
        lambda view: [*spread_columns(("group", "user"), view), *traffic_columns()],
        papers=papers,
        comparable=papers,
    )


def table2(entries: Sequence[Entry], *, compared: bool = True) -> Table:
    """Return Table 2. compared: with the paper's rows, which are of the full data set and of another network."""
    rows, three = paper()["table2"], paper()["rounds"]
    lines = [
        MethodRow("Local", "local", rows["local"]),
        MethodRow("FedAvg", "fedavg", rows["fedavg"], paper_rounds=three),
        MethodRow("q-FFL", "qffl", rows["qffl"], paper_rounds=paper()["rounds_qffl"]),
        MethodRow("E2FL, one shot (Q = 2)", "one_shot", rows["one_shot"], paper_rounds=three),
        MethodRow("E2FL, rank clustering (Q = 5)", "rank_clustering", rows["rank_clustering"], paper_rounds=three),
        MethodRow("E2FL, lowest loss (Q = 2)", "e2fl", rows["e2fl"], paper_rounds=three),
        MethodRow("E2FL, lowest loss, absent groups do not vote", "e2fl_present_only"),
        MethodRow("E2FL steady (ours), rank clustering (Q = 5)", "steady_rank_clustering"),
        MethodRow("FRL", "frl"),
    ]
    if not compared:
        lines = [replace(line, paper=None) for line in lines]
    columns = [*spread_columns(("user",)), *traffic_columns()]
    return build(lines, entries, lambda view: columns, papers=compared, comparable=False)


def adult_columns(view: str | None) -> list[Column]:
    return [
        Column("accuracy", ("accuracy",), level("user", "mean", view)),
        Column("EOD", ("eod",), level("protected", "eod", view), 4),
        Column("DI", ("di",), level("protected", "di", view), 4),
    ]


def table4(entries: Sequence[Entry], alpha: float, *, comparable: bool = True) -> Table:
    """Return Table 4. comparable: our runs differ from the paper's only in seeds."""
    twenty = paper()["rounds_adult"]
    rows = {method: found.get(f"{alpha:g}") for method, found in paper()["table4"].items()}
    lines = [
        MethodRow("FedAvg", "fedavg", rows["fedavg"], paper_rounds=twenty),
        MethodRow("FairFed", "fairfed", rows["fairfed"], paper_rounds=twenty),
        MethodRow(
            "E2FL, each row with the model of its own sex",
            "e2fl",
            rows["e2fl"],
            paper_rounds=twenty,
            paper_label="E2FL (the paper does not say which model it scores)",
        ),
        MethodRow("E2FL, the global model for all rows", "e2fl", rows["e2fl"], "global", twenty),
        MethodRow("E2FL, the women's model for all rows", "e2fl", rows["e2fl"], "as_group0", twenty),
        MethodRow("E2FL, the men's model for all rows", "e2fl", rows["e2fl"], "as_group1", twenty),
    ]
    return build(lines, entries, adult_columns, comparable=comparable)


def table5(entries: Sequence[Entry], *, papers: bool = True) -> Table:
    """Return Table 5. papers: our runs have the paper's number of images; its rows are shown where ours are missing."""
    columns = [
        Column("matched", ("matched",), level("inference", "matched")),
        Column("purity", ("purity",), level("inference", "purity")),
    ]
    lines = []
    for layer in LAYERS:
        given, runs = {"matched": paper()["table5"][layer]}, paper()["runs_table5"]
        lines.append(MethodRow(f"{layer}, random starts", f"{layer}_random", given, paper_seeds=runs))
        lines.append(MethodRow(f"{layer}, tree", layer))
    return build(lines, entries, lambda view: columns, papers=papers, comparable=papers)


def table6(entries: Sequence[Entry], *, compared: bool = True) -> Table:
    """Return Table 6. compared: as in `table2`."""
    lines = [
        MethodRow(f"Q = {groups}", f"q{groups}", paper()["table6"][f"q{groups}"], paper_rounds=paper()["rounds"])
        for groups in (2, 3, 4, 5)
    ]
    if not compared:
        lines = [replace(line, paper=None) for line in lines]
    columns = spread_columns(("found", "user"))
    return build(lines, entries, lambda view: columns, papers=compared, comparable=False)


def inference_table(entries: Sequence[Entry]) -> Table:
    """Return the share of clients that found their group, by round, and how well they are served at the end.

    The paper has the share in a figure without numbers.
    """
    methods = (*RULES, *(f"{rule}_warm" for rule in RULES))
    runs = {method: [entry for entry in entries if entry.method == method] for method in methods}
    rounds = [number for number in INFERENCE_ROUNDS if any(entry.at(number) for own in runs.values() for entry in own)]
    matched = Column("matched", (), level("inference", "matched"))
    served = [
        Column("clients: mean", (), level("user", "mean")),
        Column("groups: worst", (), level("group", "worst10")),
    ]
    rows = []
    for method, own in runs.items():
        shown = [cell(interval(Repeats(tuple(own), number), matched), 1) for number in rounds]
        last = repeats_of(own)[-1:]
        shown += [cell(interval(repeats, column), 1) for repeats in last for column in served] or [NONE] * len(served)
        rows.append((method, str(len(own)), *shown))
    titles = ("rule", "seeds", *(f"matched, round {number}" for number in rounds), *(column.title for column in served))
    return Table(titles, tuple(rows), tuple(method for method, own in runs.items() if not own), not entries)
