"""The verdict and the key figures: what a reader should know first, computed from the numbers.

They compare two of the methods that train together: the best and the second best for the worst
group. Views of the same run appear in the tables only. What chance alone explains is not called a
difference. verdict.j2 holds the sentences.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from e2fl.metrics import Interval
from e2fl.metrics.inequality import Numbers
from e2fl.metrics.intervals import FEW, mean_test, welch
from e2fl.report.charts import counted
from e2fl.report.study import Method, Study, difference, worse_off
from e2fl.report.table import all_by_chance, environment

SMALL = 0.05  # percentage points: what rounds to 0.0 is not called a difference
LEVEL = 0.05  # of the test whether the worst group is truly worse
ONE_RUN = "One run only, so this may be chance. Repeat with three or more seeds."


class Pair(NamedTuple):
    """The methods that the verdict compares."""

    subject: Method
    baseline: Method

    @property
    def against(self) -> str:
        """The name of the baseline in a sentence."""
        return "training alone" if self.baseline.alone else self.baseline.label


class KeyFigure(NamedTuple):
    """A number that a reader should see first."""

    title: str
    value: str
    detail: str


class Level(NamedTuple):
    """Accuracies of a method: of clients on average, of the worst, and up to the best."""

    mean: float
    worst: float
    gap: float


def chosen(study: Study) -> Pair | None:
    """Return the pair the verdict is about; None if there is nothing to compare."""
    if len(study.main) < 2:
        return None

    def rank(method: Method) -> tuple[bool, float, float]:
        worst, mean = (method.mean(key) for key in (study.worst, "clients/mean"))
        low = float("-inf")
        return not method.alone, low if worst is None else worst, low if mean is None else mean

    ranked = sorted(study.main, key=rank, reverse=True)
    return Pair(ranked[0], ranked[1])


def subject_of(study: Study) -> Method:
    """Return the method the page describes first."""
    pair = chosen(study)
    return study.main[0] if pair is None else pair.subject


def verdict(study: Study) -> str:
    """Return the verdict, in plain words."""
    pair, alone, subject = chosen(study), study.alone, subject_of(study)
    worst, mean = (pair and difference(*pair, key) for key in (study.worst, "clients/mean"))
    better = None if alone is None else difference(alone, subject, study.worst)
    counts = {
        method.label: int(method.final["diverged"].fillna(0).max())
        for method in study.methods
        if "diverged" in method.final
    }
    opportunity = {
        method.label: method.mean("protected/eod")
        for method in ((study.main[0],) if pair is None else pair)
        if study.protected_groups and "protected/di" in method.final
    }
    template = environment("e2fl.report", escape=False).get_template("verdict.j2")
    text = template.render(
        study=study,
        diverged={label: count for label, count in counts.items() if count},
        first=study.main[0],
        level=_level(study, study.main[0]),
        subject=subject,
        against="" if pair is None else pair.against,
        worst=worst,
        mean=mean,
        by_chance=_none_is_better(study, worst),
        together=sum(not method.alone for method in study.main),
        worse=None if alone is None else worse_off(subject, alone),
        alone_better=better.value if pair and pair.baseline is not alone and better else 0.0,
        opportunity=opportunity,
        small=SMALL,
        one_run=ONE_RUN,
        way=lambda value: "better" if value > 0 else "worse",
        **{word.__name__: word for word in (points, counted, amount, span, explained, worst_name)},
    )
    return " ".join(text.split())


def _none_is_better(study: Study, worst: Interval | None) -> bool:
    """Return whether chance explains the worst group of every method, and the best two differ by no
    more than chance.
    """
    differ = worst is not None and worst.may_be_chance is False
    return all_by_chance(study.main, study.worst) and not differ


def _level(study: Study, method: Method) -> Level | None:
    mean, worst, best = (method.mean(key) for key in ("clients/mean", study.worst, study.best))
    if mean is None or worst is None:
        return None
    return Level(mean, worst, 0.0 if best is None else best - worst)


def points(value: float) -> str:
    """Return an amount in percentage points, without its sign."""
    return f"{abs(value):.1f} percentage points"


def amount(value: float) -> str:
    """Return a count that may be a mean."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def span(interval: Interval) -> str:
    """Return the interval of a difference, in words."""
    text = f"95 % interval {interval.low or 0.0:+.1f} to {interval.high or 0.0:+.1f}"
    return text.replace("-", "\N{MINUS SIGN}")


def explained(method: Method, key: str) -> str:
    """Return a sentence about what chance alone gives, if it explains a spread."""
    if not method.by_chance(key):
        return ""
    value = method.chance[key].value
    return f" Chance alone explains this: clients that are served alike give about {value:.1f} %."


def worst_name(method: Method) -> str:
    """Return the worst group, and in how many runs, in brackets; empty if several are worst."""
    lowest = [method.lowest_groups(seed) for seed in method.seeds]
    if any(len(names) != 1 for names in lowest):
        return ""
    name, times = Counter(names[0] for names in lowest).most_common(1)[0]
    if times == len(lowest):
        return f" ({name})"
    if times == 1:
        return " (another group in each seed)"
    return f" ({name} in {times} of {len(lowest)} seeds)"


