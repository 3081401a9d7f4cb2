"""From counts to measures: the computations after an evaluated round and at the end of a run."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from e2fl import metrics
from e2fl.algorithms import Election
from e2fl.codec import to_json
from e2fl.data.federated import Client, ClientId, FederatedData, GroupId, Population
from e2fl.errors import DataError, RunError
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.metrics.measures import spread_of
from e2fl.rankings.order import Ranking
from e2fl.rankings.votes import influence
from e2fl.rounds import HELD, Round, Traffic, UnseenScores
from e2fl.runs.records import Evaluation, GroupsAre, Json, Measures, View

Groups = Mapping[ClientId, GroupId]
Scores = Mapping[ClientId, Score]
Tallies = Mapping[ClientId, Mapping[GroupId, Tally]]


@dataclass(frozen=True)
class Totals:
    """What a run has added up after a round, besides the state."""

    traffic: Traffic = field(default_factory=Traffic)
    found: Groups = field(default_factory=dict)  # of the last evaluation
    faults: Mapping[str, int] = field(default_factory=dict)  # since the last line of history
    grouping: tuple[Json, ...] = ()  # how groups were found in each round since the last line
    asked: Mapping[ClientId, int] = field(default_factory=dict)  # since the run began
    highest_loss: float = 0.0  # of training in any round
    lines: int = 0  # of the history
    seconds: float = 0.0


def measure(scores: Scores, data: FederatedData) -> Measures:
    """Return every metric of one evaluation."""
    found = found_groups(scores)
    views = {
        name: _view({client: score.views[name] for client, score in scores.items()}, data, found)
        for name in next(iter(scores.values())).views
    }
    own = views.pop(next(iter(views)))
    return Measures(**vars(own), views=views)


def measure_validation(scores: Scores, data: FederatedData) -> Measures | None:
    """Return every metric on validation examples; None if there are none."""
    validated = {
        client: Score(score.validation, score.group)
        for client, score in scores.items()
        if score.validation is not None
    }
    return without_loss(measure(validated, data)) if validated else None


def without_loss(measures: Measures) -> Measures:
    """Return the measures as a line of history has them: losses are in the summary only."""
    views = {name: replace(view, loss=None) for name, view in measures.views.items()}
    return replace(measures, loss=None, views=views)


def _view(tallies: Tallies, data: FederatedData, found: Groups) -> View:
    # A client without test examples has no accuracy.
    tallies = {client: parts for client, parts in tallies.items() if total(parts.values()).n}
    if not tallies:
        raise RunError("no client has a test example")
    groups_are, by_group = _by_group(tallies, data, found)
    groups = {name: _group(members, data.classes == 2) for name, members in by_group.items()}
    clients = [total(parts.values()) for parts in tallies.values()]
    return View(
        clients=metrics.spread([tally.accuracy for tally in clients]),
        group=metrics.spread([group["accuracy"] for group in groups.values()]) if groups else None,
        groups=groups,
        groups_are=groups_are,
        diverged=sum(any(part.diverged for part in parts.values()) for parts in tallies.values()),
        protected=_protected(tallies, data),
        loss={
            "clients": _loss([tally.mean_loss for tally in clients]),
            "group": _loss([group["loss"] for group in groups.values()]) if groups else None,
        },
        measures={
            name: _own_measure(name, clients, by_group)
            for name in dict.fromkeys(name for tally in clients for name in tally.own)
        },
    )


def _own_measure(
    name: str, clients: Sequence[Tally], by_group: Mapping[str, Sequence[Tally]]
) -> Json:
    """Return one of the user's own measures over clients and over groups."""
    means = {}
    for group, members in by_group.items():
        values = [
            tally.own[name] for tally in members if math.isfinite(tally.own.get(name, math.nan))
        ]
        means[group] = float(np.mean(values)) if values else math.nan
    return {
        "clients": spread_of([tally.own.get(name, math.nan) for tally in clients]),
        "group": spread_of(list(means.values())),
        "groups": means,
    }


def _group(members: Sequence[Tally], two_classes: bool) -> dict[str, float]:
    measured: dict[str, float] = {
        "clients": len(members),
        "accuracy": float(np.mean([tally.accuracy for tally in members])),
        "loss": float(np.mean([tally.mean_loss for tally in members])),
    }
    if two_classes:
        sums = total(members)
        measured["f1"] = metrics.f1(sums.true_positive, sums.false_positive, sums.false_negative)
    return measured


