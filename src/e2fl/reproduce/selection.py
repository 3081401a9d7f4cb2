"""Selection of runs of a ledger that belong together: one shipped experiment with the same changes to it."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from e2fl.reproduce.collecting import FREE, recipe_of
from e2fl.reproduce.ledger import Entry

PAPERS = 233  # images of a client of FairMNISTRotate that we take for the paper's number
SAMPLES = (PAPERS, 60)  # of which we run these
NARROW = {"model.name": "lenet_small"}  # of FEMNIST: a round takes a tenth of the time
INK = {"data.scaling": "ink"}  # of FEMNIST: inputs as ink from 0 to 1, not standardised


def select(entries: Iterable[Entry], experiment: str, changes: Mapping[str, Any] | None = None) -> list[Entry]:
    """Return the runs of an experiment with exactly these changes, whatever their method, seed and rounds."""
    wanted = json.dumps(dict(changes or {}), sort_keys=True)
    return [
        entry
        for entry in entries
        if entry.experiment == experiment and _changes(experiment, entry.method, entry.settings) == wanted
    ]


def fewer_images(samples: int) -> dict[str, Any]:
    """Return the change to FairMNISTRotate that gives each client this many images."""
    return {} if samples == PAPERS else {"data.samples_per_client": samples}


def images(entry: Entry) -> int:
    """Return the number of training images of a client of FairMNISTRotate."""
    return int(entry.config["data"].get("samples_per_client", PAPERS))


def alpha(entry: Entry) -> float:
    """Return the Dirichlet concentration of Adult: how similar its clients are."""
    return float(entry.config["data"].get("alpha", 5000))


def other_alpha(value: float) -> dict[str, Any]:
    """Return the change to Adult that sets this concentration."""
    return {} if value == 5000 else {"data.alpha": int(value) if value == int(value) else value}  # 1, as typed, not 1.0


@cache
def _changes(experiment: str, method: str, settings: str) -> str | None:
    """Return the changes as a string; None if the run is not of this shipped experiment."""
    recipe = recipe_of({"name": experiment, **json.loads(settings)})
    if recipe is None or recipe.variant != method:
        return None
    return json.dumps({key: value for key, value in recipe.changes.items() if key not in FREE}, sort_keys=True)
