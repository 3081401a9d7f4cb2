"""Nodes of a Flower federation that are unknown, late, reconnected, or too few.

All in one process.
"""

import time
from dataclasses import replace

import pytest

from e2fl.errors import ConfigError, RunError
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.runs.runner import run_experiment
from tests.flower.grid import (
    QUICK,
    At,
    LocalGrid,
    assert_equal,
    grid_of,
    on_flower,
    plain,
    with_all_clients,
)


def several(grid, shares):
    """Give each node these clients instead of its one."""
    for context in grid.contexts.values():
        number = context.node_config.pop("partition-id")
        context.node_config["partition-ids"] = shares[int(number)]


def test_a_node_that_says_it_is_another_client_is_left_out(toy, tmp_path):
    """A second node with the same client, and a node that is pinned to another one."""
    experiment = with_all_clients(toy)
    run = on_flower(experiment, tmp_path / "second", QUICK, partitions=[0, 1, 2, 3, 3])
    assert run.history[0]["faults"] == {"impostor": 1}
    assert run.history[0]["asked"] == 4
    grid = grid_of(experiment, tmp_path / "pinned", range(4))
    clients = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    pins = " ".join(f"{node}={0 if client == 3 else client}" for node, client in clients.items())
    run = run_on(grid, experiment, replace(QUICK, pins=pins))
    assert run.history[0]["faults"] == {"impostor": 1}
    assert [row["client"] for row in run.clients] == ["0", "1", "2"]


def test_a_node_cannot_add_a_client_that_is_pinned_to_another(toy, tmp_path):
    grid = grid_of(with_all_clients(toy), tmp_path, range(2))
    nodes = {context.node_config["partition-id"]: node for node, context in grid.contexts.items()}
    several(grid, {0: "0 1", 1: "2 3"})
    pins = f"{nodes[0]}=0 {nodes[0]}=1 {nodes[1]}=2"
    run = run_on(grid, with_all_clients(toy), replace(QUICK, pins=pins))
    assert run.history[0]["faults"] == {"impostor": 1}
    assert [row["client"] for row in run.clients] == ["0", "1"]


def test_pins_that_are_required_and_not_given_stop_a_run(toy, tmp_path):
    """Otherwise the first node to claim a client id would get it."""
    grid = grid_of(toy, tmp_path)
    with pytest.raises(ConfigError, match="pins are required"):
        run_on(grid, toy, replace(QUICK, pins="required"))
    assert grid.sent == []
    with pytest.raises(ConfigError, match="NODE=CLIENT"):
        RunConfig(pins="7")


def test_a_node_with_several_clients_gets_one_message_for_all(toy, tmp_path):
    experiment = with_all_clients(toy)
    grid = grid_of(experiment, tmp_path, range(3))
    several(grid, {0: "0 1 2", 1: "3, 4", 2: "5 6 7"})
    assert_equal(run_on(grid, experiment, QUICK), run_experiment(experiment))
    trained = [sent.content for sent in grid.sent if sent.metadata.message_type == "train"]
    assert len(trained) == 3 * 3  # three nodes in three rounds
    assert list(trained[0]) == ["e2fl", "payload-0"]  # the same for all three


def test_a_client_that_fails_does_not_stop_the_others_of_its_node(toy, tmp_path):
    data = toy.build.data()

    def load_clients(context):
        clients = [data.client(number) for number in range(8)]
        broken = replace(clients[3].train, x=clients[3].train.x[:, :5])
        return [replace(c, train=broken) if c.id == 3 else c for c in clients]

    options = {"partitions": [0], "load_client": load_clients}
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, **options)
    assert [line["faults"] for line in run.history] == [{"failed": 1}] * 3
    assert [line["answered"] for line in run.history] == [7] * 3


def test_nodes_that_are_not_clients_of_the_data_set_are_rejected(toy, tmp_path):
    data = toy.build.data()

    def load_client(context):
        partition = int(context.node_config["partition-id"])
        known = data.client(partition % 8)
        group = {1: 7, 2: 1}.get(partition, known.group)  # no group 7; client 2 is in group 0
        return replace(known, id=partition, group=group)

    options = {"partitions": [0, 1, 2, 3, 88], "load_client": load_client}
    run = on_flower(with_all_clients(toy), tmp_path, QUICK, **options)
    assert run.history[0]["faults"] == {"malformed": 3}
    assert [row["client"] for row in run.clients] == ["0", "3"]


def test_too_few_nodes_are_an_error(toy, tmp_path):
    config = replace(QUICK, wait_seconds=0.2, least_clients=3)
    with pytest.raises(RunError, match=r"2 clients were connected .* least-clients is 3"):
        on_flower(toy, tmp_path, config, partitions=[0, 1])


def test_a_node_with_another_experiment_is_rejected(toy, tmp_path):
    grid = grid_of(toy, tmp_path)
    with pytest.raises(RunError, match="the experiment of this node differs from the server's"):
        run_on(grid, replace(toy, seed=5), replace(QUICK, wait_seconds=0.2))


def test_a_node_that_connects_late_is_given_time_to_reply(toy, tmp_path):
    """It connects before the deadline, and takes longer to reply than is left."""
    start = time.monotonic()
    ready = {}

    class Late(LocalGrid):
        def is_last(self, node):
            return bool(self.contexts[node].node_config["partition-id"] == 7)

        def get_node_ids(self):
            here = time.monotonic() - start > 1.6
            return [node for node in self.contexts if here or not self.is_last(node)]

        def pull_messages(self, message_ids):
            (name,) = message_ids
            (sent,) = [message for message in self.sent if message.metadata.message_id == name]
            query = sent.metadata.message_type.startswith("query")
            slow = query and self.is_last(sent.metadata.dst_node_id)
            due = ready.setdefault(name, time.monotonic() + (1.3 if slow else 0.0))
            return super().pull_messages([name]) if time.monotonic() >= due else []

    experiment = with_all_clients(toy)
    config = RunConfig(wait_seconds=2.0, poll_seconds=0.02, round_seconds=20.0)
    assert_equal(on_flower(experiment, tmp_path, config, kind=Late), run_experiment(experiment))


@pytest.mark.parametrize(
    ("silences", "faults", "asked"),
    [
        (0, [{}, {}, {}], 1),
        (1, [{}, {"missing": 1}, {"missing": 1}], 2),
        (9, [{}, {"missing": 1}, {"missing": 3}], 2),
    ],
)
def test_a_node_that_reconnects_is_recognised_and_asked_once_more_if_it_is_silent(
    silences, faults, asked, toy, tmp_path
):
    queries = []

    def misbehave(partition, message, honest):
        query = message.metadata.message_type.startswith("query")
        if message.metadata.dst_node_id != 9999 or not query:
            return [honest]
        queries.append(message)
        return [] if len(queries) <= silences else [honest]

    experiment = with_all_clients(toy)
    grid = grid_of(experiment, tmp_path, misbehave=misbehave)
    restart = At(1, lambda: grid.contexts.update({9999: grid.contexts.pop(1000)}))
    # It misses the evaluation of round 2, which comes with the training of round 3. If it is silent
    # again, it is rejected, and misses the last evaluation too.
    run = run_on(grid, experiment, QUICK, watcher=restart)
    assert [line["faults"] for line in run.history] == faults
    assert len(queries) == asked
    if not silences:
        assert plain(run.state) == plain(run_experiment(experiment).state)