def key_figures(study: Study) -> list[KeyFigure]:
    """Return key figures: the worst group, the gap, the best method, who is worse off."""
    subject, pair, alone = subject_of(study), chosen(study), study.alone
    figures = [_worst_figure(study, subject), _gap_figure(study, subject, pair)]
    figures.append(None if pair is None else _best_figure(study, pair))
    if alone is not None and not subject.alone and (worse := worse_off(subject, alone)) is not None:
        detail = f"with {subject.label}" + (f", mean over {worse[2]} seeds" if worse[2] > 1 else "")
        value = f"{amount(worse[0])} of {counted(worse[1])}"
        figures.append(KeyFigure("Worse off than training on their own", value, detail))
    return [figure for figure in figures if figure is not None]


def _worst_figure(study: Study, subject: Method) -> KeyFigure | None:
    interval, level = subject.interval(study.worst), _level(study, subject)
    if interval is None:
        return None
    title, value = study.worst_label.capitalize(), f"{interval.value:.1f} %"
    if level is not None and level.gap < SMALL and subject.mean(study.best) is not None:
        what = "groups" if study.group_names else "clients"
        return KeyFigure(title, value, f"All {what} have this accuracy with {subject.label}.")
    lowest = {name for seed in subject.seeds for name in subject.lowest_groups(seed)}
    detail = f"accuracy with {subject.label}"
    if study.worst_label.endswith("group"):
        value = f"{min(lowest)}: {value}" if len(lowest) == 1 else value
        detail += worst_name(subject) if len(lowest) > 1 else ""
    if interval.low is not None:
        detail += f"; 95 % interval {interval.low:.1f} to {interval.high:.1f}"
    judgement = explained(subject, study.worst)
    if not judgement and len(lowest) == 1 and len(study.group_names) > 1:
        judgement = _judgement(study, subject, min(lowest))
    return KeyFigure(title, value, f"{detail}.{judgement}")


def _judgement(study: Study, method: Method, lowest: str) -> str:
    """Return whether the worst group is truly worse; the p-value allows for choosing the group."""
    pairs: list[tuple[Numbers, Numbers]] = []
    for seed in method.seeds:
        values = {name: np.asarray(rows, np.float64) for name, rows in method.members(seed).items()}
        own = values.pop(lowest, np.empty(0))
        rest = np.concatenate([*values.values(), np.empty(0)])
        if not len(own) or not len(rest) or not np.isfinite([*own, *rest]).all():
            return ""
        pairs.append((own, rest))
    if len(pairs) > 1:
        p = mean_test(np.array([own.mean() - rest.mean() for own, rest in pairs]))
    elif min(map(len, pairs[0])) < FEW:
        few = f"Too few clients ({len(pairs[0][0])}) to judge whether this is"
        if (gap := method.chance.get("group/tenths")) is None:
            return f" {few} chance."
        what = "Best and worst differ by more than chance explains: clients that are served alike"
        return f" {what} differ by about {points(gap.value)}. {few} the group or the client."
    else:
        p = welch(*pairs[0])
    if p * len(study.group_names) < LEVEL:
        return " Lower than the other groups, statistically significant (95 %)."
    return " It may be lower than the other groups by chance."


def _gap_figure(study: Study, subject: Method, pair: Pair | None) -> KeyFigure | None:
    gaps = [
        f"{ends[1] - ends[0]:.1f}"
        for method in (pair or (subject,))
        if (ends := method.means(study.worst, study.best)) is not None
    ]
    if subject.means(study.worst, study.best) is None or len(study.group_names) == 1:
        return None
    single = study.worst_label.endswith("group")
    title = f"Gap between best and {'worst group' if single else study.worst_label}"
    detail = f"percentage points with {subject.label}"
    if pair is not None and len(gaps) == 2:
        detail += f"; {gaps[1]} with {pair.baseline.label}"
    return KeyFigure(title, gaps[0], detail)


def _best_figure(study: Study, pair: Pair) -> KeyFigure | None:
    interval = difference(*pair, study.worst)
    if interval is None:
        return None
    title, names = f"Best for the {study.worst_label}", (pair.subject.label, pair.against)
    if _none_is_better(study, interval):
        return KeyFigure(title, "not known", "Chance alone explains the spread of every method.")
    if abs(interval.value) < SMALL:
        return KeyFigure(title, "no difference", " and ".join(names))
    best, other = names if interval.value > 0 else names[::-1]
    if interval.over == "seeds" and interval.low is not None:
        judged = "may be chance" if interval.may_be_chance else "is statistically significant"
        why = f"Over {interval.count} seeds, this {judged} ({span(interval)})."
    elif interval.low is not None:
        why = f"Over clients: {span(interval)}. {ONE_RUN}"
    else:
        why = ONE_RUN if interval.count else "They share no seed, so this may be chance."
    return KeyFigure(title, best, f"{points(interval.value)} more than {other}. {why}")
