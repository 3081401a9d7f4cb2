"""Bars and tiles: groups, their sizes and labels, and a protected attribute."""

import math

from e2fl.report.chart import ALGORITHM, Plot, Spec, colour, frame, lit, names, quantity, tip, tip_text, whole
from e2fl.report.intervals import interval
from e2fl.report.study import Study
from e2fl.report.theme import Paint

GROUPS_SHOWN = 40

SEE = {
    "accuracy": "Look for short bars: groups that an algorithm leaves behind.",
    "loss": "Look for tall bars: groups that are wrong with confidence.",
}


def group_bars(study: Study, paint: Paint, kind: str) -> Plot | None:
    """Figure 3c of the paper: every group, every contender; kind is accuracy or loss."""
    shown = groups_shown(study)
    values = _group_values(study, shown, kind)
    if not values:
        return None
    title = "accuracy, %" if kind == "accuracy" else "loss"
    place: Spec = {
        "x": names("group", len(shown)),
        "xOffset": {"field": "label", "sort": None},
        "opacity": lit(),
    }
    tips = [tip_text("group", "group"), ALGORITHM, tip("value", title, ".2f" if kind == "accuracy" else ".3f")]
    axis = quantity("value", title, zero=True)
    layers: list[Spec] = [
        {"mark": {"type": "bar"}, "encoding": place | {"y": axis, "color": colour(study, paint), "tooltip": tips}}
    ]
    caption = SEE[kind]
    if len(study.seeds) > 1:
        whisker = {"y": axis | {"field": "low"}, "y2": {"field": "high"}, "color": {"value": paint.ink}}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1}, "encoding": place | whisker})
        caption += " Thin lines: 95 % interval over seeds."
    if len(shown) < len(study.group_names):
        caption += f" Of {len(study.group_names):,} groups, the {len(shown)} lowest and highest are shown."
    alt = _alt(study, shown, kind)
    return Plot(f"group-{kind}", f"{kind.capitalize()} of each group", caption, alt, frame(paint, 300, layers, values))


def groups_shown(study: Study) -> list[str]:
    """All groups, or the lowest and highest where there are too many to draw."""
    if len(study.group_names) <= GROUPS_SHOWN:
        return study.group_names
    last = study.contenders[-1]
    ordered = sorted(study.group_names, key=lambda name: last.mean(f"groups/{name}/accuracy") or 0.0)
    return ordered[: GROUPS_SHOWN // 2] + ordered[-GROUPS_SHOWN // 2 :]


def _group_values(study: Study, shown: list[str], kind: str) -> list[Spec]:
    values = []
    top = 100.0 if kind == "accuracy" else math.inf
    for group in shown:
        for contender in study.contenders:
            by_seed = contender.by_seed(f"groups/{group}/{kind}")
            if not by_seed:
                continue
            found = interval(list(by_seed.values()))
            half = found.half or 0.0
            # An interval may reach where no accuracy or loss can be; it is drawn as far as they can.
            ends = {"low": max(0.0, found.mean - half), "high": min(top, found.mean + half)}
            values.append({"group": group, "label": contender.label, "value": found.mean} | ends)
    return values


def _alt(study: Study, shown: list[str], kind: str) -> str:
    told = []
    for contender in study.contenders:
        means = {g: value for g in shown if (value := contender.mean(f"groups/{g}/{kind}")) is not None}
        if means:
            low, high = min(means, key=lambda g: means[g]), max(means, key=lambda g: means[g])
            told.append(f"{contender.label} from {means[low]:.2f} ({low}) to {means[high]:.2f} ({high})")
    return f"Bars: {kind} by group. {'; '.join(told)}."


def sizes(study: Study, paint: Paint) -> Plot | None:
    """How many clients each group has."""
    first = study.contenders[0]
    shown = groups_shown(study)
    values: list[Spec] = [
        {"group": g, "clients": n} for g in shown if (n := first.mean(f"groups/{g}/clients")) is not None
    ]
    if not values:
        return None
    tips = [tip_text("group", "group"), tip("clients", "clients", ",")]
    axis = whole(quantity("clients", "clients", 6, zero=True))
    layer: Spec = {
        "mark": {"type": "bar", "color": paint.accent},
        "encoding": {"x": names("group", len(shown)), "y": axis, "tooltip": tips},
    }
    small, large = (extreme(values, key=lambda v: v["clients"]) for extreme in (min, max))
    told = f"from {small['clients']:.0f} ({small['group']}) to {large['clients']:.0f} ({large['group']})"
    return Plot(
        "sizes",
        "Clients of each group",
        "Small groups are the ones an average forgets.",
        f"Bars: clients by group, {told}.",
        frame(paint, 240, [layer], values),
    )


def protected(study: Study, paint: Paint) -> Plot | None:
    """EOD, DI and SPD; 0 is even."""
    measures = ["EOD", "DI", "SPD"]
    values = [
        {"label": contender.label, "measure": measure, "value": value}
        for contender in study.contenders
        for measure in measures
        if (value := contender.mean(f"protected/{measure.lower()}")) is not None and math.isfinite(value)
    ]
    if not values:
        return None
    bars: Spec = {
        "x": names("measure", len(measures)),
        "xOffset": {"field": "label", "sort": None},
        "y": quantity("value", study.protected_direction or "difference", zero=True),
        "color": colour(study, paint),
        "opacity": lit(),
        "tooltip": [tip_text("measure", "measure"), ALGORITHM, tip("value", "difference", "+.4f")],
    }
    line = {"y": {"field": "zero", "type": "quantitative"}, "color": {"value": paint.muted}}
    layers: list[Spec] = [
        {"mark": {"type": "bar"}, "encoding": bars},
        {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule"}, "encoding": line},
    ]
    told = "; ".join(f"{v['measure']} {v['value']:+.3f} ({v['label']})" for v in values)
    return Plot(
        "protected",
        "Differences between the two groups",
        "The nearer to the line at 0, the more even. Below it, the first group is at a disadvantage.",
        f"Bars. {told}.",
        frame(paint, 260, layers, values),
    )


def label_mix(study: Study, paint: Paint) -> Plot | None:
    """Which labels each group has."""
    mix: dict[str, dict[str, int]] = (study.data or {}).get("labels") or {}
    values: list[Spec] = []
    for group, counts in mix.items():
        whole = sum(counts.values()) or 1
        values += [{"group": group, "y": str(label), "share": 100 * n / whole} for label, n in counts.items()]
    if not values:
        return None
    top = max(value["share"] for value in values)
    scale = {"domain": [0, top], "range": [0.02, 1]}
    layer: Spec = {
        "mark": {"type": "rect", "color": paint.accent},
        "encoding": {
            "x": names("y", len(next(iter(mix.values()))), "label"),
            "y": {"field": "group", "type": "nominal", "sort": None, "title": None},
            "opacity": {"field": "share", "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": [tip_text("group", "group"), tip_text("y", "label"), tip("share", "share, %", ".1f")],
        },
    }
    return Plot(
        "labels",
        "Labels of each group",
        f"The stronger the colour, the more of the group's training examples have that label; at most {top:.1f} %.",
        "Tiles: the share of each label in each group; the table has the counts.",
        frame(paint, max(240, 22 * len(mix)), [layer], values),
    )
