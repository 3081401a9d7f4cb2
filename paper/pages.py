"""The pages of the site, from the ledger and the templates, and what the templates ask for."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl.errors import RunError
from e2fl.files import write_text
from e2fl.metrics.intervals import over_seeds
from paper import board, figures
from paper.claims import UNTESTED, counted, findings
from paper.ledger import Json, Run, frame
from paper.studies import OUR_OWN, state
from paper.tables import (
    PAPER,
    TEMPLATES,
    Repeats,
    Table,
    cell,
    columns,
    declared,
    labelled,
    leaderboard,
    paper_value,
    picked,
    select,
    table,
)

PAGES = ("results.md", "studies.md", "leaderboard.md", "arena.md")
LONG = ("table1", "femnist")  # experiments of thousands of rounds
ALPHAS: dict[int, Json] = {5000: {}, 1: {"data.alpha": 1}}  # of Adult, with their overrides
Overrides = Mapping[str, Any]


class Facts:
    """Figures and words that the runs decide; the public methods are functions of templates."""

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame
        self.findings = findings(frame)

    def table(self, name: str, overrides: Overrides | None = None) -> Table:
        """Return a table of tables.toml."""
        return table(name, self.frame, overrides)

    def require(self, condition: object, sentence: str) -> str:
        """Raise an error if a sentence that was written by hand no longer holds."""
        if not condition:
            raise RunError(f"the ledger no longer supports '{sentence}': write it anew")
        return ""

    def repeats(
        self,
        experiment: str,
        method: str,
        at: int | None = None,
        overrides: Overrides | None = None,
        seed: int | None = None,
    ) -> Repeats:
        """Return the runs of a method; default: at the last round, as shipped, all seeds."""
        rows = select(self.frame, experiment, overrides, method)
        if seed is not None:
            rows = rows[rows["seed"] == seed]
        return next(iter(picked(rows, at)), Repeats(rows))

    def number(
        self, experiment: str, method: str, path: str = "clients/mean", *at: Any, **where: Any
    ) -> float | None:
        """Return a figure, the mean over seeds; None if not measured. at, where: as `repeats`."""
        mean = self.repeats(experiment, method, *at, **where).mean(path)
        return None if mean is None else mean.value

    def value(self, *where: Any, digits: int = 1, **more: Any) -> str:
        """Return `number` as text."""
        number = self.number(*where, **more)
        return "(not run)" if number is None else f"{number:.{digits}f}"

    def interval(self, experiment: str, method: str, path: str, *at: Any, **where: Any) -> str:
        """Return a mean over seeds with half the width of its interval."""
        return cell(self.repeats(experiment, method, *at, **where).mean(path), 1)

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
        rows = self.repeats(experiment, method, None, overrides, seed).rows
        course = rows.set_index("round")[path].dropna()
        return ", ".join(
            form.format(value, n) for n, value in course.items() if not rounds or n in rounds
        )

    def reached(
        self, experiment: str, methods: Iterable[str], overrides: Overrides | None = None
    ) -> int:
        """Return the last round that seed 0 of all these methods has evaluated; 0 if none has."""
        rounds = [
            set(self.repeats(experiment, method, None, overrides, 0).rows["round"])
            for method in methods
        ]
        return int(max(set.intersection(*rounds), default=0))

    def extremes(self, method: str, at: int, view: str = "") -> tuple[float, float]:
        """Return the lowest and the highest loss of a group of FairMNISTRotate, on seed 0."""
        rows = self.repeats("table1", method, at, seed=0).rows
        losses = rows[rows["round"] == at].filter(regex=f"^{view}groups/.*/loss$").iloc[0]
        return float(losses.min()), float(losses.max())

    def smallest(self, experiment: str, method: str, at: int, overrides: Overrides) -> int:
        """Return the number of clients in the smallest group that was found, on seed 0."""
        rows = self.repeats(experiment, method, at, overrides, 0).rows
        found = rows[rows["round"] == at].filter(like="inference/found/")
        return int(found.min().min())

    def by_seed(
        self,
        experiment: str,
        figures: Mapping[str, tuple[str, str]],
        at: int,
        overrides: Overrides | None = None,
    ) -> pd.DataFrame:
        """Return figures by label, each of a method and a path: a row per seed that has all."""
        values = {
            label: self.repeats(experiment, method, at, overrides).values(path)
            for label, (method, path) in figures.items()
        }
        return pd.DataFrame(values).dropna()

    def evidence(self, claim: str) -> str:
        """Return our figures for a claim in every setting that was run, and the paper's."""
        tested = [f for f in self.findings if f.claim == claim and f.verdict != UNTESTED]
        shown = "; ".join(f"{finding.figure} ({finding.setting})" for finding in tested)
        return f"{shown}. Paper: {tested[0].paper}." if tested else "not run."

    def inside(self, method: str, view: str = "") -> dict[bool, dict[str, list[int]]]:
        """Return which of the paper's numbers for Adult lie in our intervals, and which do not."""
        found: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
        for alpha, overrides in ALPHAS.items():
            repeats = self.repeats("adult", method, PAPER["rounds_adult"], overrides)
            for column in columns("adult"):
                ours = repeats.interval(column, view)
                given = paper_value(f"table4/{alpha}/{method}/{column.path}")
                if ours is not None and ours.half is not None and given is not None:
                    holds = abs(ours.value - given) <= ours.half
                    found[holds].setdefault(column.title, []).append(alpha)
        return found

    def best(self, name: str, title: str) -> list[str]:
        """Return the first cells of the row of a table with the highest mean in a column."""
        spec = declared(name)
        column = next(item for item in columns(*spec["columns"]) if item.title == title)
        rows = labelled(name, self.frame, spec.get("overrides", {}))
        means = {cells: repeats.interval(column) for (cells, _), repeats in rows.items()}
        known = [(mean.value, cells) for cells, mean in means.items() if mean is not None]
        return list(max(known)[1])

    def against_steady(self, label: str, path: str) -> dict[str, Any]:
        """Return a figure of a baseline with the same participation beside that of e2fl_steady.

        The interval of the difference is paired by seed.
        """
        rows = {cells[0]: own for (cells, _), own in labelled("same_turns", self.frame, {}).items()}
        pair = {name: rows[name].values(path) for name in (label, "E2FL steady")}
        both = pd.DataFrame(pair).dropna()
        theirs, ours = both.mean()
        difference = over_seeds(list(both[label] - both["E2FL steady"]))
        return {"theirs": theirs, "ours": ours, "difference": difference}


