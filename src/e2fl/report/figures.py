"""The key figures: the numbers that a reader should see first."""

from dataclasses import dataclass

import numpy as np

from e2fl.metrics.intervals import FEW, mean_test, welch
from e2fl.report.methods import all_by_chance
from e2fl.report.study import Method, Study, difference
from e2fl.report.verdict import (
    ONE_RUN,
    SMALL,
    Pair,
    amount,
    by_chance,
    chosen,
    clients,
    judged,
    points,
    span,
    subject_of,
    worse_off,
    worst_name,
)

LEVEL = 0.05


@dataclass(frozen=True)
class KeyFigure:
    """A number that a reader should see first."""

    title: str
    value: str
    detail: str


def key_figures(study: Study) -> list[KeyFigure]:
    """Return key figures: the worst group, the gap, the best method, who is worse off."""
    subject, pair, alone = subject_of(study), chosen(study), study.alone
    figures = [_worst_figure(study, subject), _gap_figure(study, subject)]
    figures.append(None if pair is None else _best_figure(study, pair))
    if alone is not None and not subject.alone and (worse := worse_off(subject, alone)) is not None:
        detail = f"with {subject.label}" + (f", mean over {worse[2]} seeds" if worse[2] > 1 else "")
        value = f"{amount(worse[0])} of {clients(worse[1])}"
        figures.append(KeyFigure("Worse off than training on their own", value, detail))
    return [figure for figure in figures if figure is not None]


def _worst_figure(study: Study, subject: Method) -> KeyFigure | None:
    interval = subject.interval(study.worst)
    if interval is None:
        return None
    value = f"{interval.value:.1f} %"
    best = subject.mean(study.worst.replace("worst", "best"))
    if best is not None and best - interval.value < SMALL:
        what = "groups" if study.group_names else "clients"
        return KeyFigure(
            study.worst_label.capitalize(),
            value,
            f"All {what} have this accuracy with {subject.label}.",
        )
    lowest = sorted({name for seed in subject.seeds for name in subject.lowest_groups(seed)})
    if study.worst_label.endswith("group") and len(lowest) == 1:
        value = f"{lowest[0]}: {value}"
    detail = f"accuracy with {subject.label}"
    if study.worst_label.endswith("group") and len(lowest) > 1:
        detail += f"{worst_name(subject)}"
    if interval.low is not None and interval.high is not None:
        detail += f"; 95 % interval {interval.low:.1f} to {interval.high:.1f}"
    judgement = by_chance(subject, study.worst) or _certain(study, subject, lowest)
    return KeyFigure(study.worst_label.capitalize(), value, f"{detail}.{judgement}")


def _certain(study: Study, method: Method, lowest: list[str]) -> str:
    """Return whether the worst group is truly worse; the p-value allows for choosing the group."""
    if len(lowest) != 1 or len(study.group_names) < 2:
        return ""
    pairs = []
    for seed in method.seeds:
        members = method.members(seed)
        own = np.array(list(members.get(lowest[0], {}).values()))
        others = [values.values() for name, values in members.items() if name != lowest[0]]
        rest = np.array([value for values in others for value in values])
        if not len(own) or not len(rest) or not np.isfinite([*own, *rest]).all():
            return ""
        pairs.append((own, rest))
    if len(pairs) > 1:
        p = mean_test(np.array([float(own.mean() - rest.mean()) for own, rest in pairs]))
    elif min(len(values) for values in pairs[0]) < FEW:
        return f" Too few clients ({len(pairs[0][0])}) to judge whether this is chance."
    else:
        p = welch(*pairs[0])
    if p * len(study.group_names) < LEVEL:
        return " Lower than the other groups, statistically significant (95 %)."
    return " It may be lower than the other groups by chance."


def _gap_figure(study: Study, subject: Method) -> KeyFigure | None:
    best, worst = subject.mean(study.worst.replace("worst", "best")), subject.mean(study.worst)
    if best is None or worst is None or len(study.group_names) == 1:
        return None
    title = "Gap between best and worst group"
    if not study.worst_label.endswith("group"):
        title = f"Gap between best and {study.worst_label}"
    pair = chosen(study)
    detail = f"percentage points with {subject.label}"
    if pair is not None:
        values = [
            pair.baseline.mean(key) for key in (study.worst.replace("worst", "best"), study.worst)
        ]
        if values[0] is not None and values[1] is not None:
            detail += f"; {values[0] - values[1]:.1f} with {pair.baseline.label}"
    return KeyFigure(title, f"{best - worst:.1f}", detail)


def _best_figure(study: Study, pair: Pair) -> KeyFigure | None:
    interval = difference(pair.subject, pair.baseline, study.worst)
    if interval is None:
        return None
    title = f"Best for the {study.worst_label}"
    against = "training alone" if pair.baseline.alone else pair.baseline.label
    if all_by_chance(study.main, study.worst):
        return KeyFigure(title, "not known", "Chance alone explains the spread of every method.")
    if abs(interval.value) < SMALL:
        return KeyFigure(title, "no difference", f"{pair.subject.label} and {against}")
    best = pair.subject.label if interval.value > 0 else against
    other = against if interval.value > 0 else pair.subject.label
    detail = f"{points(interval.value)} more than {other}. "
    if interval.over == "seeds" and interval.low is not None:
        detail += f"Over {interval.count} seeds, this {judged(interval)} ({span(interval)})."
    elif interval.low is not None:
        detail += f"Over clients: {span(interval)}. {ONE_RUN}"
    else:
        detail += ONE_RUN if interval.count else "They share no seed, so this may be chance."
    return KeyFigure(title, best, detail)
