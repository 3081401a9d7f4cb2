"""Clients and contenders as points: the distribution, the gain over training alone, and the trade-off."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from e2fl.report.chart import ALGORITHM, Plot, Spec, colour, frame, lit, quantity, shape, tip, tip_text
from e2fl.report.contents import pooled
from e2fl.report.study import Contender, Front, Gains, Study, gains, pareto
from e2fl.report.theme import Paint

POINTS_SHOWN = 4000
BINS = 40
HILL = 0.72  # of the height of a row; its name stands above


def distribution(study: Study, paint: Paint) -> Plot | None:
    """A hill for each contender: how many clients stand where."""
    samples = {c.label: values for c in study.contenders if len(values := pooled(c))}
    if not samples:
        return None
    low = math.floor(min(values.min() for values in samples.values()))
    high = max(low + 1, math.ceil(max(values.max() for values in samples.values())))
    rows = len(samples)
    bases = {label: rows - 1 - place for place, label in enumerate(samples)}
    heads = [
        {"label": label, "at": low, "base": bases[label], "name": bases[label] + 0.86, "mean": float(values.mean())}
        | {"top": bases[label] + HILL}
        for label, values in samples.items()
    ]
    across = quantity("from", "accuracy of a client, %", 10, domain=[low, high], nice=False)
    up: Spec = {"type": "quantitative", "axis": None, "scale": {"domain": [0, rows], "nice": False}}
    flat = {"y": {"field": "base", **up}}
    tips = [ALGORITHM, tip("from", "from, %", ".1f"), tip("to", "to, %", ".1f"), tip("share", "clients, %", ".1f")]
    hill = {"x": across, "x2": {"field": "to"}, **flat, "y2": {"field": "height"}, "color": colour(study, paint)}
    at = {"type": "quantitative"}
    name: Spec = {
        "x": {"field": "at", **at},
        "y": {"field": "name", **up},
        "text": {"field": "label"},
        "color": {"value": paint.ink},
        "opacity": lit(),
    }
    mean: Spec = {
        "x": {"field": "mean", **at},
        **flat,
        "y2": {"field": "top"},
        "color": {"value": paint.ink},
        "opacity": lit(),
        "tooltip": [ALGORITHM, tip("mean", "mean, %")],
    }
    lettering = {"type": "text", "align": "left", "baseline": "middle", "dx": 2, "fontWeight": "bold", "limit": 300}
    ground = {**flat, "color": {"value": paint.line}}
    layers: list[Spec] = [
        {"mark": {"type": "rect"}, "encoding": hill | {"opacity": lit(0.85), "tooltip": tips}},
        {"data": {"values": heads}, "mark": {"type": "rule"}, "encoding": ground},
        {"data": {"values": heads}, "mark": lettering, "encoding": name},
        {"data": {"values": heads}, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": mean},
    ]
    told = [
        f"{label} from {values.min():.1f} to {values.max():.1f}, mean {values.mean():.1f}"
        for label, values in samples.items()
    ]
    return Plot(
        "distribution",
        "Accuracy over clients",
        "Each hill is all clients of one algorithm; the upright line is their mean. A narrow hill far to the right is "
        "fair and good; a tail to the left is people left behind.",
        f"Histograms of the accuracy of clients in percent. {'; '.join(told)}.",
        frame(paint, 40 + 78 * rows, layers, _hills(samples, bases, np.linspace(low, high, BINS + 1))),
    )


def _hills(samples: dict[str, NDArray[np.float64]], bases: dict[str, int], edges: NDArray[np.float64]) -> list[Spec]:
    shares = {label: np.histogram(values, edges)[0] / len(values) for label, values in samples.items()}
    top = max(float(share.max()) for share in shares.values())
    return [
        {
            "label": label,
            "from": float(start),
            "to": float(end),
            "base": bases[label],
            "height": bases[label] + HILL * float(part) / top,
            "share": 100 * float(part),
        }
        for label, share in shares.items()
        for start, end, part in zip(edges[:-1], edges[1:], share, strict=True)
        if part
    ]


def gain_points(study: Study, paint: Paint) -> Plot | None:
    """Every client as a point against training alone."""
    alone = study.alone
    found = [] if alone is None else [(c, g) for c in study.main if c is not alone for g in gains(c, alone)]
    whole = sum(len(gain.names) for _, gain in found)
    if not whole:
        return None
    step = math.ceil(whole / POINTS_SHOWN)
    values = [value for contender, gain in found for value in _points(contender, gain, step)]
    numbers = [value[key] for value in values for key in ("alone", "value")]
    low, high = min(numbers), max(numbers)
    pad = max(1.0, 0.07 * (high - low))  # room for the words in the corners
    low, high = low - pad, high + pad
    across = quantity("alone", "training alone, %", domain=[low, high], nice=False)
    up = quantity("value", "taking part, %", domain=[low, high], nice=False)
    tips = [
        tip_text("client", "client"),
        *([tip_text("group", "group")] if study.group_names else []),
        ALGORITHM,
        tip("alone", "alone, %"),
        tip("value", "taking part, %"),
        tip("gain", "gain, points", "+.2f"),
        tip_text("seed", "seed"),
    ]
    point: Spec = {
        "x": across,
        "y": up,
        "color": colour(study, paint),
        "shape": shape(study, paint),
        "opacity": lit(0.6),
        "tooltip": tips,
    }
    ends = [{"alone": low, "value": low}, {"alone": high, "value": high}]
    even = {"x": across, "y": up, "color": {"value": paint.muted}}
    layers: list[Spec] = [
        {
            "data": {"values": ends},
            "mark": {"type": "line", "strokeDash": [4, 3], "strokeWidth": 1.5},
            "encoding": even,
        },
        {"mark": {"type": "point", "filled": True, "size": 34}, "encoding": point},
        *(
            {
                "data": {"values": [{"alone": x, "value": y, "text": f"{text} than alone"}]},
                "mark": {"type": "text", "align": align, "baseline": side, "dx": dx, "dy": dy, "fontStyle": "italic"},
                "encoding": even | {"text": {"field": "text"}},
            }
            for x, y, text, align, side, dx, dy in (
                (low, high, "better off", "left", "top", 6, 6),
                (high, low, "worse off", "right", "bottom", -6, -6),
            )
        ),
    ]
    some = f" One client in {step} is drawn; the counts are of all." if step > 1 else ""
    return Plot(
        "gains",
        "Who gains by taking part",
        "Each point is a client. Above the dashed line it does better with the others than alone; below it, it would "
        f"have done better by itself.{some}",
        f"Points: clients, training alone against taking part. {_worse(found)}",
        frame(paint, 400, layers, values),
    )


def _points(contender: Contender, gain: Gains, step: int) -> list[Spec]:
    groups: Sequence[str] = gain.groups.tolist() if gain.groups is not None else [""] * len(gain.names)
    return [
        {
            "label": contender.label,
            "client": str(gain.names[place]),
            "group": groups[place],
            "seed": gain.seed,
            "alone": float(gain.alone[place]),
            "value": float(gain.accuracy[place]),
            "gain": float(gain.difference[place]),
        }
        for place in range(0, len(gain.names), step)
    ]


def _worse(found: Sequence[tuple[Contender, Gains]]) -> str:
    worse: dict[str, list[int]] = {}
    for contender, gain in found:
        worse.setdefault(contender.label, []).append(int((gain.difference < 0).sum()))
    told = "; ".join(f"{label} {np.mean(counts):.1f}" for label, counts in worse.items())
    return f"Worse off than alone, of {len(found[0][1].names):,} clients: {told}."


def tradeoff(study: Study, paint: Paint) -> list[Plot]:
    """Accuracy, equity and bytes: who is not beaten."""
    stands = pareto(study)
    if len(stands) < 2:
        return []
    sides = [("mean", "mean of clients, %", "Accuracy and equity", "Up and to the right is better.")]
    if all(stand.mib is not None for stand in stands):
        sides.append(("mib", "MiB sent in all", "Bytes and equity", "Up and to the left is better."))
    return [_tradeoff(study, paint, stands, side) for side in sides]


def _tradeoff(study: Study, paint: Paint, stands: Sequence[Front], side: tuple[str, str, str, str]) -> Plot:
    field, axis, title, see = side
    worst = "worst group, %" if study.group_names else "worst tenth of clients, %"
    values = [
        {"label": s.contender.label, "mean": s.mean, "worst": s.worst, "mib": s.mib}
        | {"front": "beaten" if s.beaten_by else "not beaten"}
        for s in stands
    ]
    scale = {"zero": True} if field == "mib" else {"padding": 24}
    encoding: Spec = {
        "x": quantity(field, axis, **scale),
        "y": quantity("worst", worst, padding=24),
        "color": colour(study, paint),
        "shape": shape(study, paint),
        "opacity": lit(),
        "tooltip": [
            ALGORITHM,
            tip("mean", "mean, %"),
            tip("worst", worst),
            *([tip("mib", "MiB", ",.1f")] if values[0]["mib"] is not None else []),
            tip_text("front", "in all three"),
        ],
    }
    layers: list[Spec] = [
        {
            "transform": [{"filter": f"datum.front == '{front}'"}],
            "mark": {"type": "point", "size": 150, "filled": front == "not beaten", "strokeWidth": 2.5},
            "encoding": encoding,
        }
        for front in ("not beaten", "beaten")
    ]
    told = "; ".join(
        f"{s.contender.label}: mean {s.mean:.1f}, worst {s.worst:.1f}" + ("" if s.mib is None else f", {s.mib:.1f} MiB")
        for s in stands
    )
    return Plot(
        f"tradeoff-{field}",
        title,
        f"{see} Filled marks are not beaten in everything at once; hollow ones are.",
        f"Points: {worst} against {axis}. {told}.",
        frame(paint, 280, layers, values),
    )
