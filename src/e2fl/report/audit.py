"""Tables of scores into a study."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from e2fl import metrics
from e2fl.audit.reader import Scores
from e2fl.report.study import Clients, Json, Method, Outcome, Study


def study_of_scores(tables: Sequence[tuple[str, Scores]], title: str) -> Study:
    """The study these tables make: each is a method, under the name given."""
    methods = [Method(name, (_outcome(scores),)) for name, scores in tables]
    first = tables[0][1]
    parts = [
        f"{len(first.client_names):,} clients" + (f" in {len(first.group_names)} groups" if first.group_names else "")
    ]
    warnings = [scores.caution for _, scores in tables if scores.caution]
    if any(set(scores.client_names) != set(first.client_names) for _, scores in tables[1:]):
        warnings.append("The tables do not hold the same clients: their numbers are not comparable as they are.")
    warnings += [
        "A client in several groups has no n: its groups weigh the same in its accuracy."
        for _, scores in tables
        if scores.n is None and len(scores.client) > len(scores.client_names)
    ]
    return Study(
        title=title,
        subtitle=" · ".join(["table of scores", *parts]),
        methods=tuple(methods),
        warnings=tuple(dict.fromkeys(warnings)),
        runs=tuple(_facts(name) for name, _ in tables),
        protected_groups=_protected_groups([scores for _, scores in tables]),
    )


def _facts(name: str) -> Json:
    empty = dict.fromkeys(("seed", "rounds", "version", "seconds", "folder", "command"))
    return {**empty, "label": name, "environment": {}, "data": {}, "config": ""}


def _protected_groups(tables: Sequence[Scores]) -> tuple[str, str] | None:
    for scores in tables:
        if scores.direction:
            first, _, second = scores.direction.partition(" minus ")
            return first, second
    return None


def names_of(paths: Sequence[Path]) -> list[str]:
    """What tables are called: their file names, without the ending where that still tells them apart."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [f"{path} #{place + 1}" for place, path in enumerate(paths)]


def _outcome(scores: Scores) -> Outcome:
    found = metrics.fairness(scores.accuracy, scores.group, client=scores.client, n=scores.n, loss=scores.loss)
    groups: dict[str, Json] = {scores.group_names[code]: value for code, value in found["groups"].items()}
    return Outcome(
        seed=0,
        user=found["user"],
        group=found["group"],
        groups=dict(sorted(groups.items(), key=lambda entry: _natural(entry[0]))),
        clients=_clients(scores),
        protected=scores.protected,
    )


def _clients(scores: Scores) -> Clients:
    weights = np.ones(len(scores.accuracy)) if scores.n is None else scores.n
    count = len(scores.client_names)
    groups = None
    if scores.group is not None:
        groups = np.full(count, "", dtype=object)
        groups[scores.client] = np.array(scores.group_names, dtype=object)[scores.group]
        rows = np.bincount(scores.client, minlength=count)
        groups[rows > 1] = "several"
    return Clients(
        np.array(scores.client_names, dtype=object),
        groups,
        metrics.combined(scores.accuracy, scores.client, weights),
        np.bincount(scores.client, weights=weights, minlength=count).astype(np.float64),
        _members(scores),
    )


def _members(scores: Scores) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    if scores.group is not None:
        for group, client, value in zip(scores.group, scores.client, scores.accuracy.tolist(), strict=True):
            found.setdefault(scores.group_names[group], {})[scores.client_names[client]] = value
    return found


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """So that G2 stands before G10."""
    parts: list[str] = [""]
    for letter in name:
        if letter.isdecimal() != parts[-1][-1:].isdecimal() and parts[-1]:
            parts.append("")
        parts[-1] += letter
    return [(part.isdecimal(), len(part.lstrip("0")) if part.isdecimal() else 0, part) for part in parts]
