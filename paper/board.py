"""The arena's results, a line of JSON for each yardstick and method, and what its page shows."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from e2fl.files import write_text
from e2fl.metrics.intervals import over_seeds, paired
from paper.ledger import HERE, Json
from paper.tables import NONE, TEMPLATES, PageTable, cell

RESULTS = HERE / "arena.jsonl"
DECLARED: Json = tomllib.loads((HERE / "arena.toml").read_text(encoding="utf-8"))
TUNED: dict[str, str] = DECLARED.pop("tuned")
FIXED: dict[str, list[str]] = DECLARED.pop("fixed")
VARIANTS: Json = DECLARED.pop("variants")
COLUMNS: list[tuple[str, str, int, float]] = DECLARED.pop("columns")
COMPARED: list[Json] = DECLARED.pop("compared")
OURS: list[str] = DECLARED.pop("ours")
METHODS: list[str] = DECLARED.pop("methods")
WORST = ("group/worst10", "clients/worst10")  # the page sorts by the first that there is


@dataclass(frozen=True)
class Entry:
    """A method on a yardstick: what was chosen for it, and its figures with every seed."""

    yardstick: str
    method: str  # as `--methods` names it
    label: str
    trials: int
    chosen: Json  # settings, on validation rows of the first seed
    seeds: list[int]
    figures: dict[str, list[float]]  # by path, one for each seed
    chance: dict[str, float]  # by path, the spread that chance alone gives
    origin: Json

    def by_seed(self, path: str) -> dict[int, float]:
        """Return a figure for each seed."""
        return dict(zip(self.seeds, self.figures.get(path, ()), strict=False))


def read_entries(path: Path = RESULTS) -> list[Entry]:
    """Return the results that are shipped."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Entry(**json.loads(line)) for line in lines]


def merged(*lists: Iterable[Entry]) -> list[Entry]:
    """Return one entry for each yardstick and method, the last one, in a fixed order."""
    last = {(entry.yardstick, entry.method): entry for entries in lists for entry in entries}
    return [last[key] for key in sorted(last)]


def write_entries(entries: Iterable[Entry], path: Path = RESULTS) -> None:
    """Store results."""
    lines = (json.dumps(asdict(entry), ensure_ascii=False) for entry in entries)
    write_text(path, "".join(f"{line}\n" for line in lines))


def board(entries: Sequence[Entry]) -> PageTable:
    """Return the table of one yardstick, best for the worst group first."""
    worst = next((p for p in WORST if any(p in entry.figures for entry in entries)), WORST[1])

    def mean(entry: Entry) -> float:
        values = entry.figures.get(worst)
        return over_seeds(values).value if values else 0.0

    columns = [one for one in COLUMNS if any(entry.figures.get(one[1]) for entry in entries)]
    rows = [
        [
            entry.label,
            *(_cell(entry, path, digits, factor) for _, path, digits, factor in columns),
            _chosen(entry),
        ]
        for entry in sorted(entries, key=mean, reverse=True)
    ]
    return PageTable(["method", *(title for title, *_ in columns), "chosen"], rows=rows)


def _cell(entry: Entry, path: str, digits: int, factor: float) -> str:
    values = [factor * value for value in entry.figures.get(path, ())]
    if not values:
        return NONE
    if path.startswith(("bytes", "seconds")):
        return f"{over_seeds(values).value:.{digits}f}"
    chance = entry.chance.get(path)
    beside = f" (chance {chance:.{digits}f})" if "variance" in path and chance is not None else ""
    return cell(over_seeds(values), digits) + beside


def _chosen(entry: Entry) -> str:
    """Return the settings that were chosen, by short names."""
    names = {"learner.learning_rate": "rate", "learner.score_rate": "score rate"}
    return ", ".join(
        f"{names.get(key, key.removeprefix('algorithm.'))} "
        f"{f'{value:.3g}' if isinstance(value, float) else value}"
        for key, value in entry.chosen.items()
    )


def ahead(entries: Sequence[Entry]) -> list[str]:
    """Say in words which methods of one yardstick are better than ours, measure by measure."""
    own = next((entry for entry in entries if entry.method == OURS[0]), None)
    sentences = []
    for measure in COMPARED:
        if own is None or measure["path"] not in own.figures:
            continue
        better = {}
        for other in (entry for entry in entries if entry.method not in OURS):
            difference = paired(other.by_seed(measure["path"]), own.by_seed(measure["path"]))
            if difference is not None and measure["sign"] * difference.value > 0:
                better[other.label] = difference
        text = TEMPLATES.get_template("ahead.md.j2")
        sentences.append(text.render(measure, label=own.label, better=better).strip())
    return sentences