def pages(runs: Sequence[Run]) -> dict[str, str]:
    """Return the text of each page, by its name."""
    made = frame(runs)
    facts = Facts(made)
    progress = state(runs)
    longest = max((run.reached for run in runs if run.experiment in LONG), default=0)
    values = {name: getattr(facts, name) for name in dir(Facts) if not name.startswith("_")}
    values |= {
        "runs": runs,
        "samples": figures.SAMPLES,
        "alphas": ALPHAS,
        "given": PAPER,
        "findings": facts.findings,
        "verdicts": counted(facts.findings),
        "state": progress,
        "complete": [
            title
            for title, needed, finished, _ in progress
            if needed == finished and not title.startswith(OUR_OWN)
        ],
        "percent_of_rounds": round(100 * longest / PAPER["rounds"]),
        "sections": [(heading, board.text) for heading, board in leaderboard(made)],
        "arena": board.sections(board.read_entries()),
        "yardsticks": list(board.DECLARED),
    }
    return {name: TEMPLATES.get_template(f"{name}.j2").render(values) for name in PAGES}


def write(runs: Sequence[Run], docs: Path) -> list[Path]:
    """Write the pages and the figures; return the files."""
    written = []
    for name, text in pages(runs).items():
        write_text(docs / name, text)
        written.append(docs / name)
    for name, chart in figures.charts(frame(runs)).items():
        written += figures.write(chart, docs / "figures", name)
    return written
