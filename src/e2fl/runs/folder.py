"""What a run leaves on disk: measurements, from which every table and figure is computed afterwards.

The files and their fields are a contract with other programs: config.toml, history.jsonl (a line for each evaluated
round), clients.csv (every client at the last evaluation), summary.json, model.safetensors.
"""

import csv
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from e2fl import metrics
from e2fl.data.federated import Client, ClientId, FederatedData, GroupId
from e2fl.errors import RunError
from e2fl.evaluation import NO_GROUP, Score, Tally, total
from e2fl.models import Params, storable
from e2fl.ranking import Mask
from e2fl.rounds import Round, Traffic, UnseenScores
from e2fl.runs.group_recovery import found_groups, of_evaluation

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Json = dict[str, Any]

COLUMNS = ("client", "group", "n", "accuracy", "loss")


def measure(scores: Mapping[ClientId, Score], data: FederatedData) -> Json:
    """Every metric of one evaluation: of the clients' own models, and of the other views beside them."""
    first = next(iter(scores.values()))
    own, *others = first.views
    result = _measure_view({client: score.views[own] for client, score in scores.items()}, data)
    if others:
        result["views"] = {
            name: _measure_view({client: score.views[name] for client, score in scores.items()}, data)
            for name in others
        }
    return result


def _measure_view(tallies: Mapping[ClientId, Mapping[GroupId, Tally]], data: FederatedData) -> Json:
    by_group: dict[GroupId, list[Tally]] = {}
    # Who has nothing to be tested on says nothing about how anybody is served.
    tallies = {client: parts for client, parts in tallies.items() if sum(tally.n for tally in parts.values())}
    if not tallies:
        raise RunError("no client has an example to test with")
    for parts in tallies.values():
        for group, tally in parts.items():
            if tally.n:
                by_group.setdefault(group, []).append(tally)
    groups = {
        data.group_name(group): {
            "clients": len(members),
            "accuracy": float(np.mean([tally.accuracy for tally in members])),
            "loss": float(np.mean([tally.mean_loss for tally in members])),
        }
        for group, members in sorted(by_group.items())
        if group != NO_GROUP
    }
    if data.classes == 2:
        for group, members in by_group.items():
            if group != NO_GROUP:
                counts = total(members)
                groups[data.group_name(group)]["f1"] = metrics.f1(
                    counts.true_positive, counts.false_positive, counts.false_negative
                )
    result: Json = {
        "user": metrics.spread([total(parts.values()).accuracy for parts in tallies.values()]),
        "group": metrics.spread([group["accuracy"] for group in groups.values()]) if groups else None,
        "groups": groups,
    }
    diverged = sum(not all(tally.finite for tally in parts.values()) for parts in tallies.values())
    if diverged:
        result["diverged"] = diverged
    if data.classes == 2 and sorted(by_group) == [0, 1]:
        unprivileged, privileged = (asdict(total(by_group[group])) for group in (0, 1))
        result["protected"] = metrics.protected(unprivileged, privileged)
    return result


def astray(measured: Json) -> list[str]:
    """What must be known of an evaluation before its accuracies are believed."""
    views = {"": measured, **{f" (seen as {name})": part for name, part in measured.get("views", {}).items()}}
    return [
        f"the models of {_clients(part['diverged'])}{view} give outputs that are no finite numbers, so their accuracy "
        "means nothing: training diverged (lower the learning rate), or their data is no good"
        for view, part in views.items()
        if part.get("diverged")
    ]


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def line(
    round_: Round,
    data: FederatedData,
    traffic: Traffic,
    notes: Mapping[str, Any],
    faults: Mapping[str, int],
    before: Mapping[ClientId, GroupId] | None = None,
    finding: Sequence[Json] = (),
) -> Json:
    """One line of history.jsonl.

    faults: how many there were of each kind since the line before; before: the groups found at the evaluation before;
    finding: how groups were found in each round since the line before.
    """
    assert round_.scores is not None
    inferred = of_evaluation(round_.scores, data.population, traffic, before or {})
    if inferred is not None and finding:
        inferred["rounds"] = list(finding)
    return {
        "round": round_.number,
        **measure(round_.scores, data),
        **({} if inferred is None else {"inference": inferred}),
        "bytes": {"up_total": traffic.up, "down_total": traffic.down, "served_total": traffic.served},
        "asked": len(round_.asked),
        "answered": len(round_.answered),
        "faults": dict(sorted(faults.items())),
        "notes": dict(notes),
    }


