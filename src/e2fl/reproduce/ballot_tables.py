"""Tables of our study of cheap ballots: bits per edge, and their cost in accuracy."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from e2fl.report.intervals import over_seeds
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.our_tables import GLOBAL, GROUPS, Cells, Variation, ballot_name, rows_by, table_of, variations
from e2fl.reproduce.selection import fewer_images
from e2fl.reproduce.tables import NONE, Column, Repeats, Table, level


def bits(way: str) -> Column:
    """Return the column of bits per edge of a message."""

    def read(entry: Entry, line: Mapping[str, Any]) -> float | None:
        found = (entry.summary or {}).get("bits", {}).get(f"{way}_per_edge")
        return None if found is None else float(found)

    return Column(f"bits {way}", (), read)


def _mib(entry: Entry, line: Mapping[str, Any]) -> float | None:
    total = line.get("bytes", {})
    return (total["up_total"] + total["down_total"]) / 2**20 if "up_total" in total else None


BY_GROUP = ("participation.name", "by_group")
LAST = {"demo": 60, "table1": 100}  # the round that is compared, by experiment
BALLOT_COLUMNS = [bits("up"), bits("down"), Column("total MiB", (), _mib, 0), *GROUPS, GLOBAL[0]]


def ballot_rows(entries: Sequence[Entry], experiment: str, samples: int | None = None) -> dict[Cells, Repeats]:
    """Return the runs by ballot, downlink and what averages over rounds."""
    fixed = {} if samples is None else fewer_images(samples)

    def cells(run: Variation) -> Cells | None:
        changes = {key: value for key, value in run.changes.items() if fixed.get(key) != value}
        missing = set(fixed) - set(run.changes)
        others = {key for key in changes if not key.startswith(("algorithm.ballot.", "algorithm.downlink."))}
        if run.entry.method == "fedpm" and not missing:
            rows = {frozenset(): "a mask (FedPM, uniform draws)", frozenset({BY_GROUP}): "a mask (FedPM)"}
            name = rows.get(frozenset(changes.items()))
            return None if name is None else (name, "float32", NONE)
        averaging = _averaging(run.entry.method, {key: changes[key] for key in others})
        if missing or averaging is None:
            return None
        algorithm = run.entry.config["algorithm"]
        sent = [ballot_name(algorithm.get(part, {"name": "exact"})) for part in ("ballot", "downlink")]
        return (*sent, averaging)

    rows = rows_by(variations(entries, experiment), cells, LAST[experiment])
    size = {key: _mean(repeats, bits("up")) for key, repeats in rows.items()}
    place = {name: number for number, name in enumerate(("smoothing 5", "incumbents 2", "none", NONE))}
    return dict(sorted(rows.items(), key=lambda item: (place[item[0][2]], -size[item[0]], item[0])))


def _averaging(method: str, changes: Mapping[str, Any]) -> str | None:
    """Return what averages over rounds, for E2FL with a seat for every group; None for other runs."""
    if method == "e2fl_steady" and not changes:
        return "smoothing 5"
    if method == "e2fl" and changes == {"participation.name": "by_group"}:
        return "none"
    if method == "e2fl" and changes == {"participation.name": "by_group", "algorithm.incumbents": 2}:
        return "incumbents 2"
    return None


def _mean(repeats: Repeats, column: Column) -> float:
    values = list(repeats.values(column.read).values())
    return over_seeds(values).mean if values else 0.0


def ballots(entries: Sequence[Entry], experiment: str, samples: int | None = None) -> Table:
    return table_of(("ballot", "downlink", "averaging"), ballot_rows(entries, experiment, samples), BALLOT_COLUMNS)


def clustering_ballots(entries: Sequence[Entry]) -> Table:
    """Return the table of clusters of 300 clients from coarser and coarser ballots of one layer."""

    def cells(run: Variation) -> Cells | None:
        others = {key: value for key, value in run.changes.items() if not key.startswith("algorithm.ballot.")}
        if others != {"data.clients": 300, "data.samples_per_client": 60}:
            return None
        return run.entry.method, ballot_name(run.entry.config["algorithm"].get("ballot", {"name": "exact"}))

    def sent(entry: Entry, line: Mapping[str, Any]) -> float | None:
        if entry.summary is None:
            return None
        clients = sum(entry.summary["inference"]["found"].values())
        received = clients * entry.summary["bytes"]["down_per_client_round"]
        return float((entry.summary["inference"]["bytes"] - received) / clients / 2**10)

    rows = rows_by(variations(entries, "table5"), cells)
    size = Column("KiB per ballot", (), sent)
    ordered = dict(sorted(rows.items(), key=lambda item: (item[0][0], -_mean(item[1], size))))
    columns = [
        size,
        Column("matched", (), level("inference", "matched")),
        Column("purity", (), level("inference", "purity")),
    ]
    return table_of(("layer", "ballot"), ordered, columns)


def ballot_points(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the worst group against bits: one point for each ballot format, averaged over seeds."""
    worst = GROUPS[1]
    points = []
    for name, experiment, samples in (("demo", "demo", None), ("60 images, LeNet of the paper", "table1", 60)):
        for (ballot, downlink, averaging), repeats in ballot_rows(entries, experiment, samples).items():
            up, value = _mean(repeats, bits("up")), _mean(repeats, worst)
            if up and value:
                points.append(
                    {
                        "setting": name,
                        "ballot": ballot,
                        "kind": _kind(ballot),
                        "label": _short(ballot, downlink),
                        "downlink": downlink,
                        "averaging": averaging,
                        "bits": round(up, 4),
                        "worst": round(value, 3),
                        "seeds": len(repeats.entries),
                    }
                )
    return points


def _kind(ballot: str) -> str:
    """Return the kind of a ballot, for the legend of a plot."""
    kinds = {"exact": "exact", "moves": "moves", "boundary": "boundary", "a mask": "a mask (FedPM)"}
    return next((kind for start, kind in kinds.items() if ballot.startswith(start)), "buckets")


def _short(ballot: str, downlink: str) -> str:
    """Return a label for a plot: the numbers of what is sent up and down, such as 16x4/64; empty for exact ballots."""
    up, down = (_numbers(name) for name in (ballot, downlink))
    return f"{up}/{down}" if up and down else up or down


def _numbers(name: str) -> str:
    """Return the buckets or steps of a ballot format, and how much finer they are near the cut."""
    if name.startswith("uneven"):
        return f"{len(name.split())} uneven"
    return "x".join(re.findall(r"\d+(?= (?:steps|buckets|x))", name))
