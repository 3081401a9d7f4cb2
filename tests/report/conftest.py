"""A comparison of three algorithms with three seeds, on disk, for all tests of the report."""

import pytest

from e2fl.config.methods import methods
from e2fl.report.from_runs import read_runs, study_of
from e2fl.report.page import write_report
from e2fl.runs.batch import compare
from tests.toys import toy_with


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    toy = toy_with(rounds=4, data={"noise": 1.5})
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
