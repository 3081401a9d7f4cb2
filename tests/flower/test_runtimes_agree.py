"""The simulator and Flower agree: same seed, same algorithm, same bits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from e2fl.algorithms import ALGORITHMS
from e2fl.codec import encode
from e2fl.config.experiment import Experiment
from e2fl.flower.client import client_app
from e2fl.flower.run_config import RunConfig
from e2fl.flower.server import run_on
from e2fl.grouping import GROUPINGS
from e2fl.participation import PARTICIPATION
from e2fl.runs.runner import run_experiment
from e2fl.runs.store import Run
from e2fl.runs.watcher import Watcher
from tests.flower.grid import LocalGrid


def on_flower(
    experiment: Experiment,
    folder: Path,
    config: RunConfig | None = None,
    *,
    watcher: Watcher | None = None,
    **grid: object,
) -> Run:
    """Run the experiment with one node for each client, each with its memory on disk."""
    folder.mkdir(exist_ok=True)
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    nodes = LocalGrid(
        client_app(path),
        experiment.build_data().population.ids,
        node_config={"memory": str(folder / "memory")},
        **grid,
    )
    return run_on(nodes, experiment, config or RunConfig(), watcher=watcher)


def plain(state: object) -> tuple[object, dict[str, bytes]]:
    """Return a state as plain values, so that two can be compared bit for bit."""
    arrays: dict[str, torch.Tensor] = {}
    tree = encode(state, arrays, "state")
    return tree, {name: np.asarray(tensor).tobytes() for name, tensor in arrays.items()}


def assert_equal(on_nodes: Run, simulated: Run) -> None:
    assert plain(on_nodes.state) == plain(simulated.state)
    assert on_nodes.clients == simulated.clients
    assert on_nodes.history == simulated.history
    same = ("clients", "group", "groups", "bytes", "rounds")
    assert {key: on_nodes.summary.get(key) for key in same} == {
        key: simulated.summary.get(key) for key in same
    }


def test_a_network_with_dropout_gives_the_same_bits_on_flower_and_in_the_simulator(
    toy: Experiment, tmp_path: Path
) -> None:
    algorithm = {"name": "ditto", "clients_per_round": 4}
    experiment = replace(
        toy,
        algorithm=algorithm,
        model={"name": "tests.learning.test_own_networks:Recurrent"},
        rounds=2,
    )
    assert_equal(on_flower(experiment, tmp_path / "nodes"), run_experiment(experiment))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_same_bits_on_flower_and_in_the_simulator(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = toy.variant(name)
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


@pytest.mark.parametrize("name", [name for name in GROUPINGS if name not in ("known", "one")])
def test_every_way_to_find_groups_gives_the_same_bits(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    grouping = {"name": name, "groups": 2}
    experiment = Experiment(**{**vars(toy), "algorithm": toy.algorithm | {"grouping": grouping}})
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


@pytest.mark.parametrize("participation", [name for name in PARTICIPATION if name != "uniform"])
def test_every_participation_policy_gives_the_same_bits(
    participation: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = replace(
        toy.variant("e2fl_steady"), participation={"name": participation, "away": 0.2}
    )
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


def test_a_clustering_that_some_clients_miss_gives_the_same_bits(
    toy: Experiment, tmp_path: Path
) -> None:
    algorithm = {
        "name": "e2fl_steady",
        "clients_per_round": 4,
        "grouping": {"name": "rank_clustering", "groups": 2},
    }
    experiment = replace(toy, algorithm=algorithm, participation={"name": "by_group", "away": 0.4})
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


class Kill(Watcher):
    """Kills the server in round 4, after its clients have trained."""

    def advance(self, number: int, measured: object) -> None:
        if number == 4:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["e2fl", "e2fl_steady", "ditto"])
def test_seats_for_every_group_give_the_same_bits_after_a_kill(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    algorithm = toy.algorithm if name == "e2fl" else {"name": name, "clients_per_round": 4}
    experiment = replace(toy, algorithm=algorithm, participation={"name": "by_group", "seats": 2})
    config = RunConfig(out=str(tmp_path / "run"))
    with pytest.raises(KeyboardInterrupt):
        on_flower(experiment, tmp_path, config, watcher=Kill())
    assert_equal(
        on_flower(experiment, tmp_path, replace(config, resume=True)), run_experiment(experiment)
    )


def test_seats_for_every_group_draw_other_clients_than_uniform_does(
    toy: Experiment, tmp_path: Path
) -> None:
    """So that the tests above would notice a runtime that ignores the policy."""
    seated = replace(toy.variant("e2fl_steady"), participation={"name": "by_group", "seats": 2})
    uniform = replace(seated, participation={"name": "uniform"})
    assert plain(on_flower(seated, tmp_path).state) != plain(run_experiment(uniform).state)
