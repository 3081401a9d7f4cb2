"""States of E2FL as version 0.1 stored them before groupings kept their own part of the state."""

from collections.abc import Mapping
from typing import Any

_KEYS = {"overall", "groups", "starts", "assigned", "prepared", "count", "keep", "seed", "origin", "centroids", "facts"}


def updated(tree: Any) -> Any:
    """Return the structure of a stored state in its current form; others are returned unchanged."""
    if not isinstance(tree, dict) or set(tree.get("fields", ())) != _KEYS:
        return tree
    old = tree["fields"]
    clustered = bool(old["centroids"]["items"])
    found = clustered or bool(old["starts"]["items"])
    nothing: dict[str, Any] = {"items": []}
    membership = {
        "groups": old["count"],
        "assignments": old["assigned"],
        "found": {"value": found},
        "seed": old["seed"],
        "starts": old["starts"],
        "origin": old["origin"] if clustered else nothing,
        "centroids": old["centroids"],
        "metadata": old["facts"],
    }
    return {
        "fields": {
            "global_ranking": old["overall"],
            "groups": old["groups"],
            "membership": {"fields": membership},
            "keep": old["keep"],
            # Without clustering, the origin was stored only for absent groups that vote with it.
            "initial": nothing if clustered else old["origin"],
        }
    }


def lacks_initial_ranking(state: Any, extra: Mapping[str, Any], algorithm: Mapping[str, Any]) -> bool:
    """Return whether an updated state lacks the initial ranking, which was not stored with a clustering.

    extra: what was stored beside the state; algorithm: the settings of the run.
    """
    membership = getattr(state, "membership", None)
    clustered = membership is not None and bool(membership.centroids)
    return "history" not in extra and clustered and algorithm.get("absent") == "init_vote"
