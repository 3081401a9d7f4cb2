"""The paper's claims, each with a verdict from our runs.

A claim holds, or does not hold, if at least three seeds were run with both methods and the 95 %
interval of the difference, paired by seed, excludes 0. Otherwise it is inconclusive, and the number
is still shown; a claim without runs is not tested.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from e2fl.metrics.intervals import Interval, over_seeds
from paper.ledger import HERE, Json, Run
from paper.tables import FEWEST, figure, seeds_text, select, shared_rounds

HOLDS, FAILS, INCONCLUSIVE, UNTESTED = "holds", "does not hold", "inconclusive", "not tested"
VERDICTS = (HOLDS, FAILS, INCONCLUSIVE, UNTESTED)

DECLARED: Json = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Finding:
    """The evidence of the ledger for a claim in one setting."""

    claim: str
    paper: str
    setting: str
    verdict: str
    figure: str


@dataclass(frozen=True)
class Paired:
    """Figures of several methods by seed, at the last round that enough seeds have of all."""

    round: int
    figures: Mapping[str, Mapping[int, float]]

    def differences(self, method: str, baseline: str) -> Interval:
        """Return one method's figure minus the other's, seed by seed."""
        first, second = self.figures[method], self.figures[baseline]
        return over_seeds([first[seed] - second[seed] for seed in first])


def findings(runs: Sequence[Run]) -> list[Finding]:
    """Return all claims, each in all its settings."""
    return [
        _ordered(claim, setting, runs) if "pairs" in claim else _compared(claim, setting, runs)
        for claim in DECLARED["claims"]
        for setting in DECLARED["settings"][claim["settings"]]
    ]


def counted(found: Sequence[Finding]) -> str:
    """Return how many claims have each verdict, as a sentence."""
    counts = Counter(finding.verdict for finding in found)
    return f"Rows by verdict: {', '.join(f'*{word}* {counts[word]}' for word in VERDICTS)}."


def verdict(differences: Interval, claimed: float) -> str:
    """Return whether the differences have the sign that is claimed."""
    few = differences.half is None or differences.count < FEWEST
    if few or abs(differences.value) <= (differences.half or 0.0):
        return INCONCLUSIVE
    return HOLDS if (differences.value > 0) == (claimed > 0) else FAILS


def paired(
    runs: Sequence[Run],
    paths: Mapping[str, str],
    per_round: int = 1,
    absolute: bool = False,
) -> Paired | None:
    """Return the figures of methods at the last round that enough seeds have run with all of them.

    paths: of the figure, by method. per_round: rounds of the first method for each of the others.
    """
    first, *others = paths
    own = {method: {run.seed: run for run in runs if run.method == method} for method in paths}
    seeds_at: dict[int, list[int]] = {}
    for seed, run in sorted(own[first].items()):
        for line in run.rounds:
            number, rest = divmod(line["round"], per_round)
            known = (seed in own[method] and _round(own[method][seed], number) for method in others)
            if rest == 0 and all(known):
                seeds_at.setdefault(number, []).append(seed)
    for number in shared_rounds(seeds_at)[:1]:
        figures: dict[str, dict[int, float]] = {method: {} for method in paths}
        for method, path in paths.items():
            rounds = number * per_round if method == first else number
            for seed in seeds_at[number]:
                run = own[method][seed]
                value = figure(run, path, _round(run, rounds))
                if value is not None:
                    figures[method][seed] = abs(value) if absolute else value
        measured = set.intersection(*(set(values) for values in figures.values()))
        kept = {
            m: {seed: values[seed] for seed in sorted(measured)} for m, values in figures.items()
        }
        return Paired(number, kept) if measured else None
    return None


def _round(run: Run, number: int) -> int:
    """Return a round that a run has evaluated, or its last one if it ended before; otherwise 0."""
    ended = run.finished and run.reached < min(run.planned, number)
    return number if run.at(number) else run.reached if ended else 0


def _compared(claim: Json, setting: Json, runs: Sequence[Run]) -> Finding:
    """Return the finding of a claim that a method changes a figure, relative to a baseline.

    With `groups`, the figure is the accuracy of the group that gains least.
    """
    method, baseline = claim["method"], claim.get("baseline", "fedavg")
    chosen = select(runs, setting["experiment"], setting["overrides"])
    per_round = claim.get("per_round", 1)
    pairs = {
        group: paired(
            chosen, {method: own, baseline: other}, per_round, claim.get("absolute", False)
        )
        for group, (own, other) in _paths(claim, chosen).items()
    }
    tested = {group: pair for group, pair in pairs.items() if pair is not None}
    size = claim.get("paper") or _size(claim["size"], claim)
    if not tested:
        return Finding(claim["text"], size, setting["name"], UNTESTED, "not run")
    gains = {group: pair.differences(method, baseline) for group, pair in tested.items()}
    group, least = min(gains.items(), key=lambda item: item[1].value)
    base = tested[group].figures[baseline]
    scale = 1.0 if "unit" in claim else 100 * len(base) / sum(base.values())
    after = f"{per_round * tested[group].round} of {claim['of']} rounds"
    if per_round > 1:
        after += f" (FedAvg: {tested[group].round})"
    where = f" for {group}, which gains least," if group else ""
    text = f"{_size(scale * least.value, claim)}{where} after {after}, {seeds_text(least.count)}"
    if least.half is not None:
        half = abs(scale) * least.half
        text += f" (± {half:.2f})" if "unit" in claim else f" (± {half:.0f} %)"
    word = verdict(least, claim.get("size", 1))
    return Finding(claim["text"], size, setting["name"], word, text)


def _paths(claim: Json, runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Return the paths of the method's figure and of the baseline's, by group if it has any."""
    if "groups" not in claim:
        path = str(claim["path"])
        return {"": (path, str(claim.get("baseline_path", path)))}
    known = [name for run in runs[:1] for name in run.rounds[-1]["groups"]]
    names = known if claim["groups"] == "all" else claim["groups"]
    return {name: (f"groups/{name}/accuracy", f"groups/{name}/accuracy") for name in names}


def _size(value: float, claim: Json) -> str:
    return f"{value:+.2f} {claim['unit']}" if "unit" in claim else f"{value:+.0f} %"


def _ordered(claim: Json, setting: Json, runs: Sequence[Run]) -> Finding:
    """Return the finding of a claim that methods are better than others: all pairs must hold."""
    chosen = select(runs, setting["experiment"], setting["overrides"])
    methods = dict.fromkeys(method for two in claim["pairs"] for method in two)
    pair = paired(chosen, dict.fromkeys(methods, str(claim["path"])))
    if pair is None:
        return Finding(claim["text"], claim["paper"], setting["name"], UNTESTED, "not run")
    words = [verdict(pair.differences(*two), 1) for two in claim["pairs"]]
    word = FAILS if FAILS in words else INCONCLUSIVE if INCONCLUSIVE in words else HOLDS
    means = {m: sum(values.values()) / len(values) for m, values in pair.figures.items()}
    shown = ", ".join(f"{method} {mean:.1f} %" for method, mean in means.items())
    seeds = seeds_text(len(next(iter(pair.figures.values()))))
    text = f"{shown} after {pair.round} of {claim['of']} rounds, {seeds}"
    return Finding(claim["text"], claim["paper"], setting["name"], word, text)
