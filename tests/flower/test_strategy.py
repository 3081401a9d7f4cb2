"""An experiment as a Flower strategy; all in one process. Bad replies: see test_faults."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from flwr.app import MetricRecord

from e2fl.config.experiment import Experiment
from e2fl.errors import RunError
from e2fl.flower.run_config import RunConfig
from e2fl.flower.strategy import AlgorithmStrategy
from e2fl.runs.runner import run_experiment
from tests.flower.grid import QUICK, grid_of, plain, with_all_clients


@pytest.mark.parametrize("name", ["e2fl", "fedavg", "ditto"])
def test_an_algorithm_is_a_strategy_with_the_same_result(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = toy.variant(name)
    simulated = run_experiment(replace(experiment, rounds=3))
    strategy = AlgorithmStrategy(experiment, QUICK)
    result = strategy.start(
        grid_of(experiment, tmp_path),
        num_rounds=3,
        evaluate_fn=lambda number, arrays: MetricRecord({"arrays": len(arrays)}),
    )
    assert plain(strategy.run.state) == plain(simulated.state)
    assert list(result.evaluate_metrics_clientapp) == [2, 3]
    for key, value in simulated.summary["clients"].items():
        assert result.evaluate_metrics_clientapp[3][f"clients-{key}"] == value
    models = experiment.build_algorithm().describe(strategy.run.state).models()
    assert {key.split("/")[0] for key in result.arrays} == set(models)
    assert result.evaluate_metrics_serverapp[3]["arrays"] == len(result.arrays)


def test_the_strategy_fails_if_no_client_ever_replied(toy: Experiment, tmp_path: Path) -> None:
    grid = grid_of(
        toy,
        tmp_path,
        misbehave=lambda _, message, honest: [honest][: "query" in message.metadata.message_type],
    )
    with pytest.raises(RunError, match="nothing was learned"):
        AlgorithmStrategy(toy, QUICK).start(grid, timeout=0.05)


def test_the_strategy_counts_nodes_that_pass_for_others(toy: Experiment, tmp_path: Path) -> None:
    experiment = with_all_clients(toy)
    grid = grid_of(experiment, tmp_path / "two", [*range(8), 7])
    result = AlgorithmStrategy(experiment, QUICK).start(grid)
    counts = {"asked": 8, "answered": 8}
    assert dict(result.train_metrics_clientapp[1]) == counts | {"faults-impostor": 1}
    assert dict(result.train_metrics_clientapp[2]) == counts
    grid = grid_of(experiment, tmp_path / "pinned")
    clients = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    pins = " ".join(f"{node}={0 if client == 3 else client}" for node, client in clients.items())
    config = RunConfig.parse({"pins": pins, "wait-seconds": 0.2, "poll-seconds": 0.01})
    result = AlgorithmStrategy(experiment, config).start(grid)
    counts = {"asked": 7, "answered": 7, "faults-impostor": 1}
    assert dict(result.train_metrics_clientapp[1]) == counts
