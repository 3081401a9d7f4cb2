"""The paper's claims, each with a verdict from our runs.

A claim holds, or does not hold, if at least three seeds were run with both methods and the 95 %
interval of the difference, paired by seed, excludes 0. Otherwise it is inconclusive, and the number
is still shown; a claim without runs is not tested.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from e2fl.metrics.intervals import Interval, over_seeds
from paper.ledger import HERE, Json
from paper.tables import FEWEST, TEMPLATES, seeds_text, select, shared_rounds

HOLDS, FAILS, INCONCLUSIVE, UNTESTED = "holds", "does not hold", "inconclusive", "not tested"
DECLARED: Json = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Finding:
    """The evidence of the ledger for a claim in one setting."""

    claim: str
    paper: str
    setting: str
    verdict: str = UNTESTED
    figure: str = "not run"


@dataclass(frozen=True)
class Paired:
    """Figures of several methods at the last round that enough seeds have of all."""

    round: int
    figures: pd.DataFrame  # a row per seed, a column per method

    def differences(self, method: str, baseline: str) -> Interval:
        """Return one method's figure minus the other's, seed by seed."""
        return over_seeds(list(self.figures[method] - self.figures[baseline]))


def findings(frame: pd.DataFrame) -> list[Finding]:
    """Return all claims, each in all its settings."""
    return [
        (_ordered if "pairs" in claim else _compared)(
            claim, setting["name"], select(frame, setting["experiment"], setting["overrides"])
        )
        for claim in DECLARED["claims"]
        for setting in DECLARED["settings"][claim["settings"]]
    ]


def counted(found: Sequence[Finding]) -> str:
    """Return how many claims have each verdict, as a sentence."""
    counts = Counter(finding.verdict for finding in found)
    words = (HOLDS, FAILS, INCONCLUSIVE, UNTESTED)
    return f"Rows by verdict: {', '.join(f'*{word}* {counts[word]}' for word in words)}."


def verdict(differences: Interval, claimed: float) -> str:
    """Return whether the differences have the sign that is claimed."""
    few = differences.half is None or differences.count < FEWEST
    if few or abs(differences.value) <= (differences.half or 0.0):
        return INCONCLUSIVE
    return HOLDS if (differences.value > 0) == (claimed > 0) else FAILS


def paired(
    rows: pd.DataFrame, paths: Mapping[str, str], per_round: int = 1, absolute: bool = False
) -> Paired | None:
    """Return the figures of methods at the last round that enough seeds have run with all of them.

    paths: of the figure, by method. per_round: rounds of the first method for each of the others.
    A method that ended by itself keeps its last figure.
    """
    first, figures = next(iter(paths)), {}
    for method, path in paths.items():
        step = per_round if method == first else 1
        own = rows[(rows["method"] == method) & (rows["round"] % step == 0)]
        figures[method] = (
            own.assign(round=own["round"] // step)
            .set_index(["seed", "round"])
            .reindex(columns=[path])[path]
        )
    both = pd.DataFrame(figures).sort_index()
    for method in list(paths)[1:]:
        ended = set(rows.loc[(rows["method"] == method) & rows["ended"], "seed"])
        kept = ~both.index.get_level_values("seed").isin(ended)
        both[method] = both[method].where(kept, both[method].groupby("seed").ffill())
    both = both.dropna()
    if not len(both):
        return None
    number, *_ = shared_rounds(both.groupby(level="round").size())
    at_last = both[both.index.get_level_values("round") == number].droplevel("round")
    return Paired(number, at_last.abs() if absolute else at_last)


def _compared(claim: Json, setting: str, rows: pd.DataFrame) -> Finding:
    """Return the finding of a claim that a method changes a figure, relative to a baseline.

    With `groups`, the figure is the accuracy of the group that gains least.
    """
    method, baseline = claim["method"], claim.get("baseline", "fedavg")
    per_round = claim.get("per_round", 1)
    tested = {}
    for group, path in _paths(claim, rows).items():
        paths = {method: path, baseline: claim.get("baseline_path", path)}
        pair = paired(rows, paths, per_round, claim.get("absolute", False))
        if pair is not None:
            tested[group] = pair
    size = claim.get("paper") or _size(claim["size"], claim)
    if not tested:
        return Finding(claim["text"], size, setting)
    gains = {group: pair.differences(method, baseline) for group, pair in tested.items()}
    group, least = min(gains.items(), key=lambda item: item[1].value)
    number, figures = tested[group].round, tested[group].figures
    scale = 1.0 if "unit" in claim else 100 / figures.mean()[baseline]
    text = TEMPLATES.get_template("figure.md.j2").render(
        claim | {"group": group, "per_round": per_round, "number": number, "least": least},
        change=_size(scale * least.value, claim),
        half=abs(scale) * (least.half or 0.0),
        seeds=seeds_text(least.count),
    )
    return Finding(
        claim["text"], size, setting, verdict(least, claim.get("size", 1)), text.replace("\n", "")
    )


def _paths(claim: Json, rows: pd.DataFrame) -> dict[str, str]:
    """Return the path of the figure, by group if the claim has any."""
    if "groups" not in claim:
        return {"": claim["path"]}
    known = [name for run in rows.get("run", [])[:1] for name in run.rounds[-1]["groups"]]
    names = known if claim["groups"] == "all" else claim["groups"]
    return {name: f"groups/{name}/accuracy" for name in names}


def _size(value: float, claim: Json) -> str:
    return f"{value:+.2f} {claim['unit']}" if "unit" in claim else f"{value:+.0f} %"


def _ordered(claim: Json, setting: str, rows: pd.DataFrame) -> Finding:
    """Return the finding of a claim that methods are better than others: all pairs must hold."""
    methods = dict.fromkeys(method for pair in claim["pairs"] for method in pair)
    figures = paired(rows, dict.fromkeys(methods, str(claim["path"])))
    if figures is None:
        return Finding(claim["text"], claim["paper"], setting)
    words = [verdict(figures.differences(*pair), 1) for pair in claim["pairs"]]
    word = FAILS if FAILS in words else INCONCLUSIVE if INCONCLUSIVE in words else HOLDS
    means = figures.figures.mean()
    shown = ", ".join(f"{method} {means[method]:.1f} %" for method in methods)
    seeds = seeds_text(len(figures.figures))
    text = f"{shown} after {figures.round} of {claim['of']} rounds, {seeds}"
    return Finding(claim["text"], claim["paper"], setting, word, text)
