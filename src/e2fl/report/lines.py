"""Lines: how accuracy and its spread went, by round and by bytes; how well groups were found."""

from dataclasses import dataclass

import numpy as np

from e2fl.report.chart import ALGORITHM, Plot, Spec, colour, dash, frame, lit, quantity, shape, tip, whole
from e2fl.report.contents import Moment, curve
from e2fl.report.study import Study, measured
from e2fl.report.theme import Paint


@dataclass(frozen=True)
class Side:
    """What a curve shows, and along what."""

    measure: str
    title: str
    caption: str
    along: str = "round"

    @property
    def words(self) -> str:
        return "by round" if self.along == "round" else "by bytes sent"


def curves(study: Study, paint: Paint) -> list[Plot]:
    """Mean, worst and variance, by round and by bytes."""
    found = {c.label: points for c in study.contenders if (points := curve(c, study.worst))}
    if not any(len(points) > 1 for points in found.values()):
        return []
    worst = "worst group, %" if study.group_names else "worst tenth of clients, %"
    measures = (
        ("mean", "mean of clients, %", "How well clients are served on average."),
        ("worst", worst, "How the worst off fare."),
        ("variance", "variance of clients", "How unequally clients are served; lower is more equal."),
    )
    sides = [Side(*measure, along) for measure in measures for along in ("round", "mib")]
    return [plot for side in sides if (plot := _curve(study, paint, found, side)) is not None]


def _curve(study: Study, paint: Paint, found: dict[str, list[Moment]], side: Side) -> Plot | None:
    values: list[Spec] = []
    levels: list[Spec] = []  # of algorithms that were evaluated once: they have no curve
    for label, moments in found.items():
        rows = [row for moment in moments if (row := _row(label, moment, side)) is not None]
        (values if len(moments) > 1 else levels).extend(rows)
    if not values:
        return None
    # The curves decide what is shown, not their noise: an interval over two seeds can dwarf them.
    numbers = [row["value"] for row in [*values, *levels]]
    pad = 0.06 * (max(numbers) - min(numbers)) or 1.0
    bottom = 0.0 if side.measure == "variance" else max(0.0, min(numbers) - pad)
    y = quantity("value", side.title, 5, domain=[bottom, max(numbers) + pad])
    title = "round" if side.along == "round" else "MiB sent so far, all clients, up and down"
    x = quantity("at", title, 6, nice=False, zero=side.along == "mib")
    x = whole(x) if side.along == "round" else x
    tips = [ALGORITHM, tip("round", "round", "d"), tip("value", side.title)]
    painted = {"color": colour(study, paint)}
    line = {"x": x, "y": y, "opacity": lit(), **painted}
    layers: list[Spec] = []
    if len(study.seeds) > 1:
        band = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "opacity": lit(0.1), **painted}
        layers.append({"mark": {"type": "area", "clip": True}, "encoding": band})
    layers += [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line | {"strokeDash": dash(study, paint)}},
        {
            "mark": {"type": "point", "filled": True, "size": 36},
            "encoding": line | {"shape": shape(study, paint), "tooltip": tips},
        },
    ]
    if levels:
        level = {"y": y, "opacity": lit(), "tooltip": tips, **painted}
        mark = {"type": "rule", "strokeWidth": 2, "strokeDash": [2, 3]}
        layers.append({"data": {"values": levels}, "mark": mark, "encoding": level})
    ends = {row["label"]: row["value"] for row in [*values, *levels]}
    told = "; ".join(f"{label} {value:.2f}" for label, value in ends.items())
    return Plot(
        f"curve-{side.measure}-{side.along}",
        f"{side.title.removesuffix(', %').capitalize()}, {side.words}",
        side.caption,
        f"Lines: {side.title} {side.words}. At the end: {told}.",
        frame(paint, 220, layers, values),
    )


def _row(label: str, moment: Moment, side: Side) -> Spec | None:
    at = moment.number if side.along == "round" else moment.mib
    value = getattr(moment, side.measure)
    if at is None or value is None:
        return None
    half = value.half or 0.0
    ends = {"low": value.mean - half, "high": value.mean + half}
    return {"label": label, "at": at, "round": moment.number, "value": value.mean} | ends


def inference(study: Study, paint: Paint) -> Plot | None:
    """How well groups were found, round by round."""
    values: list[Spec] = []
    for contender in study.main:
        if not any(outcome.inference for outcome in contender.outcomes):
            continue
        by_round: dict[int, list[float]] = {}
        for line in (line for outcome in contender.outcomes for line in outcome.history):
            value = measured(line, "inference/matched")
            if value is not None:
                by_round.setdefault(int(line["round"]), []).append(value)
        values += [
            {"label": contender.label, "at": number, "value": float(np.mean(found))}
            for number, found in sorted(by_round.items())
        ]
    if not values:
        return None
    shared: Spec = {
        "x": whole(quantity("at", "round", nice=False)),
        "y": quantity("value", "clients in the right group, %"),
        "color": colour(study, paint),
        "opacity": lit(),
    }
    tips = [ALGORITHM, tip("at", "round", "d"), tip("value", "right, %")]
    points = shared | {"shape": shape(study, paint), "tooltip": tips}
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": shared | {"strokeDash": dash(study, paint)}},
        {"mark": {"type": "point", "filled": True, "size": 36}, "encoding": points},
    ]
    ends = {value["label"]: value["value"] for value in values}
    told = "; ".join(f"{label} {value:.1f} %" for label, value in ends.items())
    return Plot(
        "inference",
        "Clients in the right group",
        "After the best one-to-one matching of inferred to true groups.",
        f"Lines: share of clients in the right group. At the end: {told}.",
        frame(paint, 240, layers, values),
    )
