"""Every algorithm as a Flower strategy; all in one process."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import Message, RecordDict

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import Experiment
from e2fl.errors import RunError
from e2fl.flower.client import client_app
from e2fl.flower.run_config import RunConfig
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.runs.runner import run_experiment
from tests.flower.grid import QUICK, LocalGrid, with_all_clients
from tests.flower.test_faults import BAD_PAYLOADS, misbehaving
from tests.flower.test_runtimes_agree import plain


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_a_strategy_with_the_same_result(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = toy.variant(name)
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(experiment, QUICK)
    simulated = run_experiment(experiment)
    result = strategy.start(grid)
    assert plain(strategy.state) == plain(simulated.state)
    last = result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]
    assert {
        name: last[f"clients-{name}"] for name in simulated.summary["clients"]
    } == simulated.summary["clients"]
    assert {name.split("/")[0] for name in result.arrays} == set(
        strategy.algorithm.describe(strategy.state).models()
    )


LONGER = {
    "a last round of its own": {"name": "e2fl", "clients_per_round": 4, "final_full_vote": True},
    "trials before": {"name": "ifca", "clients_per_round": 2, "restarts": 2, "trial_rounds": 2},
    "a turn for each": {"name": "local", "clients_per_round": 2},
}


@pytest.mark.parametrize("name", LONGER)
def test_the_strategy_has_as_many_rounds_as_the_algorithm_needs(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = replace(toy, rounds=2, evaluate_every=2, algorithm=LONGER[name])
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(experiment, QUICK)
    result = strategy.start(grid)
    simulated = run_experiment(experiment)
    assert simulated.summary["rounds"] > 2
    assert plain(strategy.state) == plain(simulated.state)
    assert list(result.evaluate_metrics_clientapp) == [line["round"] for line in simulated.history]
    last = result.evaluate_metrics_clientapp[simulated.summary["rounds"]]
    assert {
        name: last[f"clients-{name}"] for name in simulated.summary["clients"]
    } == simulated.summary["clients"]


def test_the_strategy_runs_the_number_of_rounds_passed_to_start(
    toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    strategy = AlgorithmStrategy(toy, QUICK)
    result = strategy.start(grid, num_rounds=3)
    assert list(result.evaluate_metrics_clientapp) == [2, 3]
    assert plain(strategy.state) == plain(run_experiment(replace(toy, rounds=3)).state)


def test_the_strategy_fails_if_no_client_ever_replied(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(toy.to_toml())
    grid = LocalGrid(
        client_app(path),
        range(8),
        node_config={"memory": str(tmp_path)},
        misbehave=lambda partition, message, honest: (
            [] if message.metadata.message_type == "train" else [honest]
        ),
    )
    with pytest.raises(RunError, match="nothing was learned"):
        AlgorithmStrategy(toy, QUICK).start(grid, timeout=0.05)


def test_the_strategy_counts_faults_and_continues(toy: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    misbehave = misbehaving("train", BAD_PAYLOADS["a flipped bit"][1])
    grid = LocalGrid(
        client_app(path), range(8), node_config={"memory": str(tmp_path)}, misbehave=misbehave
    )
    result = AlgorithmStrategy(with_all_clients(toy), QUICK).start(grid, timeout=0.05)
    assert dict(result.train_metrics_clientapp[1]) == {
        "asked": 8,
        "answered": 7,
        "faults-malformed": 1,
    }


def test_the_strategy_counts_repeated_replies_and_duplicate_nodes(
    toy: Experiment, tmp_path: Path
) -> None:
    def twice(message: Message, honest: Message) -> list[Message]:
        return [honest, Message(RecordDict(dict(honest.content)), reply_to=message)]

    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    misbehave = misbehaving("train", twice)
    nodes = [0, 1, 2, 3, 4, 5, 6, 7, 7]
    grid = LocalGrid(
        client_app(path), nodes, node_config={"memory": str(tmp_path)}, misbehave=misbehave
    )
    result = AlgorithmStrategy(with_all_clients(toy), QUICK).start(grid)
    counts = {"asked": 8, "answered": 8, "faults-repeated": 1}
    assert dict(result.train_metrics_clientapp[1]) == counts | {
        "faults-impostor": 1
    }  # the second node for client 7
    assert dict(result.train_metrics_clientapp[2]) == counts


def test_the_strategy_rejects_a_node_that_is_pinned_to_another_client(
    toy: Experiment, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(with_all_clients(toy).to_toml())
    grid = LocalGrid(client_app(path), range(8), node_config={"memory": str(tmp_path)})
    numbers = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    pins = " ".join(f"{node}={0 if client == 3 else client}" for node, client in numbers.items())
    config = RunConfig.parse({"pins": pins, "wait-seconds": 0.2, "poll-seconds": 0.01})
    result = AlgorithmStrategy(with_all_clients(toy), config).start(grid)
    assert dict(result.train_metrics_clientapp[1]) == {
        "asked": 7,
        "answered": 7,
        "faults-impostor": 1,
    }
