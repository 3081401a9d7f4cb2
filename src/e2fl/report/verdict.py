"""The verdict: a few sentences, computed from the numbers, true in every case.

Who is spoken of: of the algorithms that exchange something, the one that serves the worst group best, against the one
of the others that is best on average. Views of the same run are left to the tables.
"""

from dataclasses import dataclass

import numpy as np

from e2fl import metrics
from e2fl.report.intervals import Interval, interval, paired
from e2fl.report.study import Contender, Study, gains

SMALL = 0.05  # percent points: what rounds to 0.0 is not called a difference


@dataclass(frozen=True)
class Pair:
    """Whom the verdict compares."""

    subject: Contender
    rival: Contender


def chosen(study: Study) -> Pair | None:
    """The pair the verdict is about; None where there is nothing to compare."""
    working = [contender for contender in study.main if not contender.alone]
    if len(study.main) < 2:
        return None
    if len(working) < 2:
        subject = working[0] if working else study.main[0]
        return Pair(subject, next(other for other in study.main if other is not subject))
    subject = max(working, key=lambda c: (_mean(c, study.worst), _mean(c, "user/mean")))
    others = [contender for contender in working if contender is not subject]
    return Pair(subject, max(others, key=lambda c: (_mean(c, "user/mean"), _mean(c, study.worst))))


def difference(first: Contender, second: Contender, key: str) -> Interval | None:
    """First minus second: paired over shared seeds, or the plain difference of means where none is shared."""
    one, two = first.by_seed(key), second.by_seed(key)
    if not one or not two:
        return None
    return paired(one, two) or Interval(float(np.mean([*one.values()]) - np.mean([*two.values()])), None, 0)


def verdict(study: Study) -> str:
    """The verdict, in plain words."""
    pair = chosen(study)
    sentences = [f"Not finished: {study.unfinished}."] if study.unfinished else []
    sentences += _diverged(study)
    sentences += _alone_on_the_page(study) if pair is None else _compared(study, pair)
    sentences += _protected(study, pair)
    return " ".join(sentences)


def _diverged(study: Study) -> list[str]:
    """Whose accuracies mean nothing."""
    found = {c.label: max(outcome.diverged for outcome in c.outcomes) for c in study.contenders}
    return [
        f"{label} diverged: the models of {count:,} {'client' if count == 1 else 'clients'} give outputs that are no "
        "finite numbers, so their accuracy means nothing."
        for label, count in found.items()
        if count
    ]


def worst_words(study: Study) -> str:
    """What the measure of equity is called."""
    if not study.group_names:
        return "the worst tenth of clients"
    return "the worst group" if metrics.tenth(len(study.group_names)) == 1 else "the worst tenth of groups"


def points(value: float) -> str:
    """An amount of percent points, without its sign."""
    return f"{abs(value):.1f} points"


def span(found: Interval) -> str:
    """An interval in words."""
    return f"95 % interval {_signed(found.low or 0.0)} to {_signed(found.high or 0.0)}"


def _compared(study: Study, pair: Pair) -> list[str]:
    subject, rival = pair.subject, pair.rival
    worst = difference(subject, rival, study.worst)
    mean = difference(subject, rival, "user/mean")
    if worst is None or mean is None:
        return _alone_on_the_page(study)
    working = [contender for contender in study.main if not contender.alone]
    where = worst_words(study)
    against = "training alone" if rival.alone else rival.label
    if abs(worst.mean) < SMALL:
        first = f"{subject.label} and {against} serve {where} equally well"
    elif len(working) > 2 and worst.mean > 0:
        best = f"Of {len(working)} algorithms, {subject.label} serves {where} best: {points(worst.mean)} better than"
        first = f"{best} {against} (of the others, the best on average)"
    else:
        first = f"{subject.label} serves {where} {points(worst.mean)} {_way(worst.mean)} than {against}"
    sentences = [f"{first}{_cost(subject.label, worst.mean, mean.mean)}."]
    sentences += _noise(worst, mean) if study.source == "runs" else ["One table each cannot tell this from noise."]
    sentences += _against_alone(study, pair)
    return sentences


def _cost(subject: str, worst: float, mean: float) -> str:
    """The other half of the first sentence: what happens on average."""
    if abs(mean) < SMALL:
        return ", with the same accuracy on average"
    if abs(worst) < SMALL:
        return f"; on average, {subject} is {points(mean)} {_way(mean)}"
    if worst > 0 > mean:
        return f", at the cost of {points(mean)} on average"
    joined = "but" if worst < 0 < mean else "and"
    return f", {joined} is {points(mean)} {_way(mean)} on average"


