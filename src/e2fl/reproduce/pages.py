"""docs/results.md, studies.md, leaderboard.md and their figures, generated from the ledger and the templates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2fl.errors import ConfigError
from e2fl.files import write_text
from e2fl.reproduce import adult_tables, ballot_tables, figures, our_tables, paper_tables
from e2fl.reproduce.causes import causes
from e2fl.reproduce.claims import counted, findings
from e2fl.reproduce.in_short import in_short
from e2fl.reproduce.leaderboard import leaderboard
from e2fl.reproduce.ledger import Entry, best_of
from e2fl.reproduce.running import missing
from e2fl.reproduce.selection import INK, NARROW, PAPERS, SAMPLES, fewer_images, other_alpha, select
from e2fl.reproduce.studies import OUR_OWN, STUDIES, paper, wanted
from e2fl.reproduce.tables import Table

PAGES = ("results.md", "studies.md", "leaderboard.md")
FIGURES = (*(f"{name}-{samples}" for name in ("figure3", "inference") for samples in SAMPLES), "ballots")
MILESTONES = (50, 100, 200, 300, 500, 1000, 2000, 3000)
LONG = ("table1", "femnist")  # experiments of thousands of rounds
NATURAL = {
    "acs_income": "ACS income: 18 states as groups, five clients in each",
    "mnist_writers": "MNIST by writer: groups are found",
    "femnist": "FEMNIST, partial: groups are found",
}


def pages(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the text of each page, by its name."""
    environment = _environment()
    runs = best_of(entries)
    found = findings(runs)
    progress = state(runs)
    values = {
        "entries": runs,
        "samples": SAMPLES,
        "table1": {
            samples: _for_template(
                paper_tables.table1(select(runs, "table1", fewer_images(samples)), papers=samples == PAPERS)
            )
            for samples in SAMPLES
        },
        "table2": _for_template(paper_tables.table2(select(runs, "femnist"))),
        "table2_narrow": _for_template(paper_tables.table2(select(runs, "femnist", NARROW), compared=False)),
        "table2_ink": _for_template(paper_tables.table2(select(runs, "femnist", NARROW | INK), compared=False)),
        "table4": {
            alpha: _for_template(paper_tables.table4(select(runs, "adult", other_alpha(alpha)), alpha))
            for alpha in (5000, 1)
        },
        "readings": {alpha: _for_template(adult_tables.readings(runs, alpha)) for alpha in (5000, 1)},
        "adult_words": adult_tables.against_the_paper(runs),
        "rates": _for_template(adult_tables.rates(runs)),
        "table5": {
            samples: _for_template(
                paper_tables.table5(select(runs, "table5", fewer_images(samples)), papers=samples == PAPERS)
            )
            for samples in SAMPLES
        },
        "table6": _for_template(paper_tables.table6(select(runs, "table6"))),
        "table6_narrow": _for_template(paper_tables.table6(select(runs, "table6", NARROW), compared=False)),
        "inference": {
            samples: _for_template(paper_tables.inference_table(select(runs, "inference", fewer_images(samples))))
            for samples in SAMPLES
        },
        "demo": _for_template(our_tables.demo(runs)),
        "criteria": _for_template(our_tables.criteria(runs)),
        "ablation": _for_template(our_tables.ablation(runs)),
        "validation": _for_template(our_tables.validation(runs)),
        "best_validated": our_tables.best_validated(runs),
        "same_turns": _for_template(our_tables.same_turns(runs)),
        "in_words": our_tables.in_words(runs),
        "single_changes": _for_template(our_tables.single_changes(runs)),
        "at_scale": {samples: _for_template(our_tables.at_scale(runs, samples)) for samples in SAMPLES},
        "natural": {name: _for_template(our_tables.natural(runs, name)) for name in NATURAL},
        "ballots": _for_template(ballot_tables.ballots(runs, "demo")),
        "clustering_ballots": _for_template(ballot_tables.clustering_ballots(runs)),
        "ballots_wide": _for_template(ballot_tables.ballots(runs, "table1", 60)),
        "causes": _for_template(causes(runs)),
        "frl_leads": _frl_leads(runs),
        "in_short": in_short(runs, found),
        "findings": found,
        "verdicts": counted(found),
        "figures": figure_names(runs),
        "natural_titles": NATURAL,
        "percent_of_rounds": round(
            100 * max((run.rounds for run in runs if run.experiment in LONG), default=0) / paper()["rounds"]
        ),
        "state": progress,
        "complete": [title for title, needed, done, _ in progress if needed == done and not title.startswith(OUR_OWN)],
        "small_clusters": ", ".join(
            str(_smallest(runs, 100, experiment="table6", method=f"q{groups}", model="lenet_small"))
            for groups in (2, 3, 4, 5)
        ),
        "worst_by_round": lambda **which: _worst_by_round(runs, **which),
        "sections": [(heading, markdown(board)) for heading, board in leaderboard(runs)],
        "at": lambda number, *figure, **which: _at(runs, number, *figure, **which),
        "course": lambda **which: _course(runs, **which),
        "smallest": lambda number, **which: _smallest(runs, number, **which),
        "commits": sorted({_commit(entry) for entry in runs if entry.record.get("commit")}),
        "machines": sorted({_machine(entry) for entry in runs if entry.record.get("machine")}),
    }
    return {name: environment.get_template(f"{name}.j2").render(values) for name in PAGES}


