"""The paper's claims, each with a verdict from our runs: "holds", "does not hold", "inconclusive" or "not tested".

A claim holds, or does not, if at least three seeds were run with both methods and the 95 % interval of the difference,
paired by seed, excludes 0. Otherwise it is inconclusive, and the number is still shown; a claim without runs is not
tested.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from e2fl.report.intervals import Interval, over_seeds
from e2fl.reproduce.ledger import Entry, Json
from e2fl.reproduce.selection import NARROW, SAMPLES, fewer_images, other_alpha, select
from e2fl.reproduce.studies import RULES, paper
from e2fl.reproduce.tables import FEWEST, Reader, Repeats, level, repeats_of, seeds_text

HOLDS, FAILS, INCONCLUSIVE, UNTESTED = "holds", "does not hold", "inconclusive", "not tested"
NOT_RUN = "not run"
ORDER = ("Group inference: lowest loss > binary > one shot", "in this order (a figure)")  # the claim, the paper's size

# E2FL relative to FedAvg in Table 4, in percent of the size, accuracy in points. The text has only those of alpha 1.
ADULT = {1: {"eod": -73, "di": -51, "accuracy": -0.27}, 5000: {"eod": -75, "di": -56, "accuracy": -0.34}}

Choice = Callable[[Sequence[Entry]], list[Entry]]


@dataclass(frozen=True)
class Claim:
    """A difference between `method` and `baseline` in a figure, with the direction and rough size in the paper."""

    text: str
    method: str
    baseline: str
    read: Reader
    paper: float  # percent of the baseline's figure if relative, else in units of the figure
    relative: bool
    settings: Mapping[str, Choice]  # our settings in which it can be tested, by name
    of: int  # the paper's rounds of the method
    size: bool = False  # compare absolute values
    rounds: int = 1  # of the method for each round of the baseline; the paper gives q-FFL twice as many


@dataclass(frozen=True)
class Finding:
    """The evidence of the ledger for a claim in one setting."""

    claim: str
    paper: str
    setting: str
    verdict: str
    figure: str


def findings(entries: Sequence[Entry]) -> list[Finding]:
    """Return all claims, each in all settings."""
    found = [_test(claim, setting, choose(entries)) for claim in claims() for setting, choose in claim.settings.items()]
    return [*found, *_orders(entries)]


def counted(found: Sequence[Finding]) -> str:
    """Return how many claims have each verdict, as a sentence."""
    counts = Counter(finding.verdict for finding in found)
    parts = [f"*{word}* {counts[word]}" for word in (HOLDS, FAILS, INCONCLUSIVE, UNTESTED)]
    return f"Rows by verdict: {', '.join(parts)}."


def _test(claim: Claim, setting: str, entries: Sequence[Entry]) -> Finding:
    """Return the finding of a claim in a setting."""
    shared = _shared(entries, claim)
    if shared is None:
        return Finding(claim.text, _size(claim.paper, claim), setting, UNTESTED, NOT_RUN)
    number, first, second = shared
    differences = over_seeds([first[seed] - second[seed] for seed in first])
    base = sum(second.values()) / len(second)
    change = 100 * differences.mean / base if claim.relative and base else differences.mean
    after = f"{claim.rounds * number} of {claim.of} rounds" + (f" (FedAvg: {number})" if claim.rounds > 1 else "")
    figure = f"{_size(change, claim)} after {after}, {seeds_text(differences.count)}"
    if differences.half is not None:
        half = 100 * differences.half / abs(base) if claim.relative and base else differences.half
        figure += f" (± {_number(half, claim)})"
    return Finding(claim.text, _size(claim.paper, claim), setting, verdict(differences, claim.paper), figure)


def verdict(differences: Interval, claimed: float) -> str:
    """Return whether the differences have the sign that is claimed."""
    if differences.half is None or differences.count < FEWEST or abs(differences.mean) <= differences.half:
        return INCONCLUSIVE
    return HOLDS if (differences.mean > 0) == (claimed > 0) else FAILS


def _shared(entries: Sequence[Entry], claim: Claim) -> tuple[int, dict[int, float], dict[int, float]] | None:
    """Return the baseline's round and the figures of both methods by seed, at the last round that enough seeds have."""
    shortened = [_per_round(entry, claim.rounds) if entry.method == claim.method else entry for entry in entries]

    def read(entry: Entry, line: Json) -> float | None:
        value = claim.read(entry, line)
        return abs(value) if claim.size and value is not None else value

    found = _paired(shortened, (claim.method, claim.baseline), read)
    return None if found is None else (found[0], found[1][claim.method], found[1][claim.baseline])


