"""From counts to measures: the records of a run, after an evaluated round and at its end.

A record is plain JSON: a line of history.jsonl, summary.json. docs/running.md lists its keys.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from e2fl import metrics
from e2fl.algorithms import Election
from e2fl.data.federated import ClientId, FederatedData, GroupId, Population
from e2fl.errors import DataError, RunError
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.metrics.measures import spread_of
from e2fl.rankings.order import Ranking
from e2fl.rankings.votes import influence
from e2fl.rounds import Round, Traffic, UnseenScores
from e2fl.runs.records import FAILED, RISEN, Json, found_name, known

MAX_INFLUENCE_BALLOTS = 64  # of a round: with more, the influence of one voter is not computed
FAR = 10  # times the loss of guessing
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


def measure(scores: Scores, data: FederatedData) -> Json:
    """Return every metric of the clients' own models and, as views, of others they evaluate."""
    found = found_groups(scores)
    (_, own), *views = [
        (name, _view({client: score.views[name] for client, score in scores.items()}, data, found))
        for name in next(iter(scores.values())).views
    ]
    return own | known(views=dict(views))


def _view(tallies: Tallies, data: FederatedData, found: Groups) -> Json:
    """Return the results of clients with one of the models they evaluate."""
    # A client without test examples has no accuracy.
    tallies = {client: parts for client, parts in tallies.items() if total(parts.values()).n}
    if not tallies:
        raise RunError("no client has a test example")
    groups_are, by_group = _by_group(tallies, data, found)
    groups = {name: _group(members, data.classes == 2) for name, members in by_group.items()}
    clients = [total(parts.values()) for parts in tallies.values()]
    names = dict.fromkeys(name for tally in clients for name in tally.own)
    return {
        "clients": metrics.spread([tally.accuracy for tally in clients]),
        "group": metrics.spread([own["accuracy"] for own in groups.values()]) if groups else None,
        "groups": groups,
        "loss": {
            "clients": _losses([tally.mean_loss for tally in clients]),
            "group": _losses([own["loss"] for own in groups.values()]) if groups else None,
        },
    } | known(
        groups_are=groups_are,
        diverged=sum(any(part.diverged for part in parts.values()) for parts in tallies.values()),
        protected=_protected(tallies, data),
        measures={name: _own_measure(name, clients, by_group) for name in names},
    )


def _by_group(
    tallies: Tallies, data: FederatedData, found: Groups
) -> tuple[str, dict[str, list[Tally]]]:
    """Return the tallies of each group: "declared" or, if the data declares none, "found".

    A single group that was found says nothing that clients do not.
    """
    declared: dict[GroupId, list[Tally]] = {}
    served: dict[GroupId, list[Tally]] = {}
    for client, parts in tallies.items():
        for group, tally in parts.items():
            if group != NO_GROUP and tally.n:
                declared.setdefault(group, []).append(tally)
        if client in found:
            served.setdefault(found[client], []).append(total(parts.values()))
    if declared:
        return "declared", {data.group_name(group): declared[group] for group in sorted(declared)}
    if len(served) > 1:
        return "found", {found_name(group): served[group] for group in sorted(served)}
    return "", {}


def _group(members: Sequence[Tally], two_classes: bool) -> dict[str, float]:
    measured: dict[str, float] = {
        "clients": len(members),
        "accuracy": metrics.mean([tally.accuracy for tally in members]),
        "loss": metrics.mean([tally.mean_loss for tally in members]),
    }
    if two_classes:
        sums = total(members)
        measured["f1"] = metrics.f1(sums.true_positive, sums.false_positive, sums.false_negative)
    return measured


def _protected(tallies: Tallies, data: FederatedData) -> Mapping[str, float] | None:
    """Return the differences between two declared groups, if there are two classes."""
    rows = [
        {group: tally for group, tally in parts.items() if tally.n} for parts in tallies.values()
    ]
    if data.classes != 2 or {group for parts in rows for group in parts} != {0, 1}:
        return None
    whole = [total(parts[group] for parts in rows if group in parts) for group in (0, 1)]
    both = [(vars(parts[0]), vars(parts[1])) for parts in rows if len(parts) == 2]
    varies = metrics.eod_std(both)
    return metrics.protected(*map(vars, whole)) | ({} if varies is None else {"eod_std": varies})


