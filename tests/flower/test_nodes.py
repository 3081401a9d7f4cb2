"""Nodes of a Flower federation that are unknown, late, reconnected, or too few; all in one process."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Message

from e2fl.config.experiment import Experiment
from e2fl.data import Client
from e2fl.errors import ConfigError, RunError
from e2fl.flower.client import client_app
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.runs.runner import run_experiment
from e2fl.runs.watcher import Watcher
from tests.flower.grid import QUICK, LocalGrid, with_all_clients
from tests.flower.test_runtimes_agree import plain


def test_a_second_node_with_the_same_client_is_an_impostor(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), [0, 1, 2, 3, 3], node_config={"memory": str(tmp_path)})
    run = run_on(grid, with_all_clients(toy), QUICK)
    assert run.history[0]["faults"] == {"impostor": 1}
    assert run.history[0]["asked"] == 4


def test_a_node_pinned_to_one_client_cannot_be_another(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), range(4), node_config={"memory": str(tmp_path)})
    numbers = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    pins = " ".join(f"{node}={0 if client == 3 else client}" for node, client in numbers.items())
    run = run_on(grid, with_all_clients(toy), replace(QUICK, pins=pins))
    assert run.history[0]["faults"] == {"impostor": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2"]
    with pytest.raises(ConfigError, match="NODE=CLIENT"):
        RunConfig(pins="7")


def test_pins_that_are_required_and_not_given_stop_a_run(toy: Experiment, tmp_path: Path) -> None:
    """Otherwise the first node to claim a client id would get it."""
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    with pytest.raises(ConfigError, match="pins are required"):
        run_on(grid, toy, replace(QUICK, pins="required"))
    assert grid.sent == []


def test_a_node_with_several_clients_gets_one_message_for_all(
    toy: Experiment, tmp_path: Path
) -> None:
    experiment = with_all_clients(toy)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(3), node_config={"memory": str(tmp_path)})
    shares = {0: "0 1 2", 1: "3, 4", 2: "5 6 7"}
    for context in grid.contexts.values():
        number = context.node_config.pop("partition-id")
        context.node_config["partition-ids"] = shares[int(number)]
    run = run_on(grid, experiment, QUICK)
    assert plain(run.state) == plain(run_experiment(experiment).state)
    assert run.history == run_experiment(experiment).history
    trained = [sent for sent in grid.sent if sent.metadata.message_type == "train"]
    assert len(trained) == 3 * 3  # three nodes in three rounds
    one = trained[0].content
    assert sorted(name for name in one if name.startswith("payload")) == ["payload-0"]


def test_a_client_that_fails_does_not_stop_the_others_of_its_node(
    toy: Experiment, tmp_path: Path
) -> None:
    experiment = with_all_clients(toy)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    data = toy.build_data()

    def load_clients(context: Any) -> list[Client]:
        clients = [data.client(number) for number in range(8)]
        broken = replace(clients[3].train, x=clients[3].train.x[:, :5])
        return [replace(c, train=broken) if c.id == 3 else c for c in clients]

    app = client_app(path, load_clients)
    grid = LocalGrid(app, [0], node_config={"memory": str(tmp_path)})
    run = run_on(grid, experiment, QUICK)
    assert [line["faults"] for line in run.history] == [{"failed": 1}] * 3
    assert [line["answered"] for line in run.history] == [7] * 3


def test_a_node_cannot_add_a_client_that_is_pinned_to_another(
    toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), range(2), node_config={"memory": str(tmp_path)})
    pins = []
    for node, context in grid.contexts.items():
        number = context.node_config.pop("partition-id")
        context.node_config["partition-ids"] = "0 1" if number == 0 else "2 3"
        pins += [f"{node}=0", f"{node}=1"] if number == 0 else [f"{node}=2"]
    run = run_on(grid, with_all_clients(toy), replace(QUICK, pins=" ".join(pins)))
    assert run.history[0]["faults"] == {"impostor": 1}
    assert [row["client"] for row in run.clients] == ["0", "1"]


def test_nodes_that_are_not_clients_of_the_data_set_are_rejected(
    toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    data = toy.build_data()

    def load_client(context: Any) -> Client:
        partition = int(context.node_config["partition-id"])
        known = data.client(partition % 8)
        group = (
            7 if partition == 1 else 1 if partition == 2 else known.group
        )  # there is no group 7; client 2 is in group 0
        return replace(known, id=partition, group=group)

    grid = LocalGrid(
        client_app(path, load_client), [0, 1, 2, 3, 88], node_config={"memory": str(tmp_path)}
    )
    run = run_on(grid, with_all_clients(toy), QUICK)
    assert run.history[0]["faults"] == {"malformed": 3}
    assert [row["client"] for row in run.clients] == ["0", "3"]


def test_too_few_nodes_are_an_error(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), [0, 1], node_config={"memory": str(tmp_path)})
    with pytest.raises(
        RunError, match=r"2 clients were connected after 0\.2 seconds, and least-clients is 3"
    ):
        run_on(grid, toy, replace(QUICK, wait_seconds=0.2, least_clients=3))


def test_a_node_that_reconnects_with_another_id_is_recognised(
    toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})

    class Restart(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 1:
                grid.contexts[9999] = grid.contexts.pop(1000)

    run = run_on(grid, with_all_clients(toy), QUICK, watcher=Restart())
    assert plain(run.state) == plain(run_experiment(with_all_clients(toy)).state)
    assert [line["faults"] for line in run.history] == [{}, {}, {}]


def test_a_node_that_connects_late_is_given_time_to_reply(toy: Experiment, tmp_path: Path) -> None:
    """It connects before the deadline, and takes longer to reply than is left."""
    start = time.monotonic()
    ready: dict[str, float] = {}

    class Late(LocalGrid):
        def is_last(self, node: int) -> bool:
            return bool(self.contexts[node].node_config["partition-id"] == 7)

        def get_node_ids(self) -> list[int]:
            return [
                node
                for node in self.contexts
                if not self.is_last(node) or time.monotonic() - start > 1.6
            ]

        def pull_messages(self, message_ids: Any) -> list[Message]:
            (name,) = message_ids
            (sent,) = [message for message in self.sent if message.metadata.message_id == name]
            slow = self.is_last(
                sent.metadata.dst_node_id
            ) and sent.metadata.message_type.startswith("query")
            due = ready.setdefault(name, time.monotonic() + (1.3 if slow else 0.0))
            return super().pull_messages([name]) if time.monotonic() >= due else []

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = Late(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    config = RunConfig(
        wait_seconds=2.0, poll_seconds=0.02, round_seconds=20.0, evaluate_seconds=20.0
    )
    run = run_on(grid, with_all_clients(toy), config)
    assert [(line["asked"], line["answered"], line["faults"]) for line in run.history] == [
        (8, 8, {})
    ] * 3
    assert plain(run.state) == plain(run_experiment(with_all_clients(toy)).state)


@pytest.mark.parametrize(
    ("silences", "faults"),
    [(1, [{}, {"missing": 1}, {}]), (9, [{}, {"missing": 3}, {"missing": 2}])],
)
def test_a_node_that_is_silent_when_it_reconnects_is_asked_once_more(
    silences: int, faults: list[dict[str, int]], toy: Experiment, tmp_path: Path
) -> None:
    queries: list[Message] = []

    def misbehave(partition: int, message: Message, honest: Message) -> list[Message]:
        if message.metadata.dst_node_id == 9999 and message.metadata.message_type.startswith(
            "query"
        ):
            queries.append(message)
            return [] if len(queries) <= silences else [honest]
        return [honest]

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(
        client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave
    )

    class Restart(Watcher):
        def advance(self, number: int, measured: Any) -> None:
            if number == 1:
                grid.contexts[9999] = grid.contexts.pop(1000)

    # It misses training and, if it is silent again, the evaluation; then it is rejected and not asked any more.
    assert [
        line["faults"]
        for line in run_on(grid, with_all_clients(toy), QUICK, watcher=Restart()).history
    ] == faults
    assert len(queries) == 2
