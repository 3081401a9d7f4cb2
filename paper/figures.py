"""The figures: rows from the ledger in the Vega-Lite templates `templates/NAME.json`."""

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair
import pandas as pd

from paper.ledger import HERE, Json
from paper.tables import labelled, seeds_text, select

SAMPLES: dict[int, Json] = {233: {}, 60: {"data.samples_per_client": 60}}  # images, and overrides
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]  # Okabe and Ito's
DRAWN = {"FedAvg": ("fedavg", ""), "E2FL": ("e2fl", ""), "E2FL (GM)": ("e2fl", "global")}
RULES = ("lowest_loss", "binary", "one_shot")
LOWEST = 75  # percent; ballots that serve the worst group worse are named below the figure's title
PLOTTED = {"demo": "ballots", "60 images, LeNet of the paper": "ballots_wide"}  # tables
KINDS = {"exact": "exact", "moves": "moves", "boundary": "boundary", "a mask": "a mask (FedPM)"}


def charts(frame: pd.DataFrame) -> dict[str, Any]:
    """Return every figure that the ledger has data for, by the name of its files."""
    made = {}
    for samples, overrides in SAMPLES.items():
        made[f"figure3-{samples}"] = figure3(select(frame, "table1", overrides), samples)
        rows = select(frame, "inference", overrides)
        made[f"inference-{samples}"] = figure_inference(rows, samples)
    made["ballots"] = figure_ballots(frame)
    return {name: chart for name, chart in made.items() if chart is not None}


def _chart(
    name: str, values: Sequence[Json], kinds: Sequence[str], lines: Sequence[str] = (), **words: Any
) -> Any:
    """Return the chart of a template with these values, in colours by kind.

    lines: added to the subtitle; words: filled into the title.
    """
    spec: Json = json.loads((HERE / "templates" / f"{name}.json").read_text(encoding="utf-8"))
    colour = spec.get("spec", spec)["encoding"]["color"]
    colour["sort"] = list(kinds)
    if "domain" in colour["scale"]:
        colour["scale"] |= {"domain": list(kinds), "range": COLOURS}
    spec["title"]["text"] = spec["title"]["text"].format(**words)
    if lines:
        spec["title"]["subtitle"] += lines
    return altair.Chart.from_dict(spec | {"data": {"values": list(values)}})


def figure3(rows: pd.DataFrame, samples: int, seed: int = 0) -> Any | None:
    """Return the test loss of each group by round, for FedAvg, E2FL and its global model.

    It has the rounds that all methods have; None if these are fewer than two.
    """
    own = rows[(rows["seed"] == seed) & rows["method"].isin(["fedavg", "e2fl"])]
    runs = own.groupby("method")["run"].first().to_dict()
    end = min((run.reached for run in runs.values()), default=0)
    drawn = [
        {"method": name, "round": line["round"], "group": group, "loss": round(part["loss"], 5)}
        for name, (method, view) in DRAWN.items()
        for line in (runs[method].rounds if method in runs else ())
        if line["round"] <= end
        for group, part in (line["views"][view] if view else line)["groups"].items()
    ]
    if len({row["round"] for row in drawn}) < 2:
        return None
    values = [row | {"last": row["round"] == end} for row in drawn]
    groups = sorted({row["group"] for row in drawn}, key=lambda name: (len(name), name))
    return _chart("figure3", values, groups, samples=samples, seed=seed)


def figure_inference(rows: pd.DataFrame, samples: int, seed: int = 0) -> Any | None:
    """Return the percent of clients in the right group over rounds, by rule, averaged over seeds.

    `all` tells an evaluation, of all clients, from a round of training, of the clients that have
    taken part so far.
    """
    drawn: list[Any] = []
    for rule, start in itertools.product(RULES, ("random", "clustered")):
        own = rows[rows["method"] == (rule if start == "random" else f"{rule}_{start}")]
        points = [
            (everyone, part["round"], part["matched"])
            for run in own.drop_duplicates("seed")["run"]
            for line in run.rounds
            for everyone, part in _matched(line)
        ]
        made = pd.DataFrame(points, columns=["all", "round", "matched"])
        means = made.groupby(["all", "round"], as_index=False)["matched"].agg(["count", "mean"])
        means = means.rename(columns={"count": "seeds", "mean": "matched"})
        drawn += means.assign(rule=rule.replace("_", " "), start=start).to_dict("records")
    if not drawn:
        return None
    rules = list(dict.fromkeys(row["rule"] for row in drawn))
    seeds = seeds_text(max(row["seeds"] for row in drawn))
    return _chart("inference", drawn, rules, samples=samples, seeds=seeds)


def _matched(line: Json) -> list[tuple[bool, Json]]:
    """Return an evaluation, of all clients, and rounds of training before it."""
    inference = line.get("inference")
    if not inference:
        return []
    parts = [(False, part) for part in inference.get("rounds", ())]
    return [(True, {"round": line["round"], "matched": inference["matched"]}), *parts]


def figure_ballots(frame: pd.DataFrame) -> Any | None:
    """Return the accuracy of the worst group against bits sent per edge, over all seeds."""
    points = []
    for setting, name in PLOTTED.items():
        rows = labelled(name, frame)
        for (ballot, downlink, averaging), repeats in rows.items():
            up, worst = (repeats.mean(path) for path in ("bits/up_per_edge", "group/worst10"))
            kinds = [kind for start, kind in KINDS.items() if ballot.startswith(start)]
            if up and worst:
                point: Json = {"setting": setting, "ballot": ballot, "averaging": averaging}
                point |= {"bits": round(up.value, 4), "worst": round(worst.value, 3)}
                point |= {"kind": (kinds or ["buckets"])[0], "label": _label(ballot, downlink)}
                points.append(point)
    if len({point["ballot"] for point in points}) < 2:
        return None
    coarse = [point for point in points if point["kind"] != "exact"]
    best = {point["setting"]: point for point in sorted(coarse, key=lambda point: point["worst"])}
    drawn = [point | {"best": point in best.values()} for point in points]
    shown = [point for point in drawn if point["worst"] >= LOWEST]
    below = [f"{p['ballot']} {p['worst']:.0f} % ({p['setting']})" for p in drawn if p not in shown]
    lines = [f"below {LOWEST} %, not shown: {', '.join(below)}"] if below else []
    return _chart("ballots", shown, list(dict.fromkeys(p["kind"] for p in shown)), lines=lines)


def _label(*sent: str) -> str:
    """Return the buckets or steps that are sent up and down, and how much finer near the cut."""
    texts = [
        f"{len(name.split())} uneven"
        if name.startswith("uneven")
        else "x".join(re.findall(r"\d+(?= (?:steps|buckets|x))", name))
        for name in sent
    ]
    return "/".join(filter(None, texts))


def write(chart: Any, folder: Path, name: str) -> list[Path]:
    """Write NAME.svg and NAME.png into the folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    for path in paths:
        chart.save(path, scale_factor=2 if path.suffix == ".png" else 1)
    return paths
