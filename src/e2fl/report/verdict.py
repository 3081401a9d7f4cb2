"""The verdict: a few plain sentences computed from the numbers.

They compare two of the methods that train together: the best and the second best for the worst
group. Views of the same run appear in the tables only. What chance alone explains is not called a
difference.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from e2fl.metrics.intervals import Interval
from e2fl.report.methods import all_by_chance
from e2fl.report.study import Method, Study, difference, gains

SMALL = 0.05  # percentage points: what rounds to 0.0 is not called a difference
ONE_RUN = "One run only, so this may be chance. Repeat with three or more seeds."


@dataclass(frozen=True)
class Pair:
    """The methods that the verdict compares."""

    subject: Method
    baseline: Method


def chosen(study: Study) -> Pair | None:
    """Return the pair the verdict is about; None if there is nothing to compare."""
    if len(study.main) < 2:
        return None
    working = _together(study)
    if len(working) < 2:
        subject = working[0] if working else study.main[0]
        return Pair(subject, next(other for other in study.main if other is not subject))
    ranked = sorted(
        working,
        key=lambda method: (_mean(method, study.worst), _mean(method, "clients/mean")),
        reverse=True,
    )
    return Pair(ranked[0], ranked[1])


def _together(study: Study) -> list[Method]:
    """Return the methods whose clients train together."""
    return [method for method in study.main if not method.alone]


def subject_of(study: Study) -> Method:
    """Return the method the page describes first."""
    pair = chosen(study)
    return study.main[0] if pair is None else pair.subject


def verdict(study: Study) -> str:
    """Return the verdict, in plain words."""
    pair = chosen(study)
    sentences = [f"Not finished: {study.unfinished}."] if study.unfinished else []
    sentences += _diverged(study)
    sentences += _single(study) if pair is None else _compared(study, pair)
    sentences += _protected(study, pair)
    return " ".join(sentences)


def _diverged(study: Study) -> list[str]:
    counts = {
        method.label: int(method.final["diverged"].fillna(0).max())
        for method in study.methods
        if "diverged" in method.final
    }
    return [
        f"{label} diverged: the models of {clients(count)} give outputs that are not finite, so "
        "their accuracy means nothing."
        for label, count in counts.items()
        if count
    ]


def points(value: float) -> str:
    """Return an amount in percentage points, without its sign."""
    return f"{abs(value):.1f} percentage points"


def _compared(study: Study, pair: Pair) -> list[str]:
    subject, baseline = pair.subject, pair.baseline
    worst = difference(subject, baseline, study.worst)
    mean = difference(subject, baseline, "clients/mean")
    if worst is None or mean is None:
        return _single(study)
    methods = _together(study)
    where = f"the {study.worst_label}"
    against = "training alone" if baseline.alone else baseline.label
    rest = [*_chance(worst, mean), *_alone(study, pair)]
    if all_by_chance(study.main, study.worst):
        return [
            f"Chance alone explains {where} of every method, so no method is called better for it; "
            f"on average, {subject.label} is {_amount(mean.value)} {against}.",
            *_chance(None, mean),
            *_alone(study, pair),
        ]
    if abs(worst.value) < SMALL:
        first = f"{subject.label} and {against} reach the same accuracy for {where}"
    elif len(methods) > 2:
        first = (
            f"Of the {len(methods)} methods that train together, {subject.label} is best for "
            f"{where}: {points(worst.value)} better than {against}, the second best for it"
        )
    else:
        first = f"{subject.label} is {_amount(worst.value)} {against} for {where}"
    return [f"{first}{_cost(subject.label, worst.value, mean.value)}.", *rest]


def _amount(value: float) -> str:
    return "as good as" if abs(value) < SMALL else f"{points(value)} {_way(value)} than"


def _cost(subject: str, worst: float, mean: float) -> str:
    """Return the other half of the first sentence: what happens on average."""
    if abs(mean) < SMALL:
        return ", with the same accuracy on average"
    if abs(worst) < SMALL:
        return f"; on average, {subject} is {points(mean)} {_way(mean)}"
    if worst > 0 > mean:
        return f", at the cost of {points(mean)} on average"
    joined = "but" if worst < 0 < mean else "and"
    return f", {joined} {points(mean)} {_way(mean)} on average"


def _chance(worst: Interval | None, mean: Interval) -> list[str]:
    """Return whether the two differences may be chance, in words; worst: None if not judged."""
    if mean.count == 0:
        return [
            "They share no seed, so this may be chance. "
            "Repeat both with the same three or more seeds."
        ]
    if mean.over == "clients" or mean.count == 1:
        return [ONE_RUN]
    parts = [
        f"the difference {where} {judged(interval)} ({span(interval)})"
        for where, interval in (("for the worst", worst), ("on average", mean))
        if interval is not None and abs(interval.value) >= SMALL
    ]
    return [f"Over {mean.count} seeds, {' and '.join(parts)}."] if parts else []


def judged(interval: Interval) -> str:
    """Return whether a difference may be chance, in words."""
    return "may be chance" if interval.may_be_chance else "is statistically significant"


def span(interval: Interval) -> str:
    """Return the interval of a difference, in words."""
    return f"95 % interval {_signed(interval.low or 0.0)} to {_signed(interval.high or 0.0)}"


def _alone(study: Study, pair: Pair) -> list[str]:
    alone = study.alone
    if alone is None:
        return ["Training alone was not run, so it is not known which clients gain by taking part."]
    sentences = []
    if not pair.subject.alone:
        worse = worse_off(pair.subject, alone)
        if worse is not None:
            sentences.append(_worse_words(pair.subject, *worse))
        better = difference(alone, pair.subject, study.worst)
        if pair.baseline is not alone and better is not None and better.value >= SMALL:
            sentences.append(
                f"Training alone is better still for the {study.worst_label}, "
                f"by {points(better.value)}."
            )
    return sentences


def worse_off(method: Method, alone: Method) -> tuple[float, int, int] | None:
    """Return the clients that do worse than alone, averaged over seeds; all clients; seeds."""
    by_seed = gains(method, alone)
    if not by_seed:
        return None
    counts = [int((clients["difference"] < 0).sum()) for clients in by_seed.values()]
    return float(np.mean(counts)), len(next(iter(by_seed.values()))), len(by_seed)


def _worse_words(subject: Method, worse: float, count: int, seeds: int) -> str:
    if worse == 0:
        return f"With {subject.label}, no client does worse than training alone."
    mean = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    verb = "does" if worse == 1 else "do"
    return (
        f"With {subject.label}, {amount(worse)} of {clients(count)}{mean} {verb} worse than "
        "training alone."
    )


def _single(study: Study) -> list[str]:
    """Return the sentences about a single method."""
    method = study.main[0]
    mean, worst = method.mean("clients/mean"), method.mean(study.worst)
    if mean is None or worst is None:
        return []
    start = f"{method.label}: clients reach {mean:.1f} % on average"
    best = method.mean(study.worst.replace("worst", "best"))
    gap = 0.0 if best is None else best - worst
    if gap >= SMALL:
        named = worst_name(method) if study.group_names else ""
        top = "best group" if study.worst_label.endswith("group") else "best tenth"
        told = (
            f"{start}; the {study.worst_label}{named} reaches {worst:.1f} %, {points(gap)} less "
            f"than the {top}.{by_chance(method, study.worst)}"
        )
    elif len(study.group_names) > 1:
        told = f"{start}. {_every(len(study.group_names))} have the same accuracy."
    else:
        told = f"{start}. All clients have the same accuracy."
    return [
        told,
        "There is nothing to compare with: run another method, or training alone, beside it.",
    ]


def _every(groups: int) -> str:
    return "Both groups" if groups == 2 else f"All {groups} groups"


def by_chance(method: Method, key: str) -> str:
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


def _protected(study: Study, pair: Pair | None) -> list[str]:
    """Return equal opportunity in words if groups are protected: which is missed more often."""
    if study.protected_groups is None:
        return []
    first, second = study.protected_groups
    asked = [study.main[0]] if pair is None else [pair.subject, pair.baseline]
    sentences = []
    for method in asked:
        value = method.mean("protected/eod")
        if value is None and "protected/di" in method.final:
            sentences.append(
                f"With {method.label}, equal opportunity is undefined: "
                "a group has no positive test examples."
            )
        elif value is not None and abs(100 * value) < SMALL:
            sentences.append(
                f"{method.label} finds the same share of positive examples of {first} "
                f"and of {second}."
            )
        elif value is not None:
            more = "more" if value > 0 else "fewer"
            sentences.append(
                f"Of the examples that are truly positive, {method.label} finds "
                f"{points(100 * value)} {more} of {first} than of {second}."
            )
    return sentences


def _mean(method: Method, key: str) -> float:
    value = method.mean(key)
    return float("-inf") if value is None else value


def _way(value: float) -> str:
    return "better" if value > 0 else "worse"


def amount(value: float) -> str:
    """Return a count that may be a mean."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def clients(count: int) -> str:
    """Return a number of clients, in words."""
    return "1 client" if count == 1 else f"{count:,} clients"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