def _noise(worst: Interval, mean: Interval) -> list[str]:
    """Whether the two differences can be told from chance."""
    if worst.count == 0:
        return ["They share no seed, so noise cannot be judged."]
    if worst.count == 1:
        return ["This is one seed: noise cannot be judged; repeat with more, such as --seeds 0,1,2."]
    named = [("worst", worst), ("average", mean)]
    told = [(name, found) for name, found in named if abs(found.mean) >= SMALL]
    if not told:
        return []
    parts = [f"{_place(name)} is {_judged(found)} ({span(found)})" for name, found in told]
    return [f"Over {worst.count} seeds, {' and '.join(parts)}."]


def _place(name: str) -> str:
    return "the difference for the worst" if name == "worst" else "the difference on average"


def _judged(found: Interval) -> str:
    return "within noise" if found.within_noise else "beyond noise"


def _against_alone(study: Study, pair: Pair) -> list[str]:
    alone = study.alone
    if alone is None:
        return (
            ["Who gains from taking part is not known: training alone was not run."] if study.source == "runs" else []
        )
    sentences = []
    # Spoken of as clients, where clients are known: not while a run goes on.
    if not pair.subject.alone:
        found = gains(pair.subject, alone)
        if found:
            sentences.append(_worse_off(pair.subject, [(int((g.difference < 0).sum()), len(g.names)) for g in found]))
        better = difference(alone, pair.subject, study.worst)
        if pair.rival is not alone and better is not None and better.mean >= SMALL:
            sentences.append(f"Training alone serves {worst_words(study)} better still, by {points(better.mean)}.")
    return sentences


def _worse_off(subject: Contender, by_seed: list[tuple[int, int]]) -> str:
    worse = interval([count for count, _ in by_seed]).mean
    clients = by_seed[0][1]
    seeds = f" (mean over {len(by_seed)} seeds)" if len(by_seed) > 1 else ""
    if worse == 0:
        return f"With {subject.label} no client is worse off than training alone."
    told = f"{worse:.0f}" if worse == round(worse) else f"{worse:.1f}"
    verb = "is" if told == "1" else "are"
    return f"With {subject.label}, {told} of {clients:,} clients{seeds} {verb} worse off than training alone."


def _alone_on_the_page(study: Study) -> list[str]:
    """What is said of one contender by itself."""
    contender = study.main[0]
    mean = contender.mean("user/mean")
    if mean is None:
        return []
    start = f"{contender.label}: clients reach {mean:.1f} % on average"
    means = {name: contender.mean(f"groups/{name}/accuracy") for name in study.group_names}
    known = {name: value for name, value in means.items() if value is not None}
    if len(known) > 1:
        low, high = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
        gap = known[high] - known[low]
        if gap < SMALL:
            told = [f"{start}; all {len(known)} groups are served alike."]
        else:
            told = [
                f"{start}; the worst group, {low}, reaches {known[low]:.1f} %, "
                f"{points(gap)} less than the best, {high}."
            ]
    else:
        worst, best = contender.mean("user/worst10"), contender.mean("user/best10")
        assert worst is not None
        assert best is not None
        if best - worst < SMALL:
            told = [f"{start}; all clients are served alike."]
        else:
            gap_words = f"{points(best - worst)} less than the best tenth"
            told = [f"{start}; the worst tenth of them reaches {worst:.1f} %, {gap_words}."]
    if study.source == "runs":
        told.append("There is nothing to compare with: run another algorithm, or training alone, beside it.")
    return told


def _protected(study: Study, pair: Pair | None) -> list[str]:
    """Equal opportunity, where groups are a protected attribute."""
    asked = [study.main[0]] if pair is None else [pair.subject, pair.rival]
    found = [(contender.label, contender.mean("protected/eod")) for contender in asked]
    told = [f"{_signed(value, 3)} with {label}" for label, value in found if value is not None]
    if not told:
        return []
    return [f"Equal opportunity ({study.protected_direction}; 0 is even) differs by {' and '.join(told)}."]


def _mean(contender: Contender, key: str) -> float:
    found = contender.mean(key)
    return float("-inf") if found is None else found


def _way(value: float) -> str:
    return "better" if value > 0 else "worse"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
