"""From counts to measures: the computations after an evaluated round and at the end of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from e2fl import metrics
from e2fl.data.federated import Client, ClientId, FederatedData, GroupId
from e2fl.errors import RunError
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.participation import burden
from e2fl.rounds import Round, Traffic, UnseenScores
from e2fl.runs.group_recovery import found_groups, of_evaluation
from e2fl.runs.records import Budget, Evaluation, GroupsAre, Json, Measures, View

Tallies = Mapping[ClientId, Mapping[GroupId, Tally]]


def measure(scores: Mapping[ClientId, Score], data: FederatedData) -> Measures:
    """Return every metric of one evaluation."""
    found = found_groups(scores)
    own, *others = (
        _view({client: score.views[name] for client, score in scores.items()}, data, found)
        for name in next(iter(scores.values())).views
    )
    names = list(next(iter(scores.values())).views)[1:]
    return Measures(own, dict(zip(names, others, strict=True)))


def measure_validation(scores: Mapping[ClientId, Score], data: FederatedData) -> Measures | None:
    """Return every metric on validation examples; None if there are none."""
    found = {
        client: Score(score.validation, score.group) for client, score in scores.items() if score.validation is not None
    }
    return measure(found, data) if found else None


def _view(tallies: Tallies, data: FederatedData, found: Mapping[ClientId, GroupId]) -> View:
    # A client without test examples has no accuracy.
    tallies = {client: parts for client, parts in tallies.items() if sum(tally.n for tally in parts.values())}
    if not tallies:
        raise RunError("no client has a test example")
    groups_are, by_group = _by_group(tallies, data, found)
    groups = {
        name: {
            "clients": len(members),
            "accuracy": float(np.mean([tally.accuracy for tally in members])),
            "loss": float(np.mean([tally.mean_loss for tally in members])),
        }
        for name, members in by_group.items()
    }
    if data.classes == 2:
        for name, members in by_group.items():
            counts = total(members)
            groups[name]["f1"] = metrics.f1(counts.true_positive, counts.false_positive, counts.false_negative)
    clients = [total(parts.values()) for parts in tallies.values()]
    return View(
        user=metrics.spread([tally.accuracy for tally in clients]),
        group=metrics.spread([group["accuracy"] for group in groups.values()]) if groups else None,
        groups=groups,
        groups_are=groups_are,
        diverged=sum(not all(tally.finite for tally in parts.values()) for parts in tallies.values()),
        protected=_protected(tallies, data),
        loss={
            "user": _loss([tally.mean_loss for tally in clients]),
            "group": _loss([group["loss"] for group in groups.values()]) if groups else None,
        },
    )


def _by_group(
    tallies: Tallies, data: FederatedData, found: Mapping[ClientId, GroupId]
) -> tuple[GroupsAre | None, dict[str, list[Tally]]]:
    """Return the tallies of each group: of declared groups or, if the data declares none, of those that were found."""
    declared: dict[GroupId, list[Tally]] = {}
    for parts in tallies.values():
        for group, tally in parts.items():
            if tally.n:
                declared.setdefault(group, []).append(tally)
    named = {data.group_name(group): members for group, members in sorted(declared.items()) if group != NO_GROUP}
    if named:
        return "declared", named
    served: dict[GroupId, list[Tally]] = {}
    for client, parts in tallies.items():
        if client in found:
            served.setdefault(found[client], []).append(total(parts.values()))
    named = {found_name(group): members for group, members in sorted(served.items())}
    return ("found", named) if named else (None, {})


def _protected(tallies: Tallies, data: FederatedData) -> Mapping[str, float] | None:
    """Return the differences between two declared groups, if there are two classes."""
    by_group: dict[GroupId, list[Tally]] = {}
    for parts in tallies.values():
        for group, tally in parts.items():
            if tally.n:
                by_group.setdefault(group, []).append(tally)
    if data.classes != 2 or sorted(by_group) != [0, 1]:
        return None
    unprivileged, privileged = (asdict(total(by_group[group])) for group in (0, 1))
    return metrics.protected(unprivileged, privileged)


def _loss(values: Sequence[float]) -> dict[str, float]:
    """Return the paper's Definitions 1 and 2: the standard deviation of the objective, over clients or over groups."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def divergence_warnings(measured: Json) -> list[str]:
    """Return warnings about diverged models in a line of history or a summary."""
    views = {"": measured, **(measured.get("views") or {})}
    counts = {name: View({}, None, {}, diverged=part.get("diverged", 0)) for name, part in views.items()}
    return Measures(counts.pop(""), counts).warnings()