def _by_group(
    tallies: Tallies, data: FederatedData, found: Groups
) -> tuple[GroupsAre | None, dict[str, list[Tally]]]:
    """Return the tallies of each group: declared or, if the data declares none, found.

    A single group that was found says nothing that clients do not.
    """
    declared = _by_declared_group(tallies)
    declared.pop(NO_GROUP, None)
    if declared:
        return "declared", {data.group_name(group): declared[group] for group in sorted(declared)}
    served: dict[GroupId, list[Tally]] = {}
    for client, parts in tallies.items():
        if client in found:
            served.setdefault(found[client], []).append(total(parts.values()))
    named = {found_name(group): served[group] for group in sorted(served)}
    return ("found", named) if len(named) > 1 else (None, {})


def _by_declared_group(tallies: Tallies) -> dict[GroupId, list[Tally]]:
    by_group: dict[GroupId, list[Tally]] = {}
    for parts in tallies.values():
        for group, tally in parts.items():
            if tally.n:
                by_group.setdefault(group, []).append(tally)
    return by_group


def _protected(tallies: Tallies, data: FederatedData) -> Mapping[str, float] | None:
    """Return the differences between two declared groups, if there are two classes."""
    by_group = _by_declared_group(tallies)
    if data.classes != 2 or sorted(by_group) != [0, 1]:
        return None
    unprivileged, privileged = (asdict(total(by_group[group])) for group in (0, 1))
    clients = [[parts.get(group) for group in (0, 1)] for parts in tallies.values()]
    both = [(asdict(a), asdict(b)) for a, b in clients if a is not None and b is not None]
    varies = metrics.eod_std(both)
    known = {} if varies is None else {"eod_std": varies}
    return metrics.protected(unprivileged, privileged) | known


