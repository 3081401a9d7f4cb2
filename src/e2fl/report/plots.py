"""The plots of a report, as Vega-Lite specifications: plain dictionaries, checked by nobody but the browser and a test."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from e2fl.report.contents import curve, pooled
from e2fl.report.noise import interval
from e2fl.report.paint import DASHES, SHAPES, Paint
from e2fl.report.study import Contender, Study, gains, measured, pareto

Spec = dict[str, Any]

GROUPS_SHOWN = 40
POINTS_SHOWN = 4000
BINS = 40
DIM = "picked.length == 0 || indexof(picked, datum.label) >= 0"


@dataclass(frozen=True)
class Plot:
    """A picture: what it is called, what to see in it, what it says to those who cannot see it."""

    key: str
    title: str
    caption: str
    alt: str
    spec: Spec


def _frame(paint: Paint, height: int, layers: list[Spec], values: list[Spec]) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": paint.width,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": paint.config(),
        "params": [{"name": "picked", "value": []}],
        "data": {"values": values},
        "layer": layers,
    }


def _scale(study: Study, choices: list[Any]) -> Spec:
    labels = [contender.label for contender in study.contenders]
    return {"domain": labels, "range": [choices[place % len(choices)] for place in range(len(labels))]}


def _colour(study: Study, paint: Paint) -> Spec:
    scale = _scale(study, list(paint.colours))
    return {"field": "label", "type": "nominal", "scale": scale, "legend": {} if paint.legend else None}


def _shape(study: Study, paint: Paint) -> Spec:
    scale = _scale(study, list(SHAPES))
    return {"field": "label", "type": "nominal", "scale": scale, "legend": {} if paint.legend else None}


def _dash(study: Study, paint: Paint) -> Spec:
    scale = _scale(study, list(DASHES))
    return {"field": "label", "type": "nominal", "scale": scale, "legend": {} if paint.legend else None}


def _lit(full: float = 1.0) -> Spec:
    """Bright, unless the reader picked others."""
    return {"condition": {"test": DIM, "value": full}, "value": 0.08}


def _number(field: str, title: str, *, zero: bool = False, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": zero, "nice": True}, **more}


def _tip(field: str, title: str, form: str | None = ".2f") -> Spec:
    return {"field": field, "title": title} | ({"format": form, "type": "quantitative"} if form else {"type": "nominal"})


def group_bars(study: Study, paint: Paint, kind: str) -> Plot | None:
    """Figure 3c of the paper: every group, every contender."""
    shown = _groups_shown(study)
    values = []
    for group in shown:
        for contender in study.contenders:
            by_seed = contender.by_seed(f"groups/{group}/{kind}")
            if by_seed:
                found = interval(list(by_seed.values()))
                low, high = (found.mean, found.mean) if found.half is None else (found.low, found.high)
                values.append({"group": group, "label": contender.label, "value": found.mean, "low": low, "high": high})
    if not values:
        return None
    title = "accuracy, %" if kind == "accuracy" else "loss"
    place = {
        "x": {"field": "group", "type": "nominal", "sort": shown, "title": None, "axis": {"labelAngle": 0}},
        "xOffset": {"field": "label", "sort": [contender.label for contender in study.contenders]},
        "opacity": _lit(),
    }
    if len(shown) > 14:
        place["x"]["axis"] = {"labelAngle": -50}
    form = ".2f" if kind == "accuracy" else ".3f"
    bars: Spec = {
        "mark": {"type": "bar"},
        "encoding": place
        | {
            "y": _number("value", title, zero=True),
            "color": _colour(study, paint),
            "tooltip": [_tip("group", "group", None), _tip("label", "algorithm", None), _tip("value", title, form)],
        },
    }
    layers = [bars]
    if len(study.seeds) > 1:
        y = {"field": "low", "type": "quantitative"}
        errors = {"y": y, "y2": {"field": "high"}, "color": {"value": paint.ink}}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1}, "encoding": place | errors})
    some = "" if len(shown) == len(study.group_names) else f" The {len(shown)} groups with the lowest and highest are shown."
    whisker = " Thin lines: 95 % interval over seeds." if len(layers) > 1 else ""
    see = (
        "Look for short bars: groups that an algorithm leaves behind."
        if kind == "accuracy"
        else "Look for tall bars: groups whose answers are wrong with confidence."
    )
    return Plot(
        f"group-{kind}",
        f"{kind.capitalize()} of each group",
        see + whisker + some,
        _alt_groups(study, shown, kind),
        _frame(paint, 300, layers, values),
    )


def _groups_shown(study: Study) -> list[str]:
    names = study.group_names
    if len(names) <= GROUPS_SHOWN:
        return names
    first = study.contenders[-1]
    ordered = sorted(names, key=lambda name: first.mean(f"groups/{name}/accuracy") or 0.0)
    return ordered[: GROUPS_SHOWN // 2] + ordered[-GROUPS_SHOWN // 2 :]


def _alt_groups(study: Study, shown: list[str], kind: str) -> str:
    told = []
    for contender in study.contenders:
        means = {g: value for g in shown if (value := contender.mean(f"groups/{g}/{kind}")) is not None}
        if means:
            low, high = min(means, key=lambda g: means[g]), max(means, key=lambda g: means[g])
            told.append(f"{contender.label} from {means[low]:.2f} ({low}) to {means[high]:.2f} ({high})")
    return f"Bars: {kind} by group. {'; '.join(told)}."


def distribution(study: Study, paint: Paint) -> Plot | None:
    """A hill for each contender: how many clients stand where."""
    samples = {c.label: values for c in study.contenders if len(values := pooled(c))}
    if not samples:
        return None
    low = math.floor(min(values.min() for values in samples.values()))
    high = math.ceil(max(values.max() for values in samples.values()))
    edges = np.linspace(low, max(high, low + 1), BINS + 1)
    shares = {label: np.histogram(values, edges)[0] / len(values) for label, values in samples.items()}
    top = max(float(share.max()) for share in shares.values())
    hills, labels, marks = [], [], []
    for place, (label, share) in enumerate(shares.items()):
        base = len(shares) - 1 - place
        values = samples[label]
        for start, end, part in zip(edges[:-1], edges[1:], share, strict=True):
            hills.append(
                {"label": label, "from": float(start), "to": float(end), "base": base, "share": 100 * float(part), "height": base + 0.78 * float(part) / top}
            )
        labels.append({"label": label, "base": base, "at": low, "lift": base + 0.9})
        marks.append({"label": label, "base": base, "kind": "mean", "value": float(values.mean())})
    domain = [low, float(edges[-1])]
    vertical = {"type": "quantitative", "axis": None, "scale": {"domain": [0, len(shares)], "nice": False}}
    layers: list[Spec] = [
        {
            "data": {"values": hills},
            "mark": {"type": "rect"},
            "encoding": {
                "x": {"field": "from", "type": "quantitative", "title": "accuracy of a client, %", "scale": {"domain": domain, "nice": False, "zero": False}},
                "x2": {"field": "to"},
                "y": {"field": "base", **vertical},
                "y2": {"field": "height"},
                "color": _colour(study, paint),
                "opacity": _lit(0.85),
                "tooltip": [_tip("label", "algorithm", None), _tip("from", "from, %", ".1f"), _tip("to", "to, %", ".1f"), _tip("share", "clients, %", ".1f")],
            },
        },
        {
            "data": {"values": labels},
            "mark": {"type": "rule", "strokeWidth": 1},
            "encoding": {"y": {"field": "base", **vertical}, "color": {"value": paint.line}},
        },
        {
            "data": {"values": labels},
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 4, "fontWeight": "bold", "limit": 320},
            "encoding": {
                "x": {"field": "at", "type": "quantitative"},
                "y": {"field": "lift", **vertical},
                "text": {"field": "label"},
                "color": {"value": paint.ink},
                "opacity": _lit(),
            },
        },
        {
            "data": {"values": marks},
            "mark": {"type": "point", "shape": "triangle-up", "size": 70, "filled": True, "yOffset": 7},
            "encoding": {
                "x": {"field": "value", "type": "quantitative"},
                "y": {"field": "base", **vertical},
                "color": {"value": paint.ink},
                "opacity": _lit(),
                "tooltip": [_tip("label", "algorithm", None), _tip("value", "mean, %")],
            },
        },
    ]
    told = [f"{label} from {values.min():.1f} to {values.max():.1f}, mean {values.mean():.1f}" for label, values in samples.items()]
    return Plot(
        "distribution",
        "Accuracy over clients",
        "Each hill is all clients of one algorithm; the triangle is their mean. A narrow hill far to the right is fair and good; a tail to the left is people left behind.",
        f"Histograms of client accuracy in percent. {'; '.join(told)}.",
        _frame(paint, 40 + 78 * len(shares), layers, []),
    )


def gain_points(study: Study, paint: Paint) -> Plot | None:
    """Every client as a point against training alone."""
    alone = study.alone
    if alone is None:
        return None
    found = [(c, g) for c in study.main if c is not alone for g in gains(c, alone)]
    whole = sum(len(g.names) for _, g in found)
    if not whole:
        return None
    step = math.ceil(whole / POINTS_SHOWN)
    values = []
    for contender, gain in found:
        groups = gain.groups if gain.groups is not None else [""] * len(gain.names)
        for place in range(0, len(gain.names), step):
            values.append(
                {
                    "label": contender.label,
                    "client": str(gain.names[place]),
                    "group": str(groups[place]),
                    "seed": gain.seed,
                    "alone": float(gain.alone[place]),
                    "value": float(gain.accuracy[place]),
                    "gain": float(gain.accuracy[place] - gain.alone[place]),
                }
            )
    numbers = [value[key] for value in values for key in ("alone", "value")]
    low, high = math.floor(min(numbers)), math.ceil(max(numbers))
    low, high = (low - 1, high + 1) if low == high else (low, high)
    scale = {"domain": [low, high], "nice": False, "zero": False}
    ends = [{"a": low, "b": low}, {"a": high, "b": high}]
    corners = [{"a": low, "b": high, "text": "better off than alone"}, {"a": high, "b": low, "text": "worse off than alone"}]
    horizontal = {"type": "quantitative", "scale": scale, "title": "training alone, %"}
    vertical = {"type": "quantitative", "scale": scale, "title": "taking part, %"}
    layers: list[Spec] = [
        {
            "data": {"values": ends},
            "mark": {"type": "line", "strokeWidth": 1.5, "strokeDash": [4, 3]},
            "encoding": {"x": {"field": "a", **horizontal}, "y": {"field": "b", **vertical}, "color": {"value": paint.muted}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 34},
            "encoding": {
                "x": {"field": "alone", **horizontal},
                "y": {"field": "value", **vertical},
                "color": _colour(study, paint),
                "shape": _shape(study, paint),
                "opacity": _lit(0.6),
                "tooltip": [
                    _tip("client", "client", None),
                    *([_tip("group", "group", None)] if study.group_names else []),
                    _tip("label", "algorithm", None),
                    _tip("alone", "alone, %"),
                    _tip("value", "taking part, %"),
                    _tip("gain", "gain, points", "+.2f"),
                    _tip("seed", "seed", None),
                ],
            },
        },
    ]
    for corner, align, baseline in ((corners[0], "left", "top"), (corners[1], "right", "bottom")):
        mark = {"type": "text", "align": align, "baseline": baseline, "dx": 6 if align == "left" else -6, "dy": 6 if baseline == "top" else -6, "fontStyle": "italic"}
        layers.append(
            {
                "data": {"values": [corner]},
                "mark": mark,
                "encoding": {"x": {"field": "a", **horizontal}, "y": {"field": "b", **vertical}, "text": {"field": "text"}, "color": {"value": paint.muted}},
            }
        )
    worse = {c.label: 0 for c, _ in found}
    for contender, gain in found:
        worse[contender.label] += int((gain.difference < 0).sum())
    some = f" Every {step}th client is drawn; the counts are of all." if step > 1 else ""
    return Plot(
        "gains",
        "Who gains by taking part",
        "Each point is a client. Above the dashed line it does better with the others than alone; below it, it would have done better by itself." + some,
        "Scatter of clients, training alone against taking part. Worse off than alone: "
        + "; ".join(f"{label} {count:,}" for label, count in worse.items())
        + f" of {whole // max(1, len(worse)):,} clients.",
        _frame(paint, 400, layers, values),
    )


CURVES = (("mean", "mean of clients, %"), ("worst", "worst"), ("variance", "variance of clients"))


def curves(study: Study, paint: Paint) -> list[Plot]:
    """Mean, worst and variance, by round and by bytes."""
    found = {c.label: points for c in study.contenders if (points := curve(c, study.worst))}
    if not any(len(points) > 1 for points in found.values()):
        return []
    plots = []
    worst = "worst group, %" if study.group_names else "worst tenth of clients, %"
    for place, (name, title) in enumerate(CURVES):
        for by, axis in (("round", "round"), ("mib", "MiB sent so far, all clients, up and down")):
            plot = _curve(study, paint, found, (place, name, worst if name == "worst" else title), (by, axis))
            if plot is not None:
                plots.append(plot)
    return plots


def _curve(study: Study, paint: Paint, found: dict[str, Any], what: tuple[int, str, str], by: tuple[str, str]) -> Plot | None:
    place, name, title = what
    values, levels = [], []
    for label, points in found.items():
        for number, mib, measures in points:
            at = number if by[0] == "round" else mib
            value = measures[place]
            if value is None or at is None:
                continue
            low, high = (value.mean, value.mean) if value.half is None else (value.low, value.high)
            row = {"label": label, "at": at, "value": value.mean, "low": low, "high": high, "round": number}
            (values if len(points) > 1 else levels).append(row)
    if not values:
        return None
    zero = name == "variance"
    # An interval of two seeds can be wider than the plot is tall: the curves decide what is shown, not the noise.
    numbers = [row["value"] for row in [*values, *levels]]
    pad = 0.06 * (max(numbers) - min(numbers)) or 1.0
    bottom = 0.0 if zero else max(0.0, min(numbers) - pad)
    y = {"type": "quantitative", "title": title, "scale": {"domain": [bottom, max(numbers) + pad], "nice": True, "zero": False, "clamp": True}}
    x = {"field": "at", "type": "quantitative", "title": by[1], "scale": {"nice": False, "zero": by[0] == "mib"}}
    tips = [_tip("label", "algorithm", None), _tip("round", "round", "d"), _tip("value", title)]
    shared = {"color": _colour(study, paint)}
    layers: list[Spec] = []
    if len(study.seeds) > 1:
        layers.append(
            {
                "mark": {"type": "area", "clip": True},
                "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}, "opacity": _lit(0.13), **shared},
            }
        )
    layers += [
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"x": x, "y": {"field": "value", **y}, "opacity": _lit(), "strokeDash": _dash(study, paint), **shared},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 36},
            "encoding": {"x": x, "y": {"field": "value", **y}, "opacity": _lit(), "shape": _shape(study, paint), "tooltip": tips, **shared},
        },
    ]
    if levels:
        layers.append(
            {
                "data": {"values": levels},
                "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [2, 3]},
                "encoding": {"y": {"field": "value", **y}, "opacity": _lit(), "tooltip": tips, **shared},
            }
        )
    ends = {row["label"]: row["value"] for row in [*values, *levels]}
    words = "by round" if by[0] == "round" else "by bytes sent"
    note = {
        "mean": "How well clients are served on average.",
        "worst": "How the worst off fare.",
        "variance": "How unequally clients are served; lower is more equal.",
    }[name]
    flat = " A dotted level is an algorithm without rounds." if levels else ""
    band = " Shaded: 95 % interval over seeds, cut at the frame." if len(study.seeds) > 1 else ""
    return Plot(
        f"curve-{name}-{by[0]}",
        f"{title.removesuffix(', %').capitalize()}, {words}",
        note + flat + band,
        f"Lines: {title} {words}. At the end: " + "; ".join(f"{label} {value:.2f}" for label, value in ends.items()) + ".",
        _frame(paint, 220, layers, values),
    )


def tradeoff(study: Study, paint: Paint) -> list[Plot]:
    """Accuracy, equity and bytes: who is not beaten."""
    stands = pareto(study)
    if len(stands) < 2:
        return []
    values = [
        {"label": s.contender.label, "mean": s.mean, "worst": s.worst, "mib": s.mib, "front": "beaten" if s.beaten_by else "not beaten"}
        for s in stands
    ]
    worst = "worst group, %" if study.group_names else "worst tenth of clients, %"
    sides = [("mean", "mean of clients, %", "Accuracy and equity", "Up and to the right is better.")]
    if all(s.mib is not None for s in stands):
        sides.append(("mib", "MiB sent in all", "Bytes and equity", "Up and to the left is better."))
    told = "; ".join(f"{s.contender.label}: mean {s.mean:.1f}, worst {s.worst:.1f}" + (f", {s.mib:.1f} MiB" if s.mib is not None else "") for s in stands)
    plots = []
    for field, axis, title, see in sides:
        encoding = {
            "x": _number(field, axis, zero=field == "mib") | {"scale": {"zero": field == "mib", "padding": 24, "nice": True}},
            "y": _number("worst", worst) | {"scale": {"zero": False, "padding": 24, "nice": True}},
            "color": _colour(study, paint),
            "shape": _shape(study, paint),
            "opacity": _lit(),
            "tooltip": [_tip("label", "algorithm", None), _tip("mean", "mean, %"), _tip("worst", worst), _tip("mib", "MiB", ",.1f"), _tip("front", "in all three", None)],
        }
        filled: list[Spec] = [
            {"transform": [{"filter": f"datum.front == '{front}'"}], "mark": {"type": "point", "size": 150, "filled": front == "not beaten", "strokeWidth": 2.5}, "encoding": encoding}
            for front in ("not beaten", "beaten")
        ]
        plots.append(
            Plot(
                f"tradeoff-{field}",
                title,
                f"{see} Filled marks are not beaten in accuracy, worst group and bytes at once; hollow ones are.",
                f"Points: {worst} against {axis}. {told}.",
                _frame(paint, 280, filled, values),
            )
        )
    return plots


def sizes(study: Study, paint: Paint) -> Plot | None:
    """How many clients each group has."""
    first = study.contenders[0]
    shown = _groups_shown(study)
    values = [{"group": g, "clients": count} for g in shown if (count := first.mean(f"groups/{g}/clients")) is not None]
    if not values:
        return None
    angle = 0 if len(shown) <= 14 else -50
    layer: Spec = {
        "mark": {"type": "bar", "color": paint.accent},
        "encoding": {
            "x": {"field": "group", "type": "nominal", "sort": shown, "title": None, "axis": {"labelAngle": angle}},
            "y": _number("clients", "clients", zero=True),
            "tooltip": [_tip("group", "group", None), _tip("clients", "clients", ",")],
        },
    }
    small, large = min(values, key=lambda v: v["clients"]), max(values, key=lambda v: v["clients"])
    return Plot(
        "sizes",
        "Clients of each group",
        "Small groups are the ones an average forgets.",
        f"Bars: clients by group, from {small['clients']:.0f} ({small['group']}) to {large['clients']:.0f} ({large['group']}).",
        _frame(paint, 200, [layer], values),
    )


def inference(study: Study, paint: Paint) -> Plot | None:
    """How well groups were found, round by round."""
    values = []
    for contender in study.contenders:
        by_round: dict[int, list[float]] = {}
        for outcome in contender.outcomes:
            for line in outcome.history if not contender.view else ():
                value = measured(line, "inference/accuracy")
                if value is not None:
                    by_round.setdefault(int(line["round"]), []).append(value)
        values += [{"label": contender.label, "at": number, "value": float(np.mean(found))} for number, found in by_round.items()]
    if not values:
        return None
    shared: Spec = {
        "x": {"field": "at", "type": "quantitative", "title": "round", "scale": {"zero": False, "nice": False}},
        "y": _number("value", "clients in the right group, %"),
        "color": _colour(study, paint),
        "opacity": _lit(),
    }
    tips = [_tip("label", "algorithm", None), _tip("at", "round", "d"), _tip("value", "right, %")]
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": shared | {"strokeDash": _dash(study, paint)}},
        {"mark": {"type": "point", "filled": True, "size": 36}, "encoding": shared | {"shape": _shape(study, paint), "tooltip": tips}},
    ]
    ends = {value["label"]: value["value"] for value in values}
    return Plot(
        "inference",
        "Clients in the right group",
        "After the best one-to-one matching of inferred to true groups.",
        "Lines: share of clients in the right group. At the end: " + "; ".join(f"{k} {v:.1f} %" for k, v in ends.items()) + ".",
        _frame(paint, 240, layers, values),
    )


def protected(study: Study, paint: Paint) -> Plot | None:
    """EOD, DI and SPD; 0 is even."""
    values = []
    for contender in study.contenders:
        for key in ("eod", "di", "spd"):
            value = contender.mean(f"protected/{key}")
            if value is not None and math.isfinite(value):
                values.append({"label": contender.label, "measure": key.upper(), "value": value})
    if not values:
        return None
    layers: list[Spec] = [
        {
            "mark": {"type": "bar"},
            "encoding": {
                "x": {"field": "measure", "type": "nominal", "sort": ["EOD", "DI", "SPD"], "title": None, "axis": {"labelAngle": 0, "orient": "bottom", "domain": False, "ticks": False}},
                "xOffset": {"field": "label", "sort": [contender.label for contender in study.contenders]},
                "y": _number("value", study.protected_direction or "difference", zero=True),
                "color": _colour(study, paint),
                "opacity": _lit(),
                "tooltip": [_tip("measure", "measure", None), _tip("label", "algorithm", None), _tip("value", "difference", "+.4f")],
            },
        },
        {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "strokeWidth": 1}, "encoding": {"y": {"field": "zero", "type": "quantitative"}, "color": {"value": paint.muted}}},
    ]
    told = "; ".join(f"{v['measure']} {v['value']:+.3f} ({v['label']})" for v in values)
    return Plot("protected", "Differences between the two groups", "The nearer to the line at 0, the more even. Below it, the first group is at a disadvantage.", f"Bars. {told}.", _frame(paint, 260, layers, values))


def label_mix(study: Study, paint: Paint) -> Plot | None:
    """Which labels each group has."""
    mix = (study.data or {}).get("labels")
    if not mix:
        return None
    values = []
    for group, counts in mix.items():
        whole = sum(counts.values()) or 1
        values += [{"group": group, "y": str(label), "share": 100 * count / whole} for label, count in counts.items()]
    top = max(value["share"] for value in values)
    names = list(dict.fromkeys(value["y"] for value in values))
    layer: Spec = {
        "mark": {"type": "rect", "color": paint.accent},
        "encoding": {
            "x": {"field": "y", "type": "nominal", "sort": names, "title": "label", "axis": {"labelAngle": 0}},
            "y": {"field": "group", "type": "nominal", "sort": list(mix), "title": None},
            "opacity": {"field": "share", "type": "quantitative", "scale": {"domain": [0, top], "range": [0.02, 1]}, "legend": None},
            "tooltip": [_tip("group", "group", None), _tip("y", "label", None), _tip("share", "share, %", ".1f")],
        },
    }
    return Plot(
        "labels",
        "Labels of each group",
        f"The darker, the more of the group's training examples have that label; darkest is {top:.1f} %.",
        "Heat map: share of each label in each group; the table has the counts.",
        _frame(paint, max(120, 24 * len(mix)), [layer], values),
    )


