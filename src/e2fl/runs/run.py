"""A finished run, as its files record it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2fl.config.experiment import Experiment
from e2fl.runs.folder import Folder
from e2fl.runs.records import Evaluation, Json, Summary


@dataclass(frozen=True)
class Run:
    """A finished run, as recorded: plain JSON values, as in its files."""

    experiment: Experiment
    summary: Json
    history: list[Json]
    clients: list[Json]
    state: Any = field(repr=False, default=None)
    folder: Path | None = None
    times: Mapping[int, float] = field(default_factory=dict)  # by evaluated round: seconds since the one before

    @property
    def result(self) -> Summary:
        """The summary, typed."""
        return Summary.from_json(self.summary)

    @property
    def evaluations(self) -> list[Evaluation]:
        """The history, typed."""
        return [Evaluation.from_json(line) for line in self.history]


def read_run(path: str | Path) -> Run:
    """Return a finished run from its folder. Nothing that the folder names is imported; damaged files are rejected."""
    folder = Folder(Path(path))
    summary = folder.read_summary()
    folder.verify()
    return Run(
        folder.read_experiment(),
        summary,
        folder.read_history(),
        folder.read_clients(),
        None,
        folder.path,
        folder.read_times(),
    )
