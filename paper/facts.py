"""What the templates of the pages ask for: figures, and words that the runs decide."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from e2fl.errors import RunError
from e2fl.metrics.intervals import over_seeds
from paper.claims import UNTESTED, findings, paired
from paper.ledger import Json, Run
from paper.tables import (
    PAPER,
    Column,
    Repeats,
    Table,
    at_round,
    cell,
    columns,
    declared,
    labelled,
    paper_value,
    repeats_of,
    select,
    table,
)

NOT_RUN = "(not run)"
ALPHAS = {5000: {}, 1: {"data.alpha": 1}}  # of Adult, with the overrides that set them
DEMO = ("local", "fedavg", "e2fl", "e2fl_steady")
Overrides = Mapping[str, Any]


class Facts:
    """The public methods are functions of the templates."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = runs
        self.findings = findings(runs)

    def table(self, name: str, overrides: Overrides | None = None) -> Table:
        """Return a table of tables.toml."""
        return table(name, self.runs, overrides)

    def require(self, condition: object, sentence: str) -> str:
        """Raise an error if a sentence that was written by hand no longer holds."""
        if not condition:
            raise RunError(f"the ledger no longer supports '{sentence}': write it anew")
        return ""

    def number(
        self, experiment: str, method: str, path: str = "clients/mean", *at: Any, **where: Any
    ) -> float | None:
        """Return a figure: the mean over seeds, or of one; None if it was not measured.

        at, where: the round, overrides and seed; default: the last round, as shipped, all seeds.
        """
        values = list(self._repeats(experiment, method, *at, **where).values(path).values())
        return over_seeds(values).value if values else None

    def value(self, *where: Any, digits: int = 1, **more: Any) -> str:
        """Return `number` as text."""
        number = self.number(*where, **more)
        return NOT_RUN if number is None else f"{number:.{digits}f}"

    def interval(self, experiment: str, method: str, path: str, *at: Any, **where: Any) -> str:
        """Return a mean over seeds with half the width of its interval."""
        repeats = self._repeats(experiment, method, *at, **where)
        return cell(repeats.interval(Column("", path)), 1)

    def seeds(self, experiment: str, method: str, *at: Any, **where: Any) -> int:
        """Return on how many seeds a figure is based."""
        return len(self._repeats(experiment, method, *at, **where).runs)

    def _repeats(
        self,
        experiment: str,
        method: str,
        at: int | None = None,
        overrides: Overrides | None = None,
        seed: int | None = None,
    ) -> Repeats:
        own = [
            run
            for run in select(self.runs, experiment, overrides)
            if run.method == method and seed in (None, run.seed)
        ]
        found = repeats_of(own) if at is None else at_round(own, at)
        return found[0] if found else Repeats((), None)

    def paper(self, path: str, digits: int = 1) -> str:
        """Return one of the paper's numbers."""
        return f"{paper_value(path):.{digits}f}"

    def course(
        self,
        experiment: str,
        method: str,
        path: str,
        overrides: Overrides | None = None,
        seed: int = 0,
        form: str = "{:.1f} after {}",
        rounds: Sequence[int] = (),
    ) -> str:
        """Return a figure at these rounds, or at every evaluated one, as far as a run has got."""
        parts = []
        for run in self._repeats(experiment, method, None, overrides, seed).runs:
            for line in run.rounds:
                number = run.value(path, line["round"])
                if number is not None and (not rounds or line["round"] in rounds):
                    parts.append(form.format(number, line["round"]))
        return ", ".join(parts)

    def reached(
        self, experiment: str, methods: Iterable[str], overrides: Overrides | None = None
    ) -> int:
        """Return the last round that seed 0 of all these methods has evaluated; 0 if none has."""
        own = {run.method: run for run in select(self.runs, experiment, overrides) if run.seed == 0}
        if not own.keys() >= set(methods):
            return 0
        numbers = [{line["round"] for line in own[method].rounds} for method in methods]
        return int(max(set.intersection(*numbers), default=0))

    def smallest(self, experiment: str, method: str, at: int, overrides: Overrides) -> int:
        """Return the number of clients in the smallest group that was found, on seed 0."""
        (run,) = self._repeats(experiment, method, at, overrides, 0).runs
        return int(min((run.at(at) or {})["inference"]["found"].values()))

    def evidence(self, claim: str) -> str:
        """Return our figures for a claim in every setting that was run, and the paper's."""
        tested = [f for f in self.findings if f.claim == claim and f.verdict != UNTESTED]
        figures = "; ".join(f"{finding.figure} ({finding.setting})" for finding in tested)
        return f"{figures}. Paper: {tested[0].paper}." if tested else "not run."

    def leads(
        self, experiment: str, method: str, others: Iterable[str], overrides: Overrides
    ) -> bool:
        """Return whether a method has the best mean over clients, as far as each was run."""
        numbers = [self.number(experiment, other, overrides=overrides) for other in others]
        own = self.number(experiment, method, overrides=overrides)
        return own is not None and own > max(number for number in numbers if number is not None)

    def away(self, suffix: str) -> list[float]:
        """Return how far Table 5 is from the paper, for each layer that was run."""
        path = "inference/matched"
        pairs = [
            (self.number("table5", f"{layer}{suffix}", path), row["inference"]["matched"])
            for layer, row in PAPER["table5"].items()
        ]
        return [own - given for own, given in pairs if own is not None]

    def inside(self, method: str, view: str = "") -> dict[bool, dict[str, list[int]]]:
        """Return which of the paper's numbers for Adult lie in our intervals, and which do not."""
        found: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
        for alpha, overrides in ALPHAS.items():
            repeats = self._repeats("adult", method, PAPER["rounds_adult"], overrides)
            for column in columns("adult"):
                ours = repeats.interval(column, view)
                given = paper_value(f"table4/{alpha}/{method}/{column.path}")
                if ours is not None and ours.half is not None and given is not None:
                    holds = abs(ours.value - given) <= ours.half
                    found[holds].setdefault(column.title, []).append(alpha)
        return found

    def agreement(self, method: str, view: str = "") -> str:
        """Say which of the paper's numbers for Adult lie in our intervals."""
        found = self.inside(method, view)
        return f"{_listed(found[True])}; outside: {_listed(found[False])}"

    def counted(self, *readings: tuple[str, str]) -> str:
        """Return how many of the paper's numbers for Adult lie in our intervals."""
        counts: Counter[bool] = Counter()
        for reading in readings:
            for holds, figures in self.inside(*reading).items():
                counts[holds] += sum(len(alphas) for alphas in figures.values())
        return f"{counts[True]} of {counts.total()}"

    def nearest(self, views: Sequence[str]) -> dict[str, int]:
        """Return in how many runs of Adult each reading comes nearest to the paper's EOD."""
        nearest = dict.fromkeys(views, 0)
        for alpha, overrides in ALPHAS.items():
            given = PAPER["table4"][str(alpha)]["e2fl"]["protected"]["eod"]
            repeats = self._repeats("adult", "e2fl", PAPER["rounds_adult"], overrides)
            paths = [f"views/{view}/protected/eod" if view else "protected/eod" for view in views]
            values = [repeats.values(path) for path in paths]
            for seed in values[0]:
                distances = [abs(by_seed[seed] - given) for by_seed in values]
                nearest[views[distances.index(min(distances))]] += 1
        return nearest

    def share(self, path: str, alpha: int) -> float:
        """Return a figure of the women's model on Adult, in percent of FedAvg's."""
        paths = {"e2fl": f"views/as_group0/{path}", "fedavg": path}
        pair = paired(select(self.runs, "adult", ALPHAS[alpha]), paths, absolute=True)
        if pair is None:
            raise RunError(f"the ledger has no run of Adult with alpha {alpha}")
        women, dense = (sum(pair.figures[method].values()) for method in paths)
        return 100 * women / dense

    def best(self, name: str, title: str) -> list[str]:
        """Return the first cells of the row of a table with the highest mean in a column."""
        spec = declared(name)
        column = next(item for item in columns(*spec["columns"]) if item.title == title)
        rows = labelled(name, self.runs, spec.get("overrides", {}))
        means = {cells: repeats.interval(column) for (cells, _), repeats in rows.items()}
        known = {cells: mean.value for cells, mean in means.items() if mean is not None}
        return list(max(known.items(), key=lambda item: item[1])[0])

    def against_steady(self, label: str) -> str:
        """Say where a baseline with the same participation is better than e2fl_steady.

        Better and worse: the 95 % interval of the difference, paired by seed, excludes 0.
        """
        rows = {cells[0]: own for (cells, _), own in labelled("same_turns", self.runs, {}).items()}
        words: dict[str, list[str]] = {"Better": [], "Worse": [], "No clear difference": []}
        for column in columns("spread"):
            own, steady = (rows[name].values(column.path) for name in (label, "E2FL steady"))
            seeds = sorted(own.keys() & steady.keys())
            difference = over_seeds([own[seed] - steady[seed] for seed in seeds])
            clear = difference.half is not None and abs(difference.value) > difference.half
            wins = (difference.value < 0) == column.path.endswith("variance")
            word = ("Better" if wins else "Worse") if clear else "No clear difference"
            theirs, ours = (sum(by[seed] for seed in seeds) / len(seeds) for by in (own, steady))
            words[word].append(f"{MEASURES[column.path]} {theirs:.1f} against {ours:.1f}")
        return " ".join(f"{word}: {'; '.join(texts)}." for word, texts in words.items() if texts)

    def criteria(self) -> Table:
        """Return five checks of e2fl_steady on the demo, by seed, where all methods were run."""
        by_seed: dict[int, dict[str, Json]] = {}
        for run in select(self.runs, "demo"):
            if run.method in DEMO:
                number = 60 if run.at(60) else run.reached
                figures = {path: run.value(path, number) for path in MEASURES}
                by_seed.setdefault(run.seed, {})[run.method] = figures
        whole = {seed: by for seed, by in sorted(by_seed.items()) if len(by) == len(DEMO)}
        checks = {seed: _checks(by) for seed, by in whole.items()}
        names = list(next(iter(checks.values()), {}))
        rows = [
            (name, *("yes" if held[name] else "**no**" for held in checks.values()))
            for name in names
        ]
        return Table(("", *(f"seed {seed}" for seed in checks)), tuple(rows), (), not whole)


MEASURES = {
    "group/mean": "mean over groups",
    "group/worst10": "worst group",
    "group/variance": "variance over groups",
    "clients/mean": "mean over clients",
    "clients/variance": "variance over clients",
}


def _checks(by: Mapping[str, Json]) -> dict[str, bool]:
    steady = by["e2fl_steady"]
    best = {path: max(own[path] for own in by.values()) for path in MEASURES}
    return {
        "best mean over groups": steady["group/mean"] >= best["group/mean"],
        "best worst group": steady["group/worst10"] >= best["group/worst10"],
        "worst group at least Local's": steady["group/worst10"] >= by["local"]["group/worst10"],
        "mean over clients within 1 point of the best": (
            steady["clients/mean"] >= best["clients/mean"] - 1
        ),
        "group variance at most a fifth of FedAvg's": (
            steady["group/variance"] <= by["fedavg"]["group/variance"] / 5
        ),
    }


def _listed(figures: Mapping[str, Sequence[int]]) -> str:
    texts = (
        f"{title} ({'both alphas' if len(alphas) == len(ALPHAS) else f'alpha {alphas[0]}'})"
        for title, alphas in figures.items()
    )
    return ", ".join(texts) or "none"