def _loss(values: Sequence[float]) -> dict[str, float]:
    """Return the paper's Definitions 1 and 2: the deviation of the objective, and its mean."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def evaluation(
    done: Round, data: FederatedData, totals: Totals, metadata: Mapping[str, Any]
) -> Evaluation:
    """Return the record of an evaluated round. totals: as of this round, before its evaluation."""
    assert done.scores is not None
    traffic = totals.traffic
    inferred = recovery(done.scores, data.population, traffic, totals.found)
    if inferred is not None and totals.grouping:
        inferred["rounds"] = list(totals.grouping)
    return Evaluation(
        **vars(without_loss(measure(done.scores, data))),
        round=done.number,
        bytes={f"{way}_total": getattr(traffic, way) for way in ("up", "down", "served")},
        asked=len(done.asked),
        answered=len(done.answered),
        faults=dict(sorted(totals.faults.items())),
        metadata=metadata,
        inference=inferred,
        validation=measure_validation(done.scores, data),
        training_loss=done.training_loss,
    )


# How well groups were recovered, and what it cost. Compared with the groups that clients declare:
# `matched` and `purity` are percentages, `adjusted_rand` is 1 at best; all three are None where no
# groups are declared. `changed` is a percentage, None where no client had a group before.


def found_groups(scores: Scores) -> dict[ClientId, GroupId]:
    """Return the group that each client was served as, for clients that were served as one."""
    return {client: score.group for client, score in scores.items() if score.group is not None}


def found_name(group: GroupId) -> str:
    """Return the display name of a group that was found."""
    return f"found {group}"


def recovery(
    scores: Scores, population: Population, traffic: Traffic, before: Groups
) -> Json | None:
    """Return the recovery of the groups that clients were served as; None if there are no groups.

    before: the groups of the previous evaluation. `passes_per_client` is of this evaluation;
    `passes` and `bytes` are of all training so far.
    """
    found = found_groups(scores)
    if not found:
        return None
    sizes = Counter(found.values())
    return {
        **_against_declared(found, population),
        "changed": metrics.changed(found, before),
        "passes_per_client": float(np.mean([scores[client].passes for client in found])),
        "passes": traffic.grouping_passes,
        "bytes": traffic.grouping_bytes,
        "found": {str(group): sizes[group] for group in sorted(sizes)},
    }


def recovery_in_round(
    done: Round, found: Groups, before: Groups, population: Population, traffic: tuple[Traffic, ...]
) -> Json:
    """Return the recovery of the groups that the server knows after a round of training.

    found: the last known group of each client; before: the same before this round; traffic: before
    and after this round.
    """
    heard = {client: found[client] for client in done.answered if client in found}
    start, end = traffic
    return {
        "round": done.number,
        "clients": len(found),
        **_against_declared(found, population),
        "changed": metrics.changed(heard, before),
        "passes": end.grouping_passes - start.grouping_passes,
        "bytes": end.grouping_bytes - start.grouping_bytes,
    }


def _against_declared(found: Groups, population: Population) -> dict[str, float | None]:
    declared = population.declared
    known = [client for client in found if declared.get(client) is not None]
    both = [found[client] for client in known], [declared[client] for client in known]
    return {
        measured.__name__: measured(*both) if known else None
        for measured in (metrics.matched, metrics.purity, metrics.adjusted_rand)
    }


def measure_unseen(
    tried: UnseenScores, unseen: Mapping[ClientId, Client], trained: Scores, data: FederatedData
) -> Json:
    """Return every metric for clients kept out of training, and how many found their group.

    `right_group` is a percentage: a found group stands for the declared group of most of its
    members, among the clients that took part. `faults`: how many clients were left out, by kind.
    """
    scores = tried.scores
    tested = any(
        tally.n for score in scores.values() for tally in next(iter(score.views.values())).values()
    )
    result: Json = to_json(without_loss(measure(scores, data))) if tested else {}
    result["count"] = len(scores)
    if tried.faults:
        result["faults"] = dict(sorted(kinds_of(tried.faults.values()).items()))
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


def commonest_class(clients: Iterable[ClientId], data: FederatedData) -> float:
    """Return the mean accuracy of always predicting the same class, the commonest one."""
    try:
        tests = [data.client(client).test.y for client in clients]
    except DataError:  # only nodes have the data
        return 100.0 / data.classes
    shares = [np.bincount(y, minlength=data.classes) / len(y) for y in tests if len(y)]
    return 100.0 * float(np.mean(shares, axis=0).max())


def kinds_of(faults: Iterable[str]) -> Counter[str]:
    """Return how often each kind of fault occurs; a fault is "kind: reason"."""
    return Counter(fault.split(":", 1)[0] for fault in faults)


def client_rows(scores: Scores, data: FederatedData) -> list[Json]:
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
            row |= {f"accuracy_{name}": score.views[name][group].accuracy for name in others}
            if score.group is not None:
                row["served_as"] = score.group
            rows.append(row)
    return rows


def attack_summary(malicious: Scores, data: FederatedData) -> Json:
    """Return the malicious clients, their groups, and how accurately they are served."""
    own = [total(next(iter(score.views.values())).values()) for score in malicious.values()]
    groups = [data.population.declared_groups.get(client) for client in sorted(malicious)]
    return {
        "clients": [data.client_name(client) for client in sorted(malicious)],
        "groups": sorted({data.group_name(group) for group in groups if group is not None}),
        "accuracy": float(np.mean([tally.accuracy for tally in own])) if own else None,
    }


def influence_of(election: Election, data: FederatedData) -> Json | None:
    """Return the share of kept edges that a single voter could exchange, in percent.

    `groups`: one client in the vote of its group; `global`: one group in the vote of all groups.
    None for rules other than Borda, and for rounds with very many ballots.
    """
    ballots: dict[GroupId, list[Ranking]] = {}
    if election.rules["vote"]["name"] == "borda":
        for _, group, ranking in islice(election.ballots(), HELD + 1):
            ballots.setdefault(group, []).append(ranking)
    if not 0 < sum(map(len, ballots.values())) <= HELD:
        return None
    keep, incumbents = election.rules["keep"], election.rules["incumbents"]
    named = data.group_name if data.population.declared_groups else found_name
    groups = {
        named(group): influence(
            cast, election.elected[group], keep, election.before.get(group), incumbents
        )
        for group, cast in sorted(ballots.items())
    }
    whole = influence(list(election.voters.values()), election.global_ranking, keep)
    return {"groups": groups, "global": whole}


def byte_summary(traffic: Traffic) -> Json:
    """Return bytes as encoded; totals are of training, models served for use count separately."""
    exchanges = max(1, traffic.exchanges)
    return {
        "up_per_client_round": traffic.up / exchanges,
        "down_per_client_round": traffic.down / exchanges,
        "up_total": traffic.up,
        "down_total": traffic.down,
        "served_total": traffic.served,
    }


def bit_summary(traffic: Traffic, edges: int) -> Json:
    """Return bits per edge of the model, headers included, on average over replies and requests.

    entropy_up_per_edge: the least that the coder of the replies could reach; None if replies are
    not coded.
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
    asked: Mapping[ClientId, int], data: FederatedData, found: Groups
) -> Json | None:
    """Return how often the clients of each group were asked; None if clients are in no groups.

    found: the groups that clients were served as; they count if clients declare none.
    """
    declared = data.population.declared_groups
    groups = declared or found
    times: Counter[GroupId] = Counter()
    for client, group in groups.items():
        times[group] += asked.get(client, 0)
    return {
        data.group_name(group) if declared else found_name(group): {
            "clients": clients,
            "asked": times[group],
            "asked_per_client": times[group] / clients,
        }
        for group, clients in sorted(Counter(groups.values()).items())
    } or None
