"""How good are the groups that were found, and what did finding them cost?

Against the groups that clients declare: `matched` and `purity` are percent, `adjusted_rand` is 1 at best; all three are
None where nothing is declared. `changed` is percent, and None where nobody was in a group before.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from e2fl import metrics
from e2fl.data.federated import ClientId, GroupId, Population
from e2fl.evaluation import Score
from e2fl.rounds import Round, Traffic

Groups = Mapping[ClientId, GroupId]


def found_groups(scores: Mapping[ClientId, Score]) -> dict[ClientId, GroupId]:
    """The group each client was served as, where it was served as one."""
    return {client: score.group for client, score in scores.items() if score.group is not None}


def of_evaluation(
    scores: Mapping[ClientId, Score], population: Population, traffic: Traffic, before: Groups
) -> dict[str, Any] | None:
    """Of the groups that clients were served as; None where there are no groups.

    before: the groups of the evaluation before. Passes a client are of this evaluation; those in all, and the bytes,
    are of all training so far.
    """
    found = found_groups(scores)
    if not found:
        return None
    sizes = Counter(found.values())
    return {
        **_against_declared(found, population),
        "changed": metrics.changed(found, before),
        "passes_per_client": float(np.mean([scores[client].passes for client in found])),
        "passes": traffic.passes,
        "bytes": traffic.finding,
        "found": {str(group): sizes[group] for group in sorted(sizes)},
    }


def of_round(done: Round, found: Groups, before: Groups, population: Population, spent: Traffic) -> dict[str, Any]:
    """Of the groups that the server knows after a round of training.

    found: the group each client was in when last heard of; before: the same before this round; spent: in this round.
    """
    heard = {client: found[client] for client in done.answered if client in found}
    return {
        "round": done.number,
        "clients": len(found),
        **_against_declared(found, population),
        "changed": metrics.changed(heard, before),
        "passes": spent.passes,
        "bytes": spent.finding,
    }


def _against_declared(found: Groups, population: Population) -> dict[str, float | None]:
    true = {client: population.declared.get(client) for client in found}
    pairs = [(group, true[client]) for client, group in found.items() if true[client] is not None]
    if not pairs:
        return {"matched": None, "purity": None, "adjusted_rand": None}
    both = tuple(zip(*pairs, strict=True))
    return {
        "matched": metrics.matched(*both),
        "purity": metrics.purity(*both),
        "adjusted_rand": metrics.adjusted_rand(*both),
    }
