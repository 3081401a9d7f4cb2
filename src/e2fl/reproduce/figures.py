"""The figures from the ledger, as Vega-Lite charts: SVG and PNG."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e2fl.errors import ConfigError
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.studies import RULES
from e2fl.reproduce.tables import seeds_text

Chart = Any  # of altair, which is optional

# Ten groups in a circle of angles: a scale that ends in the colour it starts from, readable without colour vision by
# the group's label at the end of each line.
SCHEME = "turbo"
# Okabe and Ito's palette.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
GM = "E2FL (GM)"
LOWEST = 75  # percent; ballots that serve the worst group worse are named below the figure's title


def figure3(entries: Sequence[Entry], samples: int, seed: int = 0) -> Chart | None:
    """Return the test loss of each group by round, for FedAvg, E2FL and its global model; None if nothing was run."""
    rows = loss_rows(entries, seed)
    if not rows:
        return None
    alt = _altair()
    groups = sorted({row["group"] for row in rows}, key=lambda name: int(name[1:]) if name[1:].isdigit() else 0)
    present = [name for name in ("FedAvg", "E2FL", GM) if any(row["method"] == name for row in rows)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("round:Q", title="round", scale=alt.Scale(domainMin=0)),
        y=alt.Y("loss:Q", title="test loss (log scale)", scale=alt.Scale(type="log", nice=False, padding=8)),
        color=alt.Color("group:N", title="group", sort=groups, scale=alt.Scale(scheme=SCHEME)),
    )
    lines = base.mark_line(point=True, strokeWidth=1.5)
    last = max(row["round"] for row in rows)
    names = (
        base.transform_filter(f"datum.round == {last}").mark_text(align="left", dx=5, fontSize=9).encode(text="group:N")
    )
    return (
        alt.layer(lines, names)
        .properties(width=230, height=240)
        .facet(column=alt.Column("method:N", title=None, sort=present))
        .properties(title=f"FairMNISTRotate, {samples} images per client, seed {seed}: the loss of each group")
    )


def loss_rows(entries: Sequence[Entry], seed: int = 0) -> list[dict[str, Any]]:
    """Return method, round, group and loss, for the rounds that all methods have."""
    runs = {entry.method: entry for entry in entries if entry.seed == seed}
    shown: list[tuple[str, Entry, str | None]] = []
    if "fedavg" in runs:
        shown.append(("FedAvg", runs["fedavg"], None))
    if "e2fl" in runs:
        shown += [("E2FL", runs["e2fl"], None), (GM, runs["e2fl"], "global")]
    if not shown:
        return []
    end = min(entry.rounds for _, entry, _ in shown)
    if sum(line["round"] <= end for line in shown[0][1].history) < 2:
        return []  # no line can be drawn through one point
    rows = []
    for method, entry, view in shown:
        for line in entry.history:
            part = line if view is None else line.get("views", {}).get(view, {})
            if line["round"] <= end:
                rows += [
                    {"method": method, "round": line["round"], "group": group, "loss": round(found["loss"], 5)}
                    for group, found in part.get("groups", {}).items()
                ]
    return rows


def figure_inference(entries: Sequence[Entry], samples: int) -> Chart | None:
    """Return the share of clients in the right group over rounds, by rule; None if nothing was run."""
    rows = matched_rows(entries)
    if not rows:
        return None
    alt = _altair()
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("round:Q", title="round"),
        y=alt.Y("matched:Q", title="clients in the right group, %", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("rule:N", title="rule", sort=rules, scale=alt.Scale(domain=rules, range=COLOURS)),
    )
    lines = base.transform_filter("!datum.all").mark_line(strokeWidth=1.5)
    points = base.transform_filter("datum.all").mark_point(filled=True, size=60)
    shown = (
        lines.encode(strokeDash=alt.StrokeDash("start:N", title="first masks")),
        points.encode(shape=alt.Shape("start:N", title="first masks, all clients")),
    )
    seeds = seeds_text(max(row["seeds"] for row in rows))
    title = f"FairMNISTRotate, {samples} images per client, {seeds}: groups that clients find"
    subtitle = "lines: clients as they last took part; points: all clients choose again with the current masks"
    return alt.layer(*shown).properties(
        width=520, height=280, title=alt.TitleParams(title, subtitle=subtitle, anchor="start")
    )


def matched_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return rule, first masks, round, number of seeds and percent matched, averaged over the seeds.

    `all` tells an evaluation, of all clients, from a round of training, of the clients that have taken part so far.
    """
    rows = []
    for rule in RULES:
        for method, start in ((rule, "random"), (f"{rule}_warm", "clustered (warm)")):
            found: dict[tuple[bool, int], list[float]] = {}
            for entry in (entry for entry in entries if entry.method == method):
                for place, matched in _matched(entry).items():
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