def measure_unseen(
    welcomed: UnseenScores,
    unseen: Mapping[ClientId, Client],
    trained: Mapping[ClientId, Score],
    data: FederatedData,
) -> Json:
    """Every metric for clients kept out of training, and the percent of them that found the group they belong to.

    What a found group stands for is what most clients in it, of those that took part, truly are. `faults`, where there
    are any: how many clients were left out, by kind.
    """
    newcomers = welcomed.scores
    tested = any(tally.n for score in newcomers.values() for tally in next(iter(score.views.values())).values())
    result: Json = (measure(newcomers, data) if tested else {}) | {"clients": len(newcomers)}
    if welcomed.faults:
        result["faults"] = dict(sorted(Counter(fault.split(":", 1)[0] for fault in welcomed.faults.values()).items()))
    members: dict[GroupId, Counter[GroupId]] = {}
    for client, found in found_groups(trained).items():
        group = data.population.declared.get(client)
        if group is not None:
            members.setdefault(found, Counter())[group] += 1
    stands_for = {found: max(sorted(true), key=true.__getitem__) for found, true in members.items()}
    right = [
        stands_for.get(found) == unseen[client].group
        for client, found in found_groups(newcomers).items()
        if unseen[client].group is not None
    ]
    if right and stands_for:
        result["right_group"] = 100.0 * sum(right) / len(right)
    return result


def client_rows(scores: Mapping[ClientId, Score], data: FederatedData) -> list[Json]:
    """The rows of clients.csv: one for each client, or for each group inside it."""
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
    """Bytes as really encoded; totals are of training, what is served for use stands apart."""
    exchanges = max(1, traffic.exchanges)
    return {
        "up_per_client_round": traffic.up / exchanges,
        "down_per_client_round": traffic.down / exchanges,
        "up_total": traffic.up,
        "down_total": traffic.down,
        "served_total": traffic.served,
    }


class Folder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def memories(self) -> Path:
        return self.path / "checkpoint" / "clients"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes out of this folder until the end, whatever that is; RunError where one is at work."""
        if fcntl is None:
            yield  # this system has no such locks
            return
        self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(f"another process is at work in {self.path}; wait for it, or stop it first") from error
            yield
        finally:
            os.close(folder)

    def exists(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not entry.name.endswith(".partial") for entry in self.path.iterdir())  # half a file is no run

    def finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def write(self, name: str, text: str) -> None:
        """Put a file in place, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        partial = self.path / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)

    def write_json(self, name: str, value: Json) -> None:
        self.write(name, json.dumps(finite(value), indent=1) + "\n")

    def write_history(self, lines: Iterable[Json]) -> None:
        self.write("history.jsonl", "".join(json.dumps(finite(line)) + "\n" for line in lines))

    def append_history(self, line: Json) -> None:
        with (self.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(line)) + "\n")

    def write_clients(self, rows: list[Json]) -> None:
        columns = list(dict.fromkeys((*COLUMNS, *(name for row in rows for name in row))))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.write("clients.csv", text.getvalue())

    def write_models(self, models: Mapping[str, Params | Mask]) -> None:
        """All models of a run, named MODEL/LAYER; weights as float32, masks of the supernetwork as booleans."""
        if not models:
            return
        tensors = {
            f"{name}/{layer}": storable(torch.as_tensor(value))
            for name, model in models.items()
            for layer, value in model.items()
        }
        partial = self.path / ".model.partial"
        save_file(tensors, partial)
        os.replace(partial, self.path / "model.safetensors")

    def read_history(self) -> list[Json]:
        path = self.path / "history.jsonl"
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        # A process killed while it wrote leaves half a line; that round is lived again.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def read_summary(self) -> Json:
        path = self.path / "summary.json"
        try:
            summary: Json = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path} holds no finished run: {path.name} cannot be read ({error})") from error
        return summary

    def read_clients(self) -> list[Json]:
        with (self.path / "clients.csv").open(encoding="utf-8", newline="") as file:
            return [{name: _number(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _number(column: str, text: str) -> Any:
    """What was written to a column of clients.csv."""
    if column in ("n", "served_as"):
        return int(text) if text else None
    if column == "loss" or column.startswith("accuracy"):
        return float(text) if text else math.nan
    return text


def finite(value: Any) -> Any:
    """The same, with null for numbers that are none: JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, np.generic):
        return finite(value.item())
    return value
