"""The pages and figures of the site, from the ledger and the templates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from e2fl.files import write_text
from paper import figures
from paper.ballots import ballot_points
from paper.claims import counted
from paper.facts import Facts
from paper.leaderboard import leaderboard
from paper.ledger import HERE, Json, Run
from paper.studies import OUR_OWN, state
from paper.tables import PAPER, select

PAGES = ("results.md", "studies.md", "leaderboard.md")
SAMPLES: dict[int, Json] = {233: {}, 60: {"data.samples_per_client": 60}}  # images, and overrides
LONG = ("table1", "femnist")  # experiments of thousands of rounds


def pages(runs: Sequence[Run]) -> dict[str, str]:
    """Return the text of each page, by its name."""
    facts = Facts(runs)
    progress = state(runs)
    longest = max((run.reached for run in runs if run.experiment in LONG), default=0)
    values = {name: getattr(facts, name) for name in dir(Facts) if not name.startswith("_")}
    values |= {
        "runs": runs,
        "samples": SAMPLES,
        "findings": facts.findings,
        "verdicts": counted(facts.findings),
        "state": progress,
        "complete": [
            title
            for title, needed, finished, _ in progress
            if needed == finished and not title.startswith(OUR_OWN)
        ],
        "percent_of_rounds": round(100 * longest / PAPER["rounds"]),
        "figures": figure_names(runs),
        "sections": [(heading, board.text) for heading, board in leaderboard(runs)],
        "commits": sorted({_commit(run) for run in runs if run.origin.get("commit")}),
        "engines": sorted({str(run.origin["engine"]) for run in runs}),
        "machines": sorted({_machine(run) for run in runs if run.origin.get("machine")}),
    }
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
        extensions=["jinja2.ext.do"],
    )
    return {name: environment.get_template(f"{name}.j2").render(values) for name in PAGES}


def write(runs: Sequence[Run], docs: Path) -> list[Path]:
    """Write the pages and the figures; return the files."""
    written = []
    for name, text in pages(runs).items():
        write_text(docs / name, text)
        written.append(docs / name)
    for name, chart in charts(runs).items():
        written += figures.write(chart, docs / "figures", name)
    return written


def charts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return every figure that the ledger has data for, by the name of its files."""
    made = {}
    for samples, overrides in SAMPLES.items():
        rotated, inference = (select(runs, name, overrides) for name in ("table1", "inference"))
        made[f"figure3-{samples}"] = figures.figure3(rotated, samples)
        made[f"inference-{samples}"] = figures.figure_inference(inference, samples)
    made["ballots"] = figures.figure_ballots(ballot_points(runs))
    return {name: chart for name, chart in made.items() if chart is not None}


def figure_names(runs: Sequence[Run]) -> list[str]:
    """Return the names that `charts` has, without drawing anything."""
    names = ["ballots"] if figures.worth_drawing(ballot_points(runs)) else []
    for samples, overrides in SAMPLES.items():
        if figures.loss_rows(select(runs, "table1", overrides)):
            names.append(f"figure3-{samples}")
        if figures.matched_rows(select(runs, "inference", overrides)):
            names.append(f"inference-{samples}")
    return names


def _commit(run: Run) -> str:
    commit = str(run.origin["commit"])
    return commit[:12] + ("-dirty" if commit.endswith("-dirty") else "")


def _machine(run: Run) -> str:
    kind = run.origin["machine"]
    return f"{kind['cores']} cores with {kind['instructions'].replace('AVX512', 'AVX-512')}"