def _matched(entry: Entry) -> dict[tuple[bool, int], float]:
    """Return the percent matched of one run, by whether all clients were evaluated and by round."""
    lines = [(line["round"], line["inference"]) for line in entry.history if line.get("inference")]
    found = {(True, number): inference["matched"] for number, inference in lines}
    found |= {(False, part["round"]): part["matched"] for _, inference in lines for part in inference.get("rounds", ())}
    return found


def worth_drawing(points: Sequence[dict[str, Any]]) -> bool:
    """Return whether the runs use more than one ballot format."""
    return len({point["ballot"] for point in points}) > 1


def figure_ballots(points: Sequence[dict[str, Any]]) -> Chart | None:
    """Return the accuracy of the worst group against bits sent per edge; None if there is nothing to compare."""
    if not worth_drawing(points):
        return None
    alt = _altair()
    coarse = [point for point in points if point["kind"] != "exact"]
    best = {point["setting"]: point for point in sorted(coarse, key=lambda point: point["worst"])}
    shown = [point | {"best": point in best.values()} for point in points if point["worst"] >= LOWEST]
    below = [
        f"{point['ballot']} {point['worst']:.0f} % ({point['setting']})" for point in points if point["worst"] < LOWEST
    ]
    kinds = list(dict.fromkeys(point["kind"] for point in shown))
    base = alt.Chart().encode(
        x=alt.X(
            "bits:Q", title="bits up for each edge (log scale)", scale=alt.Scale(type="log", nice=False, padding=20)
        ),
        y=alt.Y("worst:Q", title="accuracy of the worst group, %", scale=alt.Scale(zero=False, domainMin=LOWEST)),
        color=alt.Color("kind:N", title="ballot", sort=kinds, scale=alt.Scale(domain=kinds, range=COLOURS)),
    )
    marks = base.mark_point(filled=True, size=70).encode(shape=alt.Shape("averaging:N", title="averaging"))
    names = base.transform_filter("datum.best").mark_text(align="left", dx=7, dy=-6, fontSize=9).encode(text="label:N")
    panels = alt.layer(marks, names, data=alt.Data(values=shown)).properties(width=400, height=340)
    lines = ["label: the best coarse ballot, as steps or buckets up / buckets down"]
    if below:
        lines.append(f"below {LOWEST} %, not shown: {', '.join(below)}")
    return panels.facet(column=alt.Column("setting:N", title=None)).properties(
        title=alt.TitleParams("Worst group against bits", subtitle=lines, anchor="start")
    )


def write(chart: Chart, folder: Path, name: str) -> list[Path]:
    """Write NAME.svg and NAME.png into the folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    for path in paths:
        chart.save(path, scale_factor=2 if path.suffix == ".png" else 1)
    return paths


def _altair() -> Any:
    if find_spec("altair") is None or find_spec("vl_convert") is None:  # altair writes SVG and PNG with the latter
        raise ConfigError("figures need the extra 'report': pip install 'e2fl[report]'")
    import altair

    return altair
