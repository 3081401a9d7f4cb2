"""The tables and the plot of cheap ballots: bits per edge, and their cost in accuracy."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paper.ledger import Json, Run
from paper.tables import NONE, Label, Repeats, at_round, declared, repeats_of

SENT = ("algorithm.ballot.", "algorithm.downlink.")
# What averages over rounds, by method and overrides, for E2FL with a seat for every group.
AVERAGING: list[tuple[str, Json, str]] = [
    ("e2fl_steady", {}, "smoothing 5"),
    ("e2fl", {"participation.name": "by_group", "algorithm.incumbents": 2}, "incumbents 2"),
    ("e2fl", {"participation.name": "by_group"}, "none"),
]
MASKS: list[tuple[Json, str]] = [
    ({}, "a mask (FedPM, uniform draws)"),
    ({"participation.name": "by_group"}, "a mask (FedPM)"),
]
ORDER = [*(name for _, _, name in AVERAGING), NONE]
PLOTTED = {"demo": "ballots", "60 images, LeNet of the paper": "ballots_wide"}  # tables


def ballot_name(settings: Mapping[str, Any], part: str) -> str:
    """Return the display name of what is sent: part is ballot or downlink."""
    own = {
        key.removeprefix(f"algorithm.{part}."): value
        for key, value in settings.items()
        if key.startswith(f"algorithm.{part}.")
    }
    finer = f", {own['finer']} x near the cut" if own.get("finer", 1) > 1 else ""
    if own.get("name") == "moves":
        return f"moves, {own['steps']} steps{finer}"
    if own.get("name") != "buckets":
        return str(own.get("name", "exact"))
    if own.get("uneven"):
        return f"uneven {' '.join(f'{border:g}' for border in own['uneven'])}"
    return f"{own['buckets']} buckets{finer}"


def ballot_rows(spec: Json, runs: Sequence[Run], base: Mapping[str, Any]) -> dict[Label, Repeats]:
    """Return the runs of a table of ballots by its first cells, the largest ballot first."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        rest = {key: value for key, value in run.overrides.items() if not key.startswith(SENT)}
        if any(rest.pop(key, None) != value for key, value in base.items()):
            continue
        cells = _cells(spec, run, rest)
        if cells is not None:
            found.setdefault(cells, []).append(run)
    rows = {}
    for cells, own in found.items():
        for repeats in (at_round(own, spec["at"]) if "at" in spec else repeats_of(own))[:1]:
            rows[cells] = repeats
    size = "bits/up_per_edge" if "at" in spec else "bytes/ballot"
    ordered = sorted(rows, key=lambda cells: (_place(cells), -_mean(rows[cells], size), cells))
    return {(cells, ""): rows[cells] for cells in ordered}


def _cells(spec: Json, run: Run, rest: Json) -> tuple[str, ...] | None:
    """Return the first cells of a run's row; None if it is not in the table."""
    sent = [ballot_name(run.settings, part) for part in ("ballot", "downlink")]
    if "at" not in spec:  # rank clustering from ballots of one layer
        return None if rest else (run.method, sent[0])
    if run.method == "fedpm":
        return next(((name, "float32", NONE) for other, name in MASKS if other == rest), None)
    for method, other, name in AVERAGING:
        if (method, other) == (run.method, rest):
            return (*sent, name)
    return None


def _place(cells: tuple[str, ...]) -> tuple[int, str]:
    return (ORDER.index(cells[2]), "") if len(cells) > 2 else (0, cells[0])


def _mean(repeats: Repeats, path: str) -> float:
    values = list(repeats.values(path).values())
    return sum(values) / len(values) if values else 0.0


def ballot_points(runs: Sequence[Run]) -> list[Json]:
    """Return the worst group against bits: one point for each ballot format, over all seeds."""
    points = []
    for setting, name in PLOTTED.items():
        spec = declared(name)
        own = [run for run in runs if run.experiment == spec["experiment"]]
        rows = ballot_rows(spec, own, spec.get("overrides", {}))
        for ((ballot, downlink, averaging), _), repeats in rows.items():
            up, worst = (_mean(repeats, path) for path in ("bits/up_per_edge", "group/worst10"))
            if up and worst:
                points.append(
                    {
                        "setting": setting,
                        "ballot": ballot,
                        "kind": _kind(ballot),
                        "label": _short(ballot, downlink),
                        "downlink": downlink,
                        "averaging": averaging,
                        "bits": round(up, 4),
                        "worst": round(worst, 3),
                        "seeds": len(repeats.runs),
                    }
                )
    return points


def _kind(ballot: str) -> str:
    """Return the kind of a ballot, for the legend of the plot."""
    kinds = {"exact": "exact", "moves": "moves", "boundary": "boundary", "a mask": "a mask (FedPM)"}
    return next((kind for start, kind in kinds.items() if ballot.startswith(start)), "buckets")


def _short(ballot: str, downlink: str) -> str:
    """Return a label for the plot: what is sent up and down, such as 16x4/64."""
    up, down = (_numbers(name) for name in (ballot, downlink))
    return f"{up}/{down}" if up and down else up or down


def _numbers(name: str) -> str:
    """Return the buckets or steps of a ballot format, and how much finer they are near the cut."""
    if name.startswith("uneven"):
        return f"{len(name.split())} uneven"
    return "x".join(re.findall(r"\d+(?= (?:steps|buckets|x))", name))
