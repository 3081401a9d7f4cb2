"""A comparison of three algorithms with three seeds, on disk, for all tests of the report."""

import pytest

from e2fl.config.experiment import from_dict
from e2fl.config.methods import methods
from e2fl.report.from_runs import read_runs, study_of
from e2fl.report.page import write_report
from e2fl.runs.batch import compare


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    toy = from_dict(
        {
            "name": "toy",
            "rounds": 4,
            "evaluate_every": 2,
            "data": {"name": "e2fl.testing.toy:Toy", "noise": 1.5},
            "model": {"name": "mlp", "hidden": [24]},
            "learner": {"learning_rate": 0.1, "batch_size": 8, "epochs": 2},
            "algorithm": {"name": "e2fl", "clients_per_round": 4},
        }
    )
    folder = tmp_path_factory.mktemp("runs") / "all"
    compare(methods(toy, ["local", "fedavg", "e2fl"]), [0, 1, 2], out=folder)
    (folder / "command.txt").write_text("e2fl compare toy --algorithms local,fedavg,e2fl\n")
    return folder


@pytest.fixture(scope="session")
def made(runs, tmp_path_factory):
    """The page and the files of that comparison."""
    out = tmp_path_factory.mktemp("page")
    write_report(study_of(*read_runs([runs])), out / "report.html", export_to=out / "files")
    return out