def _per_round(entry: Entry, rounds: int) -> Entry:
    """Return the entry with its rounds counted as those of a baseline that has fewer."""
    lines = (line | {"round": line["round"] // rounds} for line in entry.history if line["round"] % rounds == 0)
    return replace(entry, history=tuple(lines))


def _paired(
    entries: Sequence[Entry], methods: Sequence[str], read: Reader
) -> tuple[int, dict[str, dict[int, float]]] | None:
    """Return the last round that enough seeds have run with all these methods, and each method's figures by seed."""
    runs = {method: {entry.seed: entry for entry in entries if entry.method == method} for method in methods}
    first, *others = (runs[method] for method in methods)
    together = [
        replace(entry, history=tuple(line for line in entry.history if all(o[seed].at(line["round"]) for o in others)))
        for seed, entry in first.items()
        if all(seed in other for other in others)
    ]
    repeats = repeats_of(together)
    if not repeats:
        return None
    number, seeds = repeats[0].round, tuple(entry.seed for entry in repeats[0].entries)
    figures = {method: Repeats(tuple(own[seed] for seed in seeds), number).values(read) for method, own in runs.items()}
    known = [seed for seed in seeds if all(seed in values for values in figures.values())]
    if not known:
        return None
    return number, {method: {seed: values[seed] for seed in known} for method, values in figures.items()}


def _number(value: float, claim: Claim) -> str:
    return f"{value:.0f} %" if claim.relative else f"{value:.2f}"


def _size(value: float, claim: Claim) -> str:
    return f"{value:+.0f} %" if claim.relative else f"{value:+.2f} points"


def _runs(experiment: str, changes: Mapping[str, Any]) -> Choice:
    return lambda entries: select(entries, experiment, changes)


def claims() -> list[Claim]:
    """Return the claims of the paper's text, and the same of its Table 4 for the other alpha."""
    mnist = {f"{samples} images per client": _runs("table1", fewer_images(samples)) for samples in SAMPLES}
    femnist = {
        "partial data set": _runs("femnist", {}),
        "partial data set, narrow network": _runs("femnist", NARROW),
    }
    adult = {alpha: {f"alpha {alpha}": _runs("adult", other_alpha(alpha))} for alpha in (1, 5000)}
    rounds, rounds_qffl, rounds_adult = (paper()[key] for key in ("rounds", "rounds_qffl", "rounds_adult"))
    of_users, of_groups, mean = level("user", "variance"), level("group", "variance"), level("user", "mean")

    def about(
        data: str, name: str, method: str, figure: str, read: Reader, size: float, settings: Mapping[str, Choice]
    ) -> Claim:
        twice = method == "qffl"
        return Claim(
            f"{data}: {name} {_raises(size)} the {figure}",
            method,
            "fedavg",
            read,
            size,
            figure != "accuracy",
            settings,
            rounds_qffl if twice else rounds,
            rounds=2 if twice else 1,
        )

    rotated, writers = "FairMNISTRotate", "FEMNIST"
    found = [
        about(rotated, "q-FFL", "qffl", "variance over clients", of_users, -4, mnist),
        about(rotated, "q-FFL", "qffl", "variance over groups", of_groups, 81, mnist),
        about(rotated, "E2FL", "e2fl", "variance over clients", of_users, -93, mnist),
        about(rotated, "E2FL", "e2fl", "variance over groups", of_groups, -95, mnist),
        about(writers, "q-FFL", "qffl", "variance over clients", of_users, -7, femnist),
        about(writers, "q-FFL", "qffl", "accuracy", mean, -1.1, femnist),
        about(writers, "E2FL (lowest loss)", "e2fl", "accuracy", mean, 2.43, femnist),
        about(writers, "E2FL (lowest loss)", "e2fl", "variance over clients", of_users, -24, femnist),
    ]

    def of_adult(alpha: int, method: str, name: str, figure: str, size: float, view: str | None = None) -> Claim:
        own = level("protected", figure, view)
        read = mean if figure == "accuracy" else _mixed(own, level("protected", figure), method)
        title = figure if figure == "accuracy" else f"size of {figure.upper()}"
        text = f"Adult, alpha {alpha}: {name} {_raises(size)} the {title}"
        relative = figure != "accuracy"
        return Claim(text, method, "fedavg", read, size, relative, adult[alpha], rounds_adult, size=relative)

    own_model, womens_model = "E2FL, each row with its own model,", "E2FL, the women's model for all rows,"
    for alpha, changes in ADULT.items():
        found += [of_adult(alpha, "e2fl", own_model, figure, size) for figure, size in changes.items()]
        found += [
            of_adult(alpha, "e2fl", womens_model, figure, size, "as_group0")
            for figure, size in changes.items()
            if figure != "accuracy"
        ]
    found += [of_adult(1, "fairfed", "FairFed", *change) for change in (("eod", -17), ("di", -20), ("accuracy", -1.0))]
    return found


def _raises(size: float) -> str:
    return "raises" if size > 0 else "lowers"


def _mixed(own: Reader, others: Reader, method: str) -> Reader:
    """Return a reader of one figure for a method, and of another for all others."""
    return lambda entry, line: own(entry, line) if entry.method == method else others(entry, line)


def _orders(entries: Sequence[Entry]) -> list[Finding]:
    """Test the claim that lowest loss finds more groups than binary search, and that more than one shot."""
    return [
        _order(f"{samples} images per client", select(entries, "inference", fewer_images(samples)))
        for samples in SAMPLES
    ]


def _order(setting: str, entries: Sequence[Entry]) -> Finding:
    """Return the finding in a setting: both differences must hold."""
    shared = _paired(entries, RULES, level("inference", "matched"))
    if shared is None:
        return Finding(*ORDER, setting, UNTESTED, NOT_RUN)
    number, matched = shared
    seeds = list(matched[RULES[0]])
    words = [
        verdict(over_seeds([matched[better][seed] - matched[worse][seed] for seed in seeds]), 1)
        for better, worse in pairwise(RULES)
    ]
    word = FAILS if FAILS in words else INCONCLUSIVE if INCONCLUSIVE in words else HOLDS
    shown = ", ".join(f"{rule} {sum(values.values()) / len(values):.1f} %" for rule, values in matched.items())
    return Finding(
        *ORDER,
        setting,
        word,
        f"{shown} after {number} of {paper()['rounds_inference']} rounds, {seeds_text(len(seeds))}",
    )