def write(entries: Sequence[Entry], docs: Path) -> list[Path]:
    """Write the pages and the figures; return the files."""
    written = []
    for name, text in pages(entries).items():
        write_text(docs / name, text)
        written.append(docs / name)
    drawn = charts(best_of(entries))
    for name in FIGURES:
        if name in drawn:
            written += figures.write(drawn[name], docs / "figures", name)
        else:  # of an older ledger
            for suffix in (".svg", ".png"):
                (docs / "figures" / f"{name}{suffix}").unlink(missing_ok=True)
    return written


def charts(runs: Sequence[Entry]) -> dict[str, Any]:
    """Return every figure that the ledger has data for, by the name of its files."""
    made = {}
    for samples in SAMPLES:
        changes = fewer_images(samples)
        made[f"figure3-{samples}"] = figures.figure3(select(runs, "table1", changes), samples)
        made[f"inference-{samples}"] = figures.figure_inference(select(runs, "inference", changes), samples)
    made["ballots"] = figures.figure_ballots(ballot_tables.ballot_points(runs))
    return {name: chart for name, chart in made.items() if chart is not None}


def figure_names(runs: Sequence[Entry]) -> list[str]:
    """Return the names that charts() has, without drawing anything."""
    names = []
    for samples in SAMPLES:
        changes = fewer_images(samples)
        if figures.loss_rows(select(runs, "table1", changes)):
            names.append(f"figure3-{samples}")
        if figures.matched_rows(select(runs, "inference", changes)):
            names.append(f"inference-{samples}")
    if figures.worth_drawing(ballot_tables.ballot_points(runs)):
        names.append("ballots")
    return names


def markdown(table: Table) -> str:
    """Return the table in Markdown; numbers are aligned to the right, and a label is not repeated."""
    lines = [_row(table.titles), _row(["---" if place < 2 else "--:" for place in range(len(table.titles))])]
    before = ""
    for label, *cells in table.rows:
        shown = "" if label == before and table.titles[1] == "" else label
        lines.append(_row([shown, *cells]))
        before = label
    return "\n".join(lines)


def state(runs: Sequence[Entry]) -> list[tuple[str, int, int, list[str]]]:
    """Return for each table and figure its title, how many runs it takes, how many are finished, and the ones begun."""
    found = []
    for study in STUDIES.values():
        needed = wanted(study)
        lacking = missing(needed, runs)
        begun = [
            f"{item.wanted.method} seed {item.wanted.seed}: round {item.reached} of {item.wanted.experiment.rounds}"
            for item in lacking
            if item.reached
        ]
        found.append((study.title, len(needed), len(needed) - len(lacking), begun))
    return found


def _line(
    runs: Sequence[Entry],
    number: int,
    experiment: str,
    method: str,
    *,
    samples: int = 233,
    model: str = "lenet",
    seed: int = 0,
) -> dict[str, Any] | None:
    """Return the line of a round of a run, for the templates; None if it was not run."""
    changes = NARROW if model == "lenet_small" else fewer_images(samples)
    for entry in select(runs, experiment, changes):
        if (entry.method, entry.seed) == (method, seed):
            return entry.at(number)
    return None


def _at(runs: Sequence[Entry], number: int, level: str = "user", figure: str = "mean", **which: Any) -> str:
    """Return a figure, by default the mean accuracy over clients, or that the round was not reached."""
    line = _line(runs, number, **which)
    return "(not run)" if line is None else f"{line[level][figure]:.1f}"


def _course(runs: Sequence[Entry], **which: Any) -> str:
    """Return the mean accuracy over clients at some rounds, as far as the run has got."""
    return ", ".join(f"{_at(runs, n, **which)} after {n}" for n in MILESTONES if _line(runs, n, **which))


def _worst_by_round(runs: Sequence[Entry], experiment: str, method: str, samples: int, seed: int) -> str:
    """Return the accuracy of the worst group at each evaluated round."""
    for entry in select(runs, experiment, fewer_images(samples)):
        if (entry.method, entry.seed) == (method, seed):
            return ", ".join(f"{line['group']['worst10']:.1f} (round {line['round']})" for line in entry.history)
    return "(not run)"


def _smallest(runs: Sequence[Entry], number: int, **which: Any) -> int:
    """Return the number of clients in the smallest group that was found; 0 if it was not run."""
    line = _line(runs, number, **which)
    return 0 if line is None else int(min(line["inference"]["found"].values()))


def _frl_leads(runs: Sequence[Entry]) -> bool:
    """Return whether, on narrow FEMNIST, FRL is ahead of E2FL and both ways to treat absent groups were run."""
    methods, rounds = ("frl", "e2fl", "e2fl_present_only"), (20, 100)
    lines = {(m, n): _line(runs, n, "femnist", m, model="lenet_small") for m in methods for n in rounds}
    known = {place: line["user"]["mean"] for place, line in lines.items() if line is not None}
    return len(known) == len(lines) and all(known["frl", number] > known["e2fl", number] for number in rounds)


def _for_template(table: Table) -> dict[str, Any]:
    """Return what a template needs of a table."""
    if table.empty:
        return {"text": "Not run: the ledger has no run for this table.", "not_run": (), "rows": ()}
    return {"text": markdown(table), "not_run": table.not_run, "rows": table.rows}


def _commit(entry: Entry) -> str:
    commit = str(entry.record["commit"])
    return commit[:12] + ("-dirty" if commit.endswith("-dirty") else "")


def _machine(entry: Entry) -> str:
    kind = entry.record["machine"]
    return f"{kind['cores']} cores with {kind['instructions'].replace('AVX512', 'AVX-512')}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise ConfigError("the pages need the extra 'report': pip install 'e2fl[report]'") from None
    return Environment(
        loader=PackageLoader("e2fl.reproduce"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
