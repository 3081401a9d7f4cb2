"""The figures from the ledger, as Vega-Lite charts: SVG and PNG. Without runs, there is none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair

from paper.ledger import Json, Run
from paper.tables import seeds_text

alt: Any = altair  # parts of it have no types
RULES = ("lowest_loss", "binary", "one_shot")
# Ten groups in a circle of angles: a scale that ends in the colour it starts from, readable
# without colour vision by the group's label at the end of each line.
SCHEME = "turbo"
# Okabe and Ito's palette.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
GM = "E2FL (GM)"
LOWEST = 75  # percent; ballots that serve the worst group worse are named below the figure's title


def figure3(runs: Sequence[Run], samples: int, seed: int = 0) -> Any | None:
    """Return the test loss of each group by round, for FedAvg, E2FL and its global model."""
    rows = loss_rows(runs, seed)
    if not rows:
        return None
    groups = sorted(
        {row["group"] for row in rows}, key=lambda name: int(name[1:]) if name[1:].isdigit() else 0
    )
    present = [
        name for name in ("FedAvg", "E2FL", GM) if any(row["method"] == name for row in rows)
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("round:Q", title="round", scale=alt.Scale(domainMin=0)),
        y=alt.Y(
            "loss:Q",
            title="test loss (log scale)",
            scale=alt.Scale(type="log", nice=False, padding=8),
        ),
        color=alt.Color("group:N", title="group", sort=groups, scale=alt.Scale(scheme=SCHEME)),
    )
    lines = base.mark_line(point=True, strokeWidth=1.5)
    last = max(row["round"] for row in rows)
    names = (
        base.transform_filter(f"datum.round == {last}")
        .mark_text(align="left", dx=5, fontSize=9)
        .encode(text="group:N")
    )
    return (
        alt.layer(lines, names)
        .properties(width=230, height=240)
        .facet(column=alt.Column("method:N", title=None, sort=present))
        .properties(
            title=f"FairMNISTRotate, {samples} images per client, seed {seed}: "
            "the loss of each group"
        )
    )


def loss_rows(runs: Sequence[Run], seed: int = 0) -> list[Json]:
    """Return method, round, group and loss, for the rounds that all methods have."""
    own = {run.method: run for run in runs if run.seed == seed}
    drawn = (("FedAvg", "fedavg", ""), ("E2FL", "e2fl", ""), (GM, "e2fl", "global"))
    shown = [(name, own[method], view) for name, method, view in drawn if method in own]
    end = min((run.reached for _, run, _ in shown), default=0)
    if not shown or sum(line["round"] <= end for line in shown[0][1].rounds) < 2:
        return []  # no line can be drawn through one point
    rows = []
    for name, run, view in shown:
        for line in (line for line in run.rounds if line["round"] <= end):
            part = line["views"][view] if view else line
            rows += [
                {
                    "method": name,
                    "round": line["round"],
                    "group": group,
                    "loss": round(figures["loss"], 5),
                }
                for group, figures in part["groups"].items()
            ]
    return rows


def figure_inference(runs: Sequence[Run], samples: int) -> Any | None:
    """Return the share of clients in the right group over rounds, by rule."""
    rows = matched_rows(runs)
    if not rows:
        return None
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y(
            "matched:Q", title="clients in the right group, %", scale=alt.Scale(domain=[0, 100])
        ),
        color=alt.Color(
            "rule:N", title="rule", sort=rules, scale=alt.Scale(domain=rules, range=COLOURS)
        ),
    )
    lines = base.transform_filter("!datum.all").mark_line(strokeWidth=1.5)
    points = base.transform_filter("datum.all").mark_point(filled=True, size=60)
    shown = (
        lines.encode(strokeDash=alt.StrokeDash("start:N", title="first masks")),
        points.encode(shape=alt.Shape("start:N", title="first masks, all clients")),
    )
    seeds = seeds_text(max(row["seeds"] for row in rows))
    title = f"FairMNISTRotate, {samples} images per client, {seeds}: groups that clients find"
    subtitle = (
        "lines: clients as they last took part; "
        "points: all clients choose again with the current masks"
    )
    return alt.layer(*shown).properties(
        width=520, height=280, title=alt.TitleParams(title, subtitle=subtitle, anchor="start")
    )


def matched_rows(runs: Sequence[Run]) -> list[Json]:
    """Return rule, first masks, round, number of seeds and percent matched, averaged over seeds.

    `all` tells an evaluation, of all clients, from a round of training, of the clients that have
    taken part so far.
    """
    rows = []
    for rule in RULES:
        for method, start in ((rule, "random"), (f"{rule}_warm", "clustered (warm)")):
            found: dict[tuple[bool, int], list[float]] = {}
            for run in (run for run in runs if run.method == method):
                for place, matched in _matched(run).items():
                    found.setdefault(place, []).append(matched)
            rows += [
                {
                    "rule": rule.replace("_", " "),
                    "start": start,
                    "round": number,
                    "all": everyone,
                    "seeds": len(matched),
                    "matched": sum(matched) / len(matched),
                }
                for (everyone, number), matched in sorted(found.items())
            ]
    return rows


def _matched(run: Run) -> dict[tuple[bool, int], float]:
    """Return the percent matched of one run, by whether all clients were evaluated and by round."""
    lines = [(line["round"], line["inference"]) for line in run.rounds if line.get("inference")]
    found = {(True, number): inference["matched"] for number, inference in lines}
    found |= {
        (False, part["round"]): part["matched"]
        for _, inference in lines
        for part in inference.get("rounds", ())
    }
    return found


def worth_drawing(points: Sequence[Json]) -> bool:
    """Return whether the runs use more than one ballot format."""
    return len({point["ballot"] for point in points}) > 1


def figure_ballots(points: Sequence[Json]) -> Any | None:
    """Return the accuracy of the worst group against bits sent per edge."""
    if not worth_drawing(points):
        return None
    coarse = [point for point in points if point["kind"] != "exact"]
    best = {point["setting"]: point for point in sorted(coarse, key=lambda point: point["worst"])}
    shown = [
        point | {"best": point in best.values()} for point in points if point["worst"] >= LOWEST
    ]
    below = [
        f"{point['ballot']} {point['worst']:.0f} % ({point['setting']})"
        for point in points
        if point["worst"] < LOWEST
    ]
    kinds = list(dict.fromkeys(point["kind"] for point in shown))
    base = alt.Chart().encode(
        x=alt.X(
            "bits:Q",
            title="bits up for each edge (log scale)",
            scale=alt.Scale(type="log", nice=False, padding=20),
        ),
        y=alt.Y(
            "worst:Q",
            title="accuracy of the worst group, %",
            scale=alt.Scale(zero=False, domainMin=LOWEST),
        ),
        color=alt.Color(
            "kind:N", title="ballot", sort=kinds, scale=alt.Scale(domain=kinds, range=COLOURS)
        ),
    )
    marks = base.mark_point(filled=True, size=70).encode(
        shape=alt.Shape("averaging:N", title="averaging")
    )
    names = (
        base.transform_filter("datum.best")
        .mark_text(align="left", dx=7, dy=-6, fontSize=9)
        .encode(text="label:N")
    )
    panels = alt.layer(marks, names, data=alt.Data(values=shown)).properties(width=400, height=340)
    lines = ["label: the best coarse ballot, as steps or buckets up / buckets down"]
    if below:
        lines.append(f"below {LOWEST} %, not shown: {', '.join(below)}")
    return panels.facet(column=alt.Column("setting:N", title=None)).properties(
        title=alt.TitleParams("Worst group against bits", subtitle=lines, anchor="start")
    )


def write(chart: Any, folder: Path, name: str) -> list[Path]:
    """Write NAME.svg and NAME.png into the folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    for path in paths:
        chart.save(path, scale_factor=2 if path.suffix == ".png" else 1)
    return paths
