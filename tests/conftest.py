"""What tests share: where real data is, and a small experiment."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from e2fl.config.experiment import Experiment
from tests.toys import toy_with

settings.register_profile("e2fl", deadline=None)  # the first example compiles
settings.load_profile("e2fl")

ROOT = Path(__file__).parent.parent


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: some tests mostly wait for processes."""
    given = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    if given:
        return int(given)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return cores + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that at the end no worker is left alone with a long one."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets; tests that need it skip without."""
    for folder in (os.environ.get("E2FL_DATA"), ROOT.parent / "shared" / "data"):
        if folder and (Path(folder) / "mnist").is_dir():
            return Path(folder)
    pytest.skip("no real data here: set E2FL_DATA to a folder with mnist/ in it")


@pytest.fixture
def toy() -> Experiment:
    """An experiment that takes a fraction of a second."""
    return toy_with()


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the sections out of pages: plots take a second, and tests/report draws them."""
    monkeypatch.setattr("e2fl.report.page.sections", lambda study: [])
