"""The pages of the site, from the ledger and the templates, and what the templates ask for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from e2fl.errors import RunError
from e2fl.files import write_text
from e2fl.metrics.intervals import over_seeds
from paper import board, figures
from paper.claims import findings
from paper.ledger import Json, LedgerRun, frame
from paper.studies import state
from paper.tables import (
    PAPER,
    PRINTED,
    TEMPLATES,
    PageTable,
    Repeats,
    cell,
    columns,
    labelled,
    leaderboard,
    repeats_of,
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

    def table(self, name: str, overrides: Overrides | None = None) -> PageTable:
        """Return a table of tables.toml."""
        return table(name, self.frame, overrides)

    def labelled(self, name: str) -> dict[str, Repeats]:
        """Return the runs of each row of a table, by the first cell."""
        return {label[0]: runs for label, runs in labelled(name, self.frame).items()}

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
        view: str = "",
    ) -> Repeats:
        """Return the runs of a method; default: at the last round, as shipped, all seeds."""
        rows = select(self.frame, experiment, overrides, method)
        rows = rows if seed is None else rows[rows["seed"] == seed]
        return replace(repeats_of(rows, at)[0], view=view)

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
        return f"{PRINTED[path]:.{digits}f}"

    def reached(
        self, experiment: str, methods: Iterable[str], overrides: Overrides | None = None
    ) -> int:
        """Return the last round that seed 0 of all these methods has evaluated; 0 if none has."""
        runs = [self.repeats(experiment, method, None, overrides, 0) for method in methods]
        return max(set.intersection(*(set(own.rows["round"]) for own in runs)), default=0)

    def by_seed(self, runs: Mapping[str, Repeats], path: str) -> pd.DataFrame:
        """Return a figure by label: a row for each seed that all of them have."""
        return pd.DataFrame({label: own.values(path) for label, own in runs.items()}).dropna()

    def inside(self, method: str, view: str = "") -> dict[bool, dict[str, list[int]]]:
        """Return which of the paper's numbers for Adult lie in our intervals, and which do not."""
        found: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
        for alpha, overrides in ALPHAS.items():
            repeats = self.repeats("adult", method, PAPER["rounds_adult"], overrides, view=view)
            for column in columns("adult"):
                ours = repeats.mean(column.path)
                given = PRINTED.get(f"table4/{alpha}/{method}/{column.path}")
                if ours is not None and ours.half is not None and given is not None:
                    holds = abs(ours.value - given) <= ours.half
                    found[holds].setdefault(column.title, []).append(alpha)
        return found


def pages(runs: Sequence[LedgerRun]) -> dict[str, str]:
    """Return the text of each page, by its name."""
    made = frame(runs)
    facts = Facts(made)
    longest = max((run.reached for run in runs if run.experiment in LONG), default=0)
    values = {name: getattr(facts, name) for name in dir(Facts) if not name.startswith("_")}
    values |= {
        "runs": runs,
        "samples": figures.SAMPLES,
        "alphas": ALPHAS,
        "given": PAPER,
        "findings": facts.findings,
        "over_seeds": over_seeds,
        "state": state(runs),
        "percent_of_rounds": round(100 * longest / PAPER["rounds"]),
        "leaderboard": leaderboard(made),
        "entries": board.read_entries(),
        "yardsticks": board.DECLARED,
        "board": board.board,
        "ahead": board.ahead,
    }
    return {name: TEMPLATES.get_template(f"{name}.j2").render(values) for name in PAGES}


def write(runs: Sequence[LedgerRun], docs: Path) -> list[Path]:
    """Write the pages and the figures; return the files."""
    written = []
    for name, text in pages(runs).items():
        write_text(docs / name, text)
        written.append(docs / name)
    for name, chart in figures.charts(frame(runs)).items():
        written += figures.write(chart, docs / "figures", name)
    return written