def _losses(values: Sequence[float]) -> dict[str, float]:
    """Return the paper's Definitions 1 and 2: the deviation of the objective, and its mean."""
    with np.errstate(invalid="ignore"):  # training may have diverged
        return {"mean": metrics.mean(values), "std": metrics.METRICS["std"](values)}


def _own_measure(
    name: str, clients: Sequence[Tally], by_group: Mapping[str, Sequence[Tally]]
) -> Json:
    """Return one of the user's own measures over clients and over groups."""

    def over(tallies: Sequence[Tally]) -> dict[str, float] | None:
        return spread_of([tally.own.get(name, math.nan) for tally in tallies])

    groups = {group: over(members) for group, members in by_group.items()}
    means = {
        group: math.nan if spread is None else spread["mean"] for group, spread in groups.items()
    }
    return {"clients": over(clients), "group": spread_of(list(means.values())), "groups": means}


def evaluation(
    done: Round, data: FederatedData, totals: Totals, metadata: Json, influence: Json | None
) -> Json:
    """Return the record of an evaluated round. totals: as of this round, before its evaluation."""
    assert done.scores is not None
    validated = {
        client: Score(score.validation, score.group)
        for client, score in done.scores.items()
        if score.validation is not None
    }
    return {
        "round": done.number,
        **measure(done.scores, data),
        "bytes": {f"{way}_total": getattr(totals.traffic, way) for way in ("up", "down", "served")},
        "asked": len(done.asked),
        "answered": len(done.answered),
        "faults": dict(sorted(totals.faults.items())),
        "metadata": metadata,
    } | known(
        inference=inference(done.scores, data.population, totals),
        validation=measure(validated, data) if validated else None,
        influence=influence,
        training_loss=done.training_loss,
    )


def found_groups(scores: Scores) -> dict[ClientId, GroupId]:
    """Return the group that each client was served as, for clients that were served as one."""
    return {client: score.group for client, score in scores.items() if score.group is not None}


def recovery(
    found: Groups, heard: Groups, before: Groups, population: Population, spent: Sequence[Traffic]
) -> Json:
    """Return how well groups were found, and what it cost between two states of the traffic.

    Compared with the groups that clients declare: `matched` and `purity` are percentages,
    `adjusted_rand` is 1 at best; all three are None where none are declared. `changed`: the
    percentage of the clients heard whose group is another one than before; None if none had any.
    """
    declared, (start, end) = population.declared_groups, spent
    compared = [client for client in found if client in declared]
    both = [found[client] for client in compared], [declared[client] for client in compared]
    agreement = (metrics.matched, metrics.purity, metrics.adjusted_rand)
    return {
        **{measured.__name__: measured(*both) if compared else None for measured in agreement},
        "changed": metrics.changed(heard, before),
        "passes": end.grouping_passes - start.grouping_passes,
        "bytes": end.grouping_bytes - start.grouping_bytes,
    }


def inference(scores: Scores, population: Population, totals: Totals) -> Json | None:
    """Return the recovery of the groups that clients were served as; None if there are no groups.

    `passes_per_client` is of this evaluation; `passes` and `bytes` are of all training so far;
    `rounds` are the rounds of training since the last evaluation.
    """
    found = found_groups(scores)
    if not found:
        return None
    sizes = Counter(found.values())
    return {
        **recovery(found, found, totals.found, population, (Traffic(), totals.traffic)),
        "passes_per_client": metrics.mean([scores[client].passes for client in found]),
        "found": {str(group): sizes[group] for group in sorted(sizes)},
    } | known(rounds=list(totals.grouping))


def measure_unseen(tried: UnseenScores, data: FederatedData) -> Json:
    """Return every metric for clients kept out of training. `faults`: those left out, by kind."""
    scores = tried.scores
    measured = measure(scores, data) if any(score.own.n for score in scores.values()) else {}
    faults = dict(sorted(kinds_of(tried.faults.values()).items()))
    return measured | {"count": len(scores)} | known(faults=faults)


