"""The leaderboard: the methods on every data set of the ledger, the best worst group first (Adult: the smallest EOD).

Methods have their shipped settings; by_group participation, known groups for IFCA and the recommended coarse ballots
are rows of their own. Points of an ablation are not methods, and runs on validation data are not results.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.our_tables import Variation, described, variations
from e2fl.reproduce.paper_tables import adult_columns
from e2fl.reproduce.tables import Column, Table, cell, interval, level, repeats_of, traffic_columns

TITLES = {  # by experiment
    "demo": "The demo: FairMNISTRotate, bundled images, 100 clients, a narrow LeNet",
    "table1": "FairMNISTRotate, 1000 clients",
    "femnist": "FEMNIST, partial, 300 writers",
    "adult": "Adult",
    "mnist_writers": "MNIST by writer",
    "acs_income": "ACS income by state",
}
TOLD = {
    "table1": {"data.samples_per_client": 233},
    "adult": {"data.alpha": 5000},
}  # named in the title, even as shipped
NOT_COMPARED = ("table5", "table6", "inference")  # they compare ways to find groups
# The values with which a setting makes a method, not a point of an ablation.
ROWS_OF_THEIR_OWN: Mapping[str, list[Any]] = {
    "participation.name": ["by_group"],
    "algorithm.oracle_groups": [True],
    "algorithm.ballot.name": ["moves"],
    "algorithm.ballot.steps": [12, 20],
    "algorithm.downlink.name": ["buckets"],
    "algorithm.downlink.buckets": [8, 96],
    "algorithm.downlink.finer": [8],
    "algorithm.downlink.near": [0.08],
}
WORST_GROUP = Column("worst group", (), level("group", "worst10"))
GROUP_VARIANCE = Column("variance over groups", (), level("group", "variance"))
COLUMNS = [
    Column("clients: mean", (), level("user", "mean")),
    WORST_GROUP,
    Column("worst 10 % of clients", (), level("user", "worst10")),
    Column("variance over clients", (), level("user", "variance")),
    GROUP_VARIANCE,
    *traffic_columns(),
]
# Adult's clients all have the same test rows, so they do not differ; women and men do.
ACCURACY, EOD, DI = adult_columns(None)
ADULT_COLUMNS = [ACCURACY, EOD, DI, WORST_GROUP, GROUP_VARIANCE, *traffic_columns()]


def leaderboard(runs: Sequence[Entry]) -> list[tuple[str, Table]]:
    """Return a table for each data set and model, sorted by the worst-served group, best first."""
    by_heading: dict[str, list[Entry]] = {}
    for name in dict.fromkeys(entry.experiment for entry in runs):
        for run in variations(runs, name):
            if name not in NOT_COMPARED and is_method(run):
                by_heading.setdefault(_heading(run), []).append(run.entry)
    return [(heading, _board(own)) for heading, own in sorted(by_heading.items())]


def is_method(run: Variation) -> bool:
    """Return whether a run is a method on a data set, and not a point of an ablation or a run on validation data."""
    data = run.entry.config["data"]
    if data.get("validation_share") or data.get("pooled_validation_share"):
        return False
    if run.entry.experiment in ("adult", "demo") and any(key.startswith("model.") for key in run.changes):
        return False
    own = {key: value for key, value in run.changes.items() if not key.startswith(("data.", "model."))}
    return all(value in ROWS_OF_THEIR_OWN.get(key, ()) for key, value in own.items())


def _heading(run: Variation) -> str:
    """Return the data set, and how data and model differ from the shipped experiment."""
    name = run.entry.experiment
    told = {key: value for key, value in run.changes.items() if key.startswith(("data.", "model."))}
    changes = TOLD.get(name, {}) | told
    parts = [f"{key.removesuffix('.name').split('.')[-1]} = {value}" for key, value in changes.items()]
    title = TITLES.get(name, name)
    return f"{title}: {', '.join(parts)}" if parts else title


def _board(entries: Sequence[Entry]) -> Table:
    adult = entries[0].experiment == "adult"
    columns = ADULT_COLUMNS if adult else COLUMNS
    ranked = []
    for settings in dict.fromkeys(entry.settings for entry in entries):
        same = [entry for entry in entries if entry.settings == settings]
        repeats = repeats_of(same)[0]
        means = [interval(repeats, column) for column in columns]
        shown = [cell(mean, column.digits) for mean, column in zip(means, columns, strict=True)]
        rank = means[1] or means[2]
        score = 0.0 if rank is None else -abs(rank.mean) if adult else rank.mean
        ranked.append((-score, (shown_as(same[0]), str(len(repeats.entries)), str(repeats.round), *shown)))
    titles = ("method", "seeds", "rounds", *(column.title for column in columns))
    return Table(titles, tuple(row for _, row in sorted(ranked)))


def shown_as(entry: Entry) -> str:
    """Return the method of a run, and how it finds groups if they are not known."""
    grouping = entry.config["algorithm"].get("grouping", {})
    if not grouping.get("groups"):
        return described(entry)
    return f"{described(entry)}: {grouping['name'].replace('_', ' ')}, {grouping['groups']} groups"
