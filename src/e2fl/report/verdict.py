"""The verdict and the key figures: what a reader should know first, computed from the numbers.

They compare two of the methods that train together: the best and the second best for the worst
group. Views of the same run appear in the tables only. What chance alone explains is not called a
difference. verdict.j2 holds the sentences.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from e2fl.metrics import Interval
from e2fl.metrics.intervals import MIN_CLIENTS
from e2fl.metrics.measures import LEVELS
from e2fl.report.study import Method, Study
from e2fl.report.table import all_by_chance, environment

MIN_DIFFERENCE = 0.05  # percentage points: what rounds to 0.0 is not called a difference


class KeyFigure(NamedTuple):
    """A number that a reader should see first."""

    title: str
    value: str
    detail: str


class Verdict(NamedTuple):
    """The verdict in plain words, and the key figures."""

    text: str
    figures: list[KeyFigure]


def verdict(study: Study) -> Verdict:
    """Return the verdict on a study."""
    subject, second = study.pair or (study.subject, None)
    other = study.alone if study.alone is not subject else None
    worst, mean = (
        subject.minus(second, key) if second else None for key in (study.worst, "clients/mean")
    )
    differ = worst is not None and _differs(worst, subject, study.worst.partition("/")[0])
    above = subject.minus(other, study.worst) if other else None
    template = environment("e2fl.report", escape=False).get_template("verdict.j2")
    text = template.render(
        study=study,
        diverged=_diverged(study),
        opportunity=_opportunity(study),
        subject=subject,
        level=[subject.mean(key) for key in ("clients/mean", study.worst, study.best)],
        against=second and ("training alone" if second.alone else second.label),
        worst=worst,
        mean=mean,
        by_chance=all_by_chance(study.main, study.worst) and not differ,
        together=sum(not method.alone for method in study.honest),
        worse=subject.mean("gain/worse_off"),
        alone_better=0.0 if above is None or len(study.honest) < 3 else -above.value,
        small=MIN_DIFFERENCE,
        way=lambda value: "better" if value > 0 else "worse",
        **{word.__name__: word for word in (points, span, explained, worst_name)},
    )
    figures = list(_figures(study)) if study.same_data else []
    return Verdict(" ".join(text.split()), figures)


def _differs(lead: Interval, subject: Method, level: str) -> bool:
    """Return whether a lead is significant or, with one run, more than chance would give."""
    if lead.may_be_chance is not None:
        return not lead.may_be_chance
    return abs(lead.value) > subject.apart_by_chance(level)


def _figures(study: Study) -> Iterator[KeyFigure]:
    """Yield measures of the best method for the worst group, and those of the second best."""
    subject, *others = study.pair or (study.subject,)
    level = study.worst.partition("/")[0]
    titles = {
        study.worst: study.worst_label.capitalize(),
        f"{level}/gap": f"Gap between {LEVELS[level]}",
        "clients/mean": "Mean of clients",
        "gain/worse_off": "Worse off than training alone",
    }
    for key, title in titles.items():
        value = subject.mean(key)
        if value is None or (key == "group/gap" and len(study.group_names) == 1):
            continue
        unit = " points" if key.endswith("/gap") else " %"
        beside = [(other.label, other.mean(key)) for other in others]
        compared = [f"{number:.1f} with {label}" for label, number in beside if number is not None]
        name, judged = (worst_name(subject), _judged(study)) if key == study.worst else ("", "")
        detail = "; ".join([f"with {subject.label}", *compared])
        yield KeyFigure(title, f"{value:.1f}{unit}{name}", f"{detail}.{judged}")


def _judged(study: Study) -> str:
    """Return sentences about chance and the number of clients in the worst group."""
    subject, worst = study.subject, study.worst
    if worst not in subject.chance:
        return ""
    if subject.by_chance(worst):
        return explained(subject, worst)
    alike = points(subject.chance[study.best] - subject.chance[worst])
    said = f" More than chance: clients that are served alike differ by about {alike}."
    lowest = {name for seed in subject.seeds for name in subject.lowest_groups(seed)}
    counts = (subject.mean(f"groups/{name}/clients") or MIN_CLIENTS for name in lowest)
    fewest = min(counts, default=MIN_CLIENTS)
    if fewest >= MIN_CLIENTS:
        return said
    return (
        f"{said} Too few clients ({fewest:.0f}) to judge whether this is the group or the client."
    )


def _diverged(study: Study) -> dict[str, int]:
    """Return the clients whose models diverged, of methods that have such clients."""
    finals = {method.label: method.final for method in study.methods}
    counts = {
        label: final["diverged"].max() for label, final in finals.items() if "diverged" in final
    }
    return {label: int(count) for label, count in counts.items() if count > 0}


def _opportunity(study: Study) -> dict[str, float | None]:
    """Return the equal opportunity differences of the two methods, if groups are protected."""
    return {
        method.label: method.mean("protected/eod")
        for method in study.pair or (study.subject,)
        if study.protected_groups and "protected/di" in method.final
    }


def points(value: float) -> str:
    """Return an amount in percentage points, without its sign."""
    return f"{abs(value):.1f} percentage points"


def span(interval: Interval) -> str:
    """Return the interval of a difference, in words."""
    text = f"95 % interval {interval.low or 0.0:+.1f} to {interval.high or 0.0:+.1f}"
    return text.replace("-", "\N{MINUS SIGN}")


def explained(method: Method, key: str) -> str:
    """Return a sentence about what chance alone gives, if it explains a spread."""
    if not method.by_chance(key):
        return ""
    value = method.chance[key]
    return f" Chance alone explains this: clients that are served alike give about {value:.1f} %."


def worst_name(method: Method) -> str:
    """Return the group that is worst most often, in brackets; empty if none is more than once."""
    lowest = [method.lowest_groups(seed) for seed in method.seeds]
    apart = (method.mean("group/gap") or 0.0) >= MIN_DIFFERENCE
    if not apart or any(len(names) != 1 for names in lowest):
        return ""
    name, times = Counter(names[0] for names in lowest).most_common(1)[0]
    seeds = "" if times == len(lowest) else f" in {times} of {len(lowest)} seeds"
    return f" ({name}{seeds})" if times > 1 or not seeds else ""
