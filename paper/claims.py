"""The paper's claims, each with a verdict from our runs.

A claim holds, or does not hold, if at least three seeds were run with both methods and the 95 %
interval of the difference, paired by seed, excludes 0. Otherwise it is inconclusive, and the number
is still shown; a claim without runs is not tested.
"""

import tomllib
from collections.abc import Mapping
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


def findings(frame: pd.DataFrame) -> list[Finding]:
    """Return all claims, each in all its settings."""
    return [
        _finding(claim, setting["name"], select(frame, setting["experiment"], setting["overrides"]))
        for claim in DECLARED["claims"]
        for setting in DECLARED["settings"][claim["settings"]]
    ]


def verdict(differences: Interval, claimed: float) -> str:
    """Return whether the differences have the sign that is claimed."""
    if differences.count < FEWEST or differences.may_be_chance:
        return INCONCLUSIVE
    return HOLDS if (differences.value > 0) == (claimed > 0) else FAILS


def paired(
    rows: pd.DataFrame, paths: Mapping[str, str], per_round: int = 1, absolute: bool = False
) -> tuple[int, pd.DataFrame]:
    """Return the last round that enough seeds have run with all methods, and figures by seed.

    paths: of the figure, by method. per_round: rounds of the first method for each of the others.
    A run that ended by itself keeps its last figure.
    """
    figures: dict[str, pd.Series[float]] = {}
    for method, path in paths.items():
        step = 1 if figures else per_round
        own = rows[(rows["method"] == method) & (rows["round"] % step == 0)]
        index = [own["seed"], own["round"] // step]
        figures[method] = own.reindex(columns=[path])[path].set_axis(index)
    both = pd.DataFrame(figures).sort_index()
    for method in paths:
        ended = rows.loc[(rows["method"] == method) & rows["ended"], "seed"]
        last = both[method].groupby(level=0).ffill()
        both[method] = both[method].fillna(last.where(both.index.isin(ended, level=0)))
    both = both.dropna()
    if not len(both):
        return 0, both
    number, *_ = shared_rounds(both.groupby(level=1).size())
    at_last = both[both.index.get_level_values(1) == number].droplevel(1)
    return number, at_last.abs() if absolute else at_last


def _finding(claim: Json, setting: str, rows: pd.DataFrame) -> Finding:
    """Return whether every pair of methods differs as is claimed, in every group that it names.

    The figure is that of the smallest difference.
    """
    pairs = claim.get("pairs") or [[claim["method"], claim.get("baseline", "fedavg")]]
    methods = list(dict.fromkeys(method for pair in pairs for method in pair))
    tested: list[tuple[Interval, str, int, pd.DataFrame]] = []
    for group, path in _paths(claim, rows).items():
        paths = dict.fromkeys(methods, path)
        paths[methods[-1]] = claim.get("baseline_path", path)
        per_round, absolute = claim.get("per_round", 1), claim.get("absolute", False)
        number, figures = paired(rows, paths, per_round, absolute)
        if number:
            differences = [over_seeds(list(figures[one] - figures[other])) for one, other in pairs]
            tested += [(difference, group, number, figures) for difference in differences]
    size = claim.get("paper") or _size(claim["size"], claim)
    if not tested:
        return Finding(claim["text"], size, setting)
    words = [verdict(difference, claim.get("size", 1)) for difference, *_ in tested]
    word = next(word for word in (FAILS, INCONCLUSIVE, HOLDS) if word in words)
    least, group, number, figures = min(tested, key=lambda test: test[0].value)
    means = figures.mean()
    scale = 1.0 if "unit" in claim else 100 / means[methods[-1]]
    text = TEMPLATES.get_template("figure.md.j2").render(
        {"per_round": 1} | claim | {"group": group, "number": number, "means": dict(means)},
        change=_size(scale * least.value, claim),
        half=None if least.half is None else abs(scale) * least.half,
        seeds=seeds_text(least.count),
    )
    return Finding(claim["text"], size, setting, word, text.replace("\n", ""))


def _paths(claim: Json, rows: pd.DataFrame) -> dict[str, str]:
    """Return the path of the figure, by group if the claim has any."""
    if "groups" not in claim:
        return {"": claim["path"]}
    known = [name for run in rows["run"][:1] for name in run.rounds[-1]["groups"]]
    names = known if claim["groups"] == "all" else claim["groups"]
    return {name: f"groups/{name}/accuracy" for name in names}


def _size(value: float, claim: Json) -> str:
    return f"{value:+.2f} {claim['unit']}" if "unit" in claim else f"{value:+.0f} %"