def evaluation(
    round_: Round,
    data: FederatedData,
    traffic: Traffic,
    metadata: Mapping[str, Any],
    faults: Mapping[str, int],
    before: Mapping[ClientId, GroupId] | None = None,
    grouping: Sequence[Json] = (),
) -> Evaluation:
    """Return the record of an evaluated round.

    faults: how many there were of each kind since the previous evaluation; before: the groups of that evaluation;
    grouping: how groups were found in each round since then.
    """
    assert round_.scores is not None
    inferred = of_evaluation(round_.scores, data.population, traffic, before or {})
    if inferred is not None and grouping:
        inferred["rounds"] = list(grouping)
    return Evaluation(
        round_.number,
        measure(round_.scores, data),
        {"up_total": traffic.up, "down_total": traffic.down, "served_total": traffic.served},
        len(round_.asked),
        len(round_.answered),
        faults,
        metadata,
        inferred,
        measure_validation(round_.scores, data),
        round_.training_loss,
    )


def measure_unseen(
    tried: UnseenScores,
    unseen: Mapping[ClientId, Client],
    trained: Mapping[ClientId, Score],
    data: FederatedData,
) -> Json:
    """Return every metric for clients kept out of training, and the percentage of them that found their group.

    A found group stands for the declared group of most of its members, among the clients that took part. `faults`, if
    there are any: how many clients were left out, by kind.
    """
    scores = tried.scores
    tested = any(tally.n for score in scores.values() for tally in next(iter(score.views.values())).values())
    result: Json = (measure(scores, data).to_json() if tested else {}) | {"clients": len(scores)}
    if tried.faults:
        result["faults"] = dict(sorted(Counter(fault.split(":", 1)[0] for fault in tried.faults.values()).items()))
    members: dict[GroupId, Counter[GroupId]] = {}
    for client, found in found_groups(trained).items():
        group = data.population.declared.get(client)
        if group is not None:
            members.setdefault(found, Counter())[group] += 1
    stands_for = {found: max(sorted(true), key=true.__getitem__) for found, true in members.items()}
    right = [
        stands_for.get(found) == unseen[client].group
        for client, found in found_groups(scores).items()
        if unseen[client].group is not None
    ]
    if right and stands_for:
        result["right_group"] = 100.0 * sum(right) / len(right)
    return result


def client_rows(scores: Mapping[ClientId, Score], data: FederatedData) -> list[Json]:
    """Return the rows of clients.csv: one for each client, or for each group inside it."""
    rows: list[Json] = []
    for client, score in sorted(scores.items()):
        own, *others = score.views
        for group, tally in sorted(score.views[own].items()):
            row: Json = {
                "client": data.client_name(client),
                "group": "" if group == NO_GROUP else data.group_name(group),
                "n": tally.n,
                "accuracy": tally.accuracy,
                "loss": tally.mean_loss,
            }
            for name in others:
                row[f"accuracy_{name}"] = score.views[name][group].accuracy
            if score.group is not None:
                row["served_as"] = score.group
            rows.append(row)
    return rows


def byte_summary(traffic: Traffic) -> Json:
    """Return bytes as encoded; the totals are of training, and models served for use are counted separately."""
    exchanges = max(1, traffic.exchanges)
    return {
        "up_per_client_round": traffic.up / exchanges,
        "down_per_client_round": traffic.down / exchanges,
        "up_total": traffic.up,
        "down_total": traffic.down,
        "served_total": traffic.served,
    }


def bit_summary(traffic: Traffic, edges: int) -> Json:
    """Return bits per edge of the model, headers included: of a reply and of a request, on average over the run.

    entropy_up_per_edge: the least that the coder of the replies could reach; None if replies are not coded.
    """
    replies, requests = edges * max(1, traffic.trainings), edges * max(1, traffic.exchanges)
    return {
        "up_per_edge": 8 * traffic.up / replies,
        "down_per_edge": 8 * traffic.down / requests,
        "entropy_up_per_edge": traffic.ballot_bits / replies if traffic.ballot_bits else None,
        "up_total_bytes": traffic.up,
        "down_total_bytes": traffic.down,
    }


def participation_summary(
    asked: Mapping[ClientId, int], data: FederatedData, found: Mapping[ClientId, GroupId]
) -> Json | None:
    """Return how often the clients of each group were asked; None if clients are in no groups.

    found: the groups that clients were served as; they count if clients declare none.
    """
    declared = data.population.declared_groups
    return {
        data.group_name(group) if declared else found_name(group): {
            "clients": clients,
            "asked": times,
            "asked_per_client": times / clients,
        }
        for group, (clients, times) in burden(asked, declared or found).items()
    } or None


def found_name(group: GroupId) -> str:
    """Return the display name of a group that was found."""
    return f"found {group}"


def budget_of(traffic: Traffic) -> Budget:
    """Return how much training a run took."""
    return Budget(traffic.trainings, traffic.client_epochs, traffic.trained_examples)
