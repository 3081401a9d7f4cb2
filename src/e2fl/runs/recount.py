"""Count the elections of a run again: an independent reading of its chain, in plain NumPy.

Nothing is shared with the code that voted, and all numbers are integers, so every machine finds the
same bits. A ranking is one array: the ranks of the edges, layer after layer.
"""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from e2fl.errors import RunError
from e2fl.files import read_bytes
from e2fl.runs.chain import read_chain, require


def recount(folder: Path, last: int | None = None) -> str:
    """Count every round, up to `last`, and say what was counted; or raise `MismatchError`."""
    rules, *rounds = read_chain(folder)
    require(last is None or 1 <= last <= len(rounds), f"round {last}: the length of the chain")
    if rules["vote"]["name"] != "borda":
        raise RunError(f"a vote by {rules['vote']['name']} is not recounted")
    layers, (own, every), count = rules["layers"].values(), rules["incumbents"], 0
    groups: dict[int, Any] = {}  # what each group elected last
    served: dict[Any, Any] = {}  # the same, averaged over rounds if the run does so
    for line in rounds[:last]:
        where, ballots = f"round {line['round']}", read_ballots(folder, line, layers)
        present, count = sorted({group for group, _ in ballots}), count + len(ballots)
        require([*line["elected"]] == [*map(str, present)], f"{where}: the groups with ballots")
        for group in present:
            cast = [(ballot, every) for other, ballot in ballots if other == group]
            groups[group] = vote([*cast, (groups.get(group), own)], layers)
            elected = digest(groups[group]) == line["elected"][str(group)]
            require(elected, f"{where}: what group {group} elected")
        if not present:
            continue
        # One ballot of weight one for each group, whatever its size.
        voters, known = line["voters"], [*sorted(groups)]
        allowed = present if rules["absent"] == "present_only" else known
        some = rules["absent"] == "members" and {*present} <= {*voters} <= {*known}
        require(voters == allowed or (some and voters == sorted({*voters})), f"{where}: the voters")
        whole = vote([(groups[group], 1) for group in voters], layers)
        require(digest(whole) == line["global"], f"{where}: the global vote")
        before, newest = rules["smoothing"]
        for key, ranks in [*((group, groups[group]) for group in present), ("global", whole)]:
            served[key] = vote([(ranks, newest), (served.get(key), before)], layers)
    stored = last is None and rules["masks"] and (folder / "model.safetensors").is_file()
    if stored:
        check_masks(folder / "model.safetensors", served, rules)
    masks, head = "" if stored else " (no stored masks were checked)", rounds[:last][-1]["digest"]
    return f"{len(rounds[:last])} rounds, {count} ballots match{masks}; the last digest is {head}"


def digest(ranks: Any) -> str:
    return hashlib.sha256(ranks.astype("<i4").tobytes()).hexdigest()


def vote(cast: list[tuple[Any, int]], layers: Any) -> Any:
    """Return the ranks of the edges by their sums of ranks; ties go to the lower edge number."""
    sums = sum(weight * ranks for ranks, weight in cast if ranks is not None and weight)
    for part in np.split(sums, np.cumsum([*layers])[:-1]):  # views: the sums become ranks
        edges = np.arange(len(part))
        part[np.sort(part * len(part) + edges) % len(part)] = edges
    return sums


def read_ballots(folder: Path, line: Any, layers: Any) -> list[tuple[int, Any]]:
    """Return group and ranks of each ballot of a round, if it is what the chain says."""
    where, ballots = f"round {line['round']}", line["ballots"]
    path = folder / "ballots" / f"round-{line['round']:07d}.bin"
    if not path.is_file():
        raise RunError(f"{where}: its ballots were not kept; the setting keep_ballots keeps them")
    raw, edges = read_bytes(path), sum(layers)
    require(len(raw) == 4 * edges * len(ballots), f"{where}: the number of ballots")
    voters = {(client, group) for client, group, _ in ballots}
    require(len(voters) == len(ballots), f"{where}: the number of voters")
    ranks = np.frombuffer(raw, "<i4").astype(np.int64).reshape(-1, edges)
    for (client, _, known), own in zip(ballots, ranks, strict=True):
        require(digest(own) == known, f"{where}: the ballot of client {client}")
        require(np.array_equal(own, vote([(own, 1)], layers)), f"{where}: ranks of client {client}")
    return [(group, own) for (_, group, _), own in zip(ballots, ranks, strict=True)]


def check_masks(path: Path, served: Any, rules: Any) -> None:
    """Require that the stored masks are those of the rankings that were elected."""
    try:
        stored = {name: mask.view(np.uint8) for name, mask in load(read_bytes(path)).items()}
    except SafetensorError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    cuts = np.cumsum([*rules["layers"].values()])[:-1]
    for key, ranks in served.items():
        name = key if key == "global" else f"group{key}"
        for layer, part in zip(rules["layers"], np.split(ranks, cuts), strict=True):
            kept = part >= math.floor((1 - rules["keep"]) * len(part) + 1e-9)
            same = np.array_equal(stored.get(f"{name}/{layer}", ()), kept)
            require(same, f"model.safetensors: the mask {name}/{layer}")
