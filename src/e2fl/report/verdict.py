"""The verdict and the key figures: what a reader should know first, computed from the numbers.

They compare two of the methods that train together: the best and the second best for the worst
group. Views of the same run appear in the tables only. What chance alone explains is not called a
difference. verdict.j2 holds the sentences.
"""

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from e2fl.metrics import Interval
from e2fl.metrics.intervals import FEW
from e2fl.report.charts import counted
from e2fl.report.study import Method, Study, worse_off
from e2fl.report.table import all_by_chance, environment

SMALL = 0.05  # percentage points: what rounds to 0.0 is not called a difference
ONE_RUN = "One run only, so this may be chance. Repeat with three or more seeds."


class KeyFigure(NamedTuple):
    """A number that a reader should see first."""

    title: str
    value: str
    detail: str


class Verdict(NamedTuple):
    """The verdict in plain words, and the key figures."""

    text: str
    figures: list[KeyFigure]


@lru_cache(maxsize=1)
def verdict(study: Study) -> Verdict:
    """Return the verdict on a study; terminal, page, files and Python share it."""
    subject, alone = study.subject, study.alone
    worst, mean = (study.lead(key) for key in (study.worst, "clients/mean"))
    differ = worst is not None and worst.may_be_chance is False
    by_chance = all_by_chance(study.main, study.worst) and not differ
    other = alone if alone is not subject else None
    worse = None if other is None else worse_off(subject, other)
    above = None if other is None else subject.interval(study.worst, other)
    words = (points, counted, amount, span, explained, worst_name)
    template = environment("e2fl.report", escape=False).get_template("verdict.j2")
    text = template.render(
        study=study,
        diverged=_diverged(study),
        opportunity=_opportunity(study),
        subject=subject,
        level=[subject.mean(key) for key in ("clients/mean", study.worst)],
        gap=gap(study, subject) or 0.0,
        against=against(study),
        worst=worst,
        mean=mean,
        by_chance=by_chance,
        together=sum(not method.alone for method in study.main),
        worse=worse,
        alone_better=0.0 if above is None or len(study.main) < 3 else -above.value,
        small=SMALL,
        one_run=ONE_RUN,
        way=lambda value: "better" if value > 0 else "worse",
        **{word.__name__: word for word in words},
    )
    figures = [_worst_figure(study), _gap_figure(study), _best_figure(study, worst, by_chance)]
    if worse is not None:
        detail = f"with {subject.label}" + (f", mean over {worse[2]} seeds" if worse[2] > 1 else "")
        value = f"{amount(worse[0])} of {counted(worse[1])}"
        figures.append(KeyFigure("Worse off than training on their own", value, detail))
    return Verdict(" ".join(text.split()), [figure for figure in figures if figure is not None])


def _diverged(study: Study) -> dict[str, int]:
    """Return the clients whose models diverged, of methods that have such clients."""
    counts = {
        method.label: int(method.final["diverged"].fillna(0).max())
        for method in study.methods
        if "diverged" in method.final
    }
    return {label: count for label, count in counts.items() if count}


def _opportunity(study: Study) -> dict[str, float | None]:
    """Return the equal opportunity differences of the two methods, if groups are protected."""
    return {
        method.label: method.mean("protected/eod")
        for method in study.pair or (study.subject,)
        if study.protected_groups and "protected/di" in method.final
    }


def against(study: Study) -> str:
    """Return the name of the second best in a sentence; empty if there is none."""
    other = study.pair[1] if study.pair else None
    return "" if other is None else "training alone" if other.alone else other.label


def gap(study: Study, method: Method) -> float | None:
    """Return the distance between the best and the worst; None if one is not known."""
    worst, best = (method.mean(key) for key in (study.worst, study.best))
    return None if worst is None or best is None else best - worst


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
    """Return the group that is worst most often, in brackets; empty if none is more than once."""
    lowest = [method.lowest_groups(seed) for seed in method.seeds]
    if any(len(names) != 1 for names in lowest):
        return ""
    name, times = Counter(names[0] for names in lowest).most_common(1)[0]
    seeds = "" if times == len(lowest) else f" in {times} of {len(lowest)} seeds"
    return f" ({name}{seeds})" if times > 1 or not seeds else ""


def _worst_figure(study: Study) -> KeyFigure | None:
    subject = study.subject
    interval, distance = subject.interval(study.worst), gap(study, subject)
    if interval is None:
        return None
    title, value = study.worst_label.capitalize(), f"{interval.value:.1f} %"
    if distance is not None and distance < SMALL:
        what = "groups" if study.group_names else "clients"
        return KeyFigure(title, value, f"All {what} have this accuracy with {subject.label}.")
    detail = f"accuracy with {subject.label}"
    if interval.low is not None:
        detail += f"; 95 % interval {interval.low:.1f} to {interval.high:.1f}"
    said = explained(subject, study.worst)
    tenths = subject.chance.get(study.worst.replace("worst10", "tenths"))
    if not said and tenths is not None:
        alike = f"clients that are served alike differ by about {points(tenths.value)}"
        said = f" Best and worst differ by more than chance explains: {alike}.{_few(study)}"
    return KeyFigure(title, f"{value}{worst_name(subject)}", f"{detail}.{said}")


def _few(study: Study) -> str:
    """Return that the worst group has too few clients to judge the group by, if it has."""
    lowest = {name for seed in study.subject.seeds for name in study.subject.lowest_groups(seed)}
    counts = [study.subject.mean(f"groups/{name}/clients") or FEW for name in lowest]
    if not study.group_names or min(counts, default=FEW) >= FEW:
        return ""
    return f" Too few clients ({min(counts):.0f}) to judge whether this is the group or the client."


def _gap_figure(study: Study) -> KeyFigure | None:
    own, label = gap(study, study.subject), study.worst_label
    if own is None or len(study.group_names) == 1:
        return None
    title = f"Gap between best and {'worst group' if label.endswith('group') else label}"
    detail = f"percentage points with {study.subject.label}"
    other = None if study.pair is None else gap(study, study.pair[1])
    if study.pair is not None and other is not None:
        detail += f"; {other:.1f} with {study.pair[1].label}"
    return KeyFigure(title, f"{own:.1f}", detail)


def _best_figure(study: Study, worst: Interval | None, by_chance: bool) -> KeyFigure | None:
    if worst is None or study.pair is None:
        return None
    title = f"Best for the {study.worst_label}"
    names = (study.subject.label, against(study))
    if by_chance:
        return KeyFigure(title, "not known", "Chance alone explains the spread of every method.")
    if abs(worst.value) < SMALL:
        return KeyFigure(title, "no difference", " and ".join(names))
    best, other = names if worst.value > 0 else names[::-1]
    why = ONE_RUN if worst.count else "They share no seed, so this may be chance."
    if worst.over == "seeds" and worst.low is not None:
        judged = "may be chance" if worst.may_be_chance else "is statistically significant"
        why = f"Over {worst.count} seeds, this {judged} ({span(worst)})."
    return KeyFigure(title, best, f"{points(worst.value)} more than {other}. {why}")