def trouble(highest_loss: float, accuracy: float, clients: Scores, data: FederatedData) -> str:
    """Return a warning if the loss of training rose far, or if accuracy is that of guessing too."""
    if highest_loss <= FAR * math.log(data.classes):
        return ""
    try:
        tests = [data.client(client).test.y for client in clients]
        shares = [np.bincount(y, minlength=data.classes) / len(y) for y in tests if len(y)]
        commonest = float(np.mean(shares, axis=0).max())
    except DataError:  # only nodes have the data
        commonest = 1 / data.classes
    return FAILED if accuracy <= 100.0 * commonest else RISEN


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
            rows.append(row if score.group is None else row | {"served_as": score.group})
    return rows


def attack_summary(malicious: Scores, data: FederatedData) -> Json:
    """Return the malicious clients, their groups, and how accurately they are served."""
    own = [score.own.accuracy for score in malicious.values()]
    declared = data.population.declared_groups
    return {
        "clients": [data.client_name(client) for client in sorted(malicious)],
        "groups": sorted({data.group_name(declared[c]) for c in malicious if c in declared}),
        "accuracy": metrics.mean(own) if own else None,
    }


def influence_of(election: Election, data: FederatedData) -> Json | None:
    """Return the share of kept edges that a single voter could exchange, in percent.

    `groups`: one client in the vote of its group; `global`: one group in the vote of all groups.
    None for rules other than Borda, and with more than `MAX_INFLUENCE_BALLOTS`.
    """
    ballots: dict[GroupId, list[Ranking]] = {}
    if election.rules["vote"]["name"] == "borda":
        for _, group, ranking in islice(election.ballots(), MAX_INFLUENCE_BALLOTS + 1):
            ballots.setdefault(group, []).append(ranking)
    if not 0 < sum(map(len, ballots.values())) <= MAX_INFLUENCE_BALLOTS:
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


def costs(traffic: Traffic, edges: int, *, alone: bool) -> Json:
    """Return bytes as encoded, bits per edge of the model, and training. alone: nothing is sent.

    Totals are of training; models served for use count separately. Bits are headers included, on
    average over replies and requests; entropy_up_per_edge: the least that the coder of the replies
    could reach; None if replies are not coded.
    """
    exchanges, trainings = max(1, traffic.exchanges), max(1, traffic.trainings)
    totals = {f"{way}_total": getattr(traffic, way) for way in ("up", "down", "served")}
    sent = {f"{way}_per_client_round": getattr(traffic, way) / exchanges for way in ("up", "down")}
    bits = {
        "up_per_edge": 8 * traffic.up / (edges * trainings),
        "down_per_edge": 8 * traffic.down / (edges * exchanges),
        "entropy_up_per_edge": traffic.ballot_bits / (edges * trainings) or None,
        "up_total_bytes": traffic.up,
        "down_total_bytes": traffic.down,
    }
    budget = {
        "client_trainings": traffic.trainings,
        "client_epochs": traffic.client_epochs,  # passes over a client's own training data
        "examples": traffic.trained_examples,
    }
    return {"bytes": sent | totals} | known(
        bits=None if alone else bits, budget=budget if traffic.trainings else None
    )


def participation_summary(
    asked: Mapping[ClientId, int], data: FederatedData, found: Groups
) -> dict[str, dict[str, float]]:
    """Return how often the clients of each group were asked.

    found: the groups that clients were served as; they count if clients declare none.
    """
    declared = data.population.declared_groups
    groups, named = (declared, data.group_name) if declared else (found, found_name)
    times: dict[GroupId, list[int]] = {}
    for client, group in sorted(groups.items(), key=lambda item: item[1]):
        times.setdefault(group, []).append(asked.get(client, 0))
    return {
        named(group): {
            "clients": len(own),
            "asked": sum(own),
            "asked_per_client": sum(own) / len(own),
        }
        for group, own in times.items()
    }


def inputs_summary(data: FederatedData) -> Json:
    """Return what a model of the run must be given, and what it returns."""
    groups = data.population.groups
    return {
        "shape": list(data.shape),
        "classes": data.classes,
        "groups": groups,
        "group_names": [data.group_name(group) for group in range(groups)],
        "label_names": list(data.label_names),
    }
