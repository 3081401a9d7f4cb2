"""The leaderboard: the methods on every data set of the ledger, the best worst group first.

Methods have their shipped settings; by_group participation, known groups for IFCA and the
recommended coarse ballots are rows of their own. Points of an ablation are not methods, and runs
on validation data are not results. On Adult, the smallest EOD is first.
"""

from collections.abc import Sequence
from typing import Any

from paper.ballots import SENT, ballot_name
from paper.ledger import Json, Run, canonical
from paper.tables import Table, cell, columns, repeats_of

TITLES = {  # by experiment; the others compare ways to find groups
    "demo": "The demo: FairMNISTRotate, bundled images, 100 clients, a narrow LeNet",
    "table1": "FairMNISTRotate, 1000 clients",
    "femnist": "FEMNIST, partial, 300 writers",
    "adult": "Adult",
    "mnist_writers": "MNIST by writer",
    "acs_income": "ACS income by state",
}
TOLD: dict[str, Json] = {  # named in the title, even as shipped
    "table1": {"data.samples_per_client": 233},
    "adult": {"data.alpha": 5000},
}
# The values with which a setting makes a method, not a point of an ablation.
ROWS_OF_THEIR_OWN: dict[str, list[Any]] = {
    "participation.name": ["by_group"],
    "algorithm.oracle_groups": [True],
    "algorithm.ballot.name": ["moves"],
    "algorithm.ballot.steps": [12, 20],
    "algorithm.downlink.name": ["buckets"],
    "algorithm.downlink.buckets": [8, 96],
    "algorithm.downlink.finer": [8],
    "algorithm.downlink.near": [0.08],
}
SURROUNDINGS = ("data.", "model.")


def leaderboard(runs: Sequence[Run]) -> list[tuple[str, Table]]:
    """Return a table for each data set and model."""
    boards: dict[str, list[Run]] = {}
    for run in runs:
        if run.experiment in TITLES and is_method(run):
            boards.setdefault(_heading(run), []).append(run)
    return [(heading, _board(own)) for heading, own in sorted(boards.items())]


def is_method(run: Run) -> bool:
    """Return whether a run is a method, and not a point of an ablation or on validation data."""
    if any(run.settings.get(f"data.{name}validation_share") for name in ("", "pooled_")):
        return False
    narrow = run.experiment in ("adult", "demo")
    if narrow and any(key.startswith("model.") for key in run.overrides):
        return False
    own = {key: value for key, value in run.overrides.items() if not key.startswith(SURROUNDINGS)}
    return all(value in ROWS_OF_THEIR_OWN.get(key, ()) for key, value in own.items())


def _heading(run: Run) -> str:
    """Return the data set, and how data and model differ from the shipped experiment."""
    own = {key: value for key, value in run.overrides.items() if key.startswith(SURROUNDINGS)}
    changes = TOLD.get(run.experiment, {}) | own
    parts = [f"{key.removesuffix('.name').split('.')[-1]} = {changes[key]}" for key in changes]
    title = TITLES[run.experiment]
    return f"{title}: {', '.join(parts)}" if parts else title


def _board(runs: Sequence[Run]) -> Table:
    adult = runs[0].experiment == "adult"
    shown = columns("leaderboard_adult" if adult else "leaderboard")
    rows: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        rows.setdefault((run.method, canonical(run.overrides)), []).append(run)
    ranked = []
    for same in rows.values():
        repeats = repeats_of(same)[0]
        means = [repeats.interval(column) for column in shown]
        cells = [cell(mean, column.digits) for mean, column in zip(means, shown, strict=True)]
        rank = means[1] or means[2]
        score = 0.0 if rank is None else -abs(rank.value) if adult else rank.value
        numbers = (str(len(repeats.runs)), str(repeats.round))
        ranked.append((-score, (described(same[0]), *numbers, *cells)))
    titles = ("method", "seeds", "rounds", *(column.title for column in shown))
    return Table(titles, tuple(row for _, row in sorted(ranked)))


def described(run: Run) -> str:
    """Return the method of a run, how its training differs, and how it finds groups."""
    differing = []
    for key, value in run.overrides.items():
        section, _, name = key.partition(".")
        if section == "participation" and name == "name":
            differing.append(str(value))
        elif section in ("algorithm", "learner", "participation") and not key.startswith(SENT):
            text = str(value).lower() if isinstance(value, bool) else value
            differing.append(f"{name} = {text}")
    if any(key.startswith(SENT) for key in run.overrides):
        up, down = (ballot_name(run.settings, part) for part in ("ballot", "downlink"))
        differing.append(f"{up} up, {down} down")
    name = f"{run.method} ({', '.join(differing)})" if differing else run.method
    groups = run.settings.get("algorithm.grouping.groups")
    if not groups:
        return name
    rule = run.settings["algorithm.grouping.name"].replace("_", " ")
    return f"{name}: {rule}, {groups} groups"
