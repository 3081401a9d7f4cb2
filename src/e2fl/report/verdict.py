"""The verdict and the key figures: a few plain sentences computed from the numbers, true in every case.

They compare two of the methods that exchange messages: the one that is best for the worst group, and, of the others,
the one that is best on average. Views of the same run appear in the tables only.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from e2fl.metrics.student import mean_test, welch
from e2fl.report.intervals import FEW, Interval
from e2fl.report.study import Method, Study, difference, gains

SMALL = 0.05  # percentage points: what rounds to 0.0 is not called a difference
CHANCE = 0.05
ONE_RUN = "One run only, so this may be chance. Repeat with three or more seeds."


@dataclass(frozen=True)
class Pair:
    """The methods that the verdict compares."""

    subject: Method
    baseline: Method


@dataclass(frozen=True)
class KeyFigure:
    """A number that a reader should see first."""

    title: str
    value: str
    detail: str


def chosen(study: Study) -> Pair | None:
    """Return the pair the verdict is about; None if there is nothing to compare."""
    working = [method for method in study.main if not method.alone]
    if len(study.main) < 2:
        return None
    if len(working) < 2:
        subject = working[0] if working else study.main[0]
        return Pair(subject, next(other for other in study.main if other is not subject))
    subject = max(working, key=lambda m: (_mean(m, study.worst), _mean(m, "user/mean")))
    others = [method for method in working if method is not subject]
    return Pair(subject, max(others, key=lambda m: (_mean(m, "user/mean"), _mean(m, study.worst))))


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
    found = {m.label: max(outcome.diverged for outcome in m.outcomes) for m in study.methods}
    return [
        f"{label} diverged: the models of {_clients(count)} give outputs that are not finite, so their accuracy means "
        "nothing."
        for label, count in found.items()
        if count
    ]


def points(value: float) -> str:
    """Return an amount in percentage points, without its sign."""
    return f"{abs(value):.1f} percentage points"


def _compared(study: Study, pair: Pair) -> list[str]:
    subject, baseline = pair.subject, pair.baseline
    worst = difference(subject, baseline, study.worst)
    mean = difference(subject, baseline, "user/mean")
    if worst is None or mean is None:
        return _single(study)
    working = [method for method in study.main if not method.alone]
    where = f"the {study.worst_label}"
    against = "training alone" if baseline.alone else baseline.label
    if abs(worst.mean) < SMALL:
        first = f"{subject.label} and {against} reach the same accuracy for {where}"
    elif len(working) > 2 and worst.mean > 0:
        first = (
            f"Of {len(working)} methods, {subject.label} is best for {where}: {points(worst.mean)} better than "
            f"{against} (of the others, the best on average)"
        )
    else:
        first = f"{subject.label} is {points(worst.mean)} {_way(worst.mean)} than {against} for {where}"
    return [f"{first}{_cost(subject.label, worst.mean, mean.mean)}.", *_chance(worst, mean), *_alone(study, pair)]


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


def _chance(worst: Interval, mean: Interval) -> list[str]:
    """Return whether the two differences may be chance, in words."""
    if worst.count == 0:
        return ["They share no seed, so this may be chance. Repeat both with the same three or more seeds."]
    if worst.over == "clients" or worst.count == 1:
        return [ONE_RUN]
    told = [(name, found) for name, found in (("worst", worst), ("average", mean)) if abs(found.mean) >= SMALL]
    place = {"worst": "the difference for the worst", "average": "the difference on average"}
    parts = [f"{place[name]} {judged(found)} ({span(found)})" for name, found in told]
    return [f"Over {worst.count} seeds, {' and '.join(parts)}."] if parts else []


def judged(found: Interval) -> str:
    """Return whether a difference may be chance, in words."""
    return "may be chance" if found.may_be_chance else "is more than chance"


def span(found: Interval) -> str:
    """Return the interval of a difference, in words."""
    return f"95 % interval {_signed(found.low or 0.0)} to {_signed(found.high or 0.0)}"


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
        if pair.baseline is not alone and better is not None and better.mean >= SMALL:
            sentences.append(f"Training alone is better still for the {study.worst_label}, by {points(better.mean)}.")
    return sentences


def worse_off(method: Method, alone: Method) -> tuple[float, int, int] | None:
    """Return clients that do worse than training alone, averaged over seeds; all clients; and the number of seeds."""
    found = gains(method, alone)
    if not found:
        return None
    return float(np.mean([int((g.difference < 0).sum()) for g in found])), len(found[0].names), len(found)


def _worse_words(subject: Method, worse: float, clients: int, seeds: int) -> str:
    if worse == 0:
        return f"With {subject.label}, no client does worse than training alone."
    mean = f" (mean over {seeds} seeds)" if seeds > 1 else ""
    verb = "does" if worse == 1 else "do"
    return f"With {subject.label}, {_count(worse)} of {_clients(clients)}{mean} {verb} worse than training alone."


def _single(study: Study) -> list[str]:
    """Return the sentences about a single method."""
    method = study.main[0]
    mean, worst = method.mean("user/mean"), method.mean(study.worst)
    if mean is None or worst is None:
        return []
    start = f"{method.label}: clients reach {mean:.1f} % on average"
    best = method.mean(study.worst.replace("worst", "best"))
    gap = 0.0 if best is None else best - worst
    if gap >= SMALL:
        named = _named(method) if study.group_names else ""
        top = "best group" if study.worst_label.endswith("group") else "best tenth"
        told = f"{start}; the {study.worst_label}{named} reaches {worst:.1f} %, {points(gap)} less than the {top}."
    elif len(study.group_names) > 1:
        told = f"{start}. {_every(len(study.group_names))} have the same accuracy."
    else:
        told = f"{start}. All clients have the same accuracy."
    return [told, "There is nothing to compare with: run another method, or training alone, beside it."]


def _every(groups: int) -> str:
    return "Both groups" if groups == 2 else f"All {groups} groups"


def _named(method: Method) -> str:
    """Return the worst group, and in how many runs it is the worst, in brackets; empty if several are."""
    lowest = [outcome.lowest_groups() for outcome in method.outcomes]
    if any(len(names) != 1 for names in lowest):
        return ""
    name, times = Counter(names[0] for names in lowest).most_common(1)[0]
    if times == len(lowest):
        return f" ({name})"
    return " (another group in each seed)" if times == 1 else f" ({name} in {times} of {len(lowest)} seeds)"


def _protected(study: Study, pair: Pair | None) -> list[str]:
    """Return equal opportunity in words if groups are a protected attribute: which group is missed more often."""
    if study.protected_groups is None:
        return []
    first, second = study.protected_groups
    asked = [study.main[0]] if pair is None else [pair.subject, pair.baseline]
    sentences = []
    for method in asked:
        value = method.mean("protected/eod")
        if value is None and any(outcome.protected for outcome in method.outcomes):
            sentences.append(
                f"With {method.label}, equal opportunity is undefined: a group has no positive test examples."
            )
        elif value is not None and abs(100 * value) < SMALL:
            sentences.append(f"{method.label} finds the same share of positive examples of {first} and of {second}.")
        elif value is not None:
            more = "more" if value > 0 else "fewer"
            sentences.append(
                f"Of the examples that are truly positive, {method.label} finds {points(100 * value)} {more} of "
                f"{first} than of {second}."
            )
    return sentences


def key_figures(study: Study) -> list[KeyFigure]:
    """Return three or four key figures: who is worst served, the gap, the best method, who is worse off."""
    subject, pair, alone = subject_of(study), chosen(study), study.alone
    found = [_worst_figure(study, subject), _gap_figure(study, subject)]
    found.append(None if pair is None else _best_figure(study, pair))
    if alone is not None and not subject.alone and (worse := worse_off(subject, alone)) is not None:
        detail = f"with {subject.label}" + (f", mean over {worse[2]} seeds" if worse[2] > 1 else "")
        value = f"{_count(worse[0])} of {_clients(worse[1])}"
        found.append(KeyFigure("Worse off than training on their own", value, detail))
    return [figure for figure in found if figure is not None]


def _worst_figure(study: Study, subject: Method) -> KeyFigure | None:
    interval = subject.interval(study.worst)
    if interval is None:
        return None
    value = f"{interval.mean:.1f} %"
    best = subject.mean(study.worst.replace("worst", "best"))
    if best is not None and best - interval.mean < SMALL:
        what = "groups" if study.group_names else "clients"
        return KeyFigure(study.worst_label.capitalize(), value, f"All {what} have this accuracy with {subject.label}.")
    lowest = sorted({name for outcome in subject.outcomes for name in outcome.lowest_groups()})
    if study.worst_label.endswith("group") and len(lowest) == 1:
        value = f"{lowest[0]}: {value}"
    detail = f"accuracy with {subject.label}"
    if study.worst_label.endswith("group") and len(lowest) > 1:
        detail += f"{_named(subject)}"
    if interval.low is not None and interval.high is not None:
        detail += f"; 95 % interval {interval.low:.1f} to {interval.high:.1f}"
    judgement = _certain(study, subject, lowest)
    return KeyFigure(study.worst_label.capitalize(), value, f"{detail}.{judgement}")


def _certain(study: Study, method: Method, lowest: list[str]) -> str:
    """Return whether the worst group is truly worse than the rest; the p-value allows for the choice of group."""
    if len(lowest) != 1 or len(study.group_names) < 2:
        return ""
    pairs = []
    for outcome in method.outcomes:
        members = {} if outcome.clients is None else outcome.clients.members
        own = np.array(list(members.get(lowest[0], {}).values()))
        rest = np.array([value for name, values in members.items() if name != lowest[0] for value in values.values()])
        if not len(own) or not len(rest) or not np.isfinite(own).all() or not np.isfinite(rest).all():
            return ""
        pairs.append((own, rest))
    if len(pairs) > 1:
        p = mean_test(np.array([float(own.mean() - rest.mean()) for own, rest in pairs]))
    elif min(len(own) for own in pairs[0]) < FEW:
        return f" Too few clients ({len(pairs[0][0])}) to judge whether this is chance."
    else:
        p = welch(*pairs[0])
    if p * len(study.group_names) < CHANCE:
        return " Lower than the other groups by more than chance."
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
        values = [pair.baseline.mean(key) for key in (study.worst.replace("worst", "best"), study.worst)]
        if values[0] is not None and values[1] is not None:
            detail += f"; {values[0] - values[1]:.1f} with {pair.baseline.label}"
    return KeyFigure(title, f"{best - worst:.1f}", detail)


def _best_figure(study: Study, pair: Pair) -> KeyFigure | None:
    found = difference(pair.subject, pair.baseline, study.worst)
    if found is None:
        return None
    against = "training alone" if pair.baseline.alone else pair.baseline.label
    if abs(found.mean) < SMALL:
        return KeyFigure(f"Best for the {study.worst_label}", "no difference", f"{pair.subject.label} and {against}")
    best = pair.subject.label if found.mean > 0 else against
    other = against if found.mean > 0 else pair.subject.label
    detail = f"{points(found.mean)} more than {other}. "
    if found.over == "seeds" and found.low is not None:
        detail += f"Over {found.count} seeds, this {judged(found)} ({span(found)})."
    elif found.low is not None:
        detail += f"Over clients: {span(found)}. {ONE_RUN}"
    else:
        detail += ONE_RUN if found.count else "They share no seed, so this may be chance."
    return KeyFigure(f"Best for the {study.worst_label}", best, detail)


def _mean(method: Method, key: str) -> float:
    found = method.mean(key)
    return float("-inf") if found is None else found


def _way(value: float) -> str:
    return "better" if value > 0 else "worse"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
