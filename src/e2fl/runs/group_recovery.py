"""How well groups were recovered, and what it cost.

Compared with the groups that clients declare: `matched` and `purity` are percentages, `adjusted_rand` is 1 at best; all
three are None where no groups are declared. `changed` is a percentage, None where no client had a group before.
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
    """Return the group that each client was served as, for clients that were served as one."""
    return {client: score.group for client, score in scores.items() if score.group is not None}


def of_evaluation(
    scores: Mapping[ClientId, Score], population: Population, traffic: Traffic, before: Groups
) -> dict[str, Any] | None:
    """Return the recovery of the groups that clients were served as; None if there are no groups.

    before: the groups of the previous evaluation. `passes_per_client` is of this evaluation; `passes` and `bytes` are
    of all training so far.
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


def of_round(done: Round, found: Groups, before: Groups, population: Population, spent: Traffic) -> dict[str, Any]:
    """Return the recovery of the groups that the server knows after a round of training.

    found: the last known group of each client; before: the same before this round; spent: in this round.
    """
    heard = {client: found[client] for client in done.answered if client in found}
    return {
        "round": done.number,
        "clients": len(found),
        **_against_declared(found, population),
        "changed": metrics.changed(heard, before),
        "passes": spent.grouping_passes,
        "bytes": spent.grouping_bytes,
    }


def difference(now: Traffic, before: Traffic) -> Traffic:
    """Return the cost of finding groups between two points of a run."""
    return Traffic(
        grouping_bytes=now.grouping_bytes - before.grouping_bytes,
        grouping_passes=now.grouping_passes - before.grouping_passes,
    )


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
