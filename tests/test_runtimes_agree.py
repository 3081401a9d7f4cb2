"""The simulator and Flower are one: same seed, same algorithm, same bits."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'e2fl[flower]'")

from e2fl.algorithms import ALGORITHMS
from e2fl.config.experiment import Experiment
from e2fl.flower.client import client_app
from e2fl.flower.run_config import Options
from e2fl.flower.server import run_on
from e2fl.grouping import GROUPINGS
from e2fl.runs.checkpoint import _encode
from e2fl.runs.runner import Run, run_experiment
from tests.flower_grid import LocalGrid


def on_flower(experiment: Experiment, folder: Path, options: Options | None = None, **grid: object) -> Run:
    """The experiment on one node for each client, each with its memory on disk."""
    folder.mkdir(exist_ok=True)
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml())
    nodes = LocalGrid(
        client_app(path), experiment.build_data().population.ids, node_config={"memory": str(folder / "memory")}, **grid
    )
    return run_on(nodes, experiment, options or Options())


def plain(state: object) -> tuple[object, dict[str, bytes]]:
    """A state as plain values, so that two can be compared to the bit."""
    arrays: dict[str, torch.Tensor] = {}
    tree = _encode(state, arrays, "state")
    return tree, {name: np.asarray(tensor).tobytes() for name, tensor in arrays.items()}


def assert_equal(flowered: Run, simulated: Run) -> None:
    assert plain(flowered.state) == plain(simulated.state)
    assert flowered.clients == simulated.clients
    assert flowered.history == simulated.history
    same = ("user", "group", "groups", "bytes", "rounds")
    assert {key: flowered.summary.get(key) for key in same} == {key: simulated.summary.get(key) for key in same}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_same_bits_on_flower_and_in_the_simulator(
    name: str, toy: Experiment, tmp_path: Path
) -> None:
    experiment = toy.variant(name)
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))


@pytest.mark.parametrize("name", [name for name in GROUPINGS if name not in ("known", "one")])
def test_every_way_to_find_groups_does_too(name: str, toy: Experiment, tmp_path: Path) -> None:
    grouping = {"name": name, "groups": 2}
    experiment = Experiment(**{**vars(toy), "algorithm": toy.algorithm | {"grouping": grouping}})
    assert_equal(on_flower(experiment, tmp_path), run_experiment(experiment))
