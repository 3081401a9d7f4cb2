"""The leaderboard: every method on every data set of the ledger, the best worst group first.

Methods have their shipped settings; by_group participation, known groups for IFCA and the recommended coarse ballots
are rows of their own. Points of an ablation are not methods, and runs on validation data are not results.
"""

from collections.abc import Sequence

from e2fl.config.completion import trimmed
from e2fl.config.experiment import from_dict
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.our_tables import Variation, described, variations
from e2fl.reproduce.tables import NONE, Column, Table, interval, level, repeats_of, traffic_columns, with_interval

DATA_SETS = {
    "fair_mnist_rotate": "FairMNISTRotate",
    "femnist": "FEMNIST",
    "adult": "Adult",
    "mnist_writers": "MNIST by writer",
    "acs_income": "ACS income",
}
NOT_COMPARED = ("table5", "inference")  # they compare ways to find groups
ROWS_OF_THEIR_OWN = {
    "participation.name": "by_group",
    "algorithm.oracle_groups": True,
    "algorithm.ballot.name": "moves",
    "algorithm.downlink.name": "buckets",
    "algorithm.downlink.buckets": 12,
    "algorithm.downlink.finer": 8,
    "algorithm.downlink.near": 0.08,
}
COLUMNS = [
    Column("clients: mean", (), level("user", "mean")),
    Column("worst group", (), level("group", "worst10")),
    Column("worst 10 % of clients", (), level("user", "worst10")),
    Column("variance over clients", (), level("user", "variance")),
    Column("variance over groups", (), level("group", "variance")),
    *traffic_columns(),
]


def leaderboard(runs: Sequence[Entry]) -> list[tuple[str, Table]]:
    """Return a table for each data set and model, sorted by the worst-served group, best first."""
    by_heading: dict[str, list[Entry]] = {}
    for name in dict.fromkeys(entry.experiment for entry in runs):
        for run in variations(runs, name):
            if name not in NOT_COMPARED and is_method(run):
                by_heading.setdefault(_heading(run.entry), []).append(run.entry)
    return [(heading, _board(own)) for heading, own in sorted(by_heading.items())]


def is_method(run: Variation) -> bool:
    """Return whether a run is a method on a data set, and not a point of an ablation or a run on validation data."""
    if run.entry.config["data"].get("validation_share"):
        return False
    own = {key: value for key, value in run.changes.items() if not key.startswith(("data.", "model."))}
    return own.items() <= ROWS_OF_THEIR_OWN.items() and not run.changes.get("model.weight_scale")


def _heading(entry: Entry) -> str:
    experiment = trimmed(from_dict(entry.config))
    data, model = dict(experiment.data), dict(experiment.model)
    name = data.pop("name")
    data.pop("dir", None)
    kept = [f"{key} = {value}" for key, value in data.items()]
    kept.append(f"model {model.pop('name')}")
    kept += [f"{key} = {value}" for key, value in model.items() if key != "keep"]
    return f"{DATA_SETS.get(name, name)}: {', '.join(kept)}"


def _board(entries: Sequence[Entry]) -> Table:
    ranked = []
    for settings in dict.fromkeys(entry.settings for entry in entries):
        same = [entry for entry in entries if entry.settings == settings]
        repeats = repeats_of(same)[0]
        means = [interval(repeats, column) for column in COLUMNS]
        shown = [NONE if mean is None else with_interval(mean, 2) for mean in means]
        rank = means[1] or means[2]
        row = (described(same[0]), str(len(repeats.entries)), str(repeats.round), *shown)
        ranked.append((-(rank.mean if rank else 0.0), row))
    titles = ("method", "seeds", "rounds", *(column.title for column in COLUMNS))
    return Table(titles, tuple(row for _, row in sorted(ranked)))
