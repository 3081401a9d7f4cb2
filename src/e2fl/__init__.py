"""Equal and equitable federated learning. The public API, as one list.

Names are imported when they are first used, so that `import e2fl` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e2fl.version import __version__

if TYPE_CHECKING:
    from e2fl.algorithms import ALGORITHMS, Algorithm, ClientModel, ClientModels
    from e2fl.api import compare, run
    from e2fl.auditing.api import audit
    from e2fl.auditing.result import Audit
    from e2fl.config.experiment import Experiment
    from e2fl.config.experiment import load as load_experiment
    from e2fl.data import (
        DATASETS,
        Client,
        Examples,
        FederatedData,
        Population,
        from_arrays,
        from_partitioner,
        from_table,
        rows_of,
    )
    from e2fl.errors import ConfigError, DataError, E2flError, E2flWarning, RunError, StorageError, WireError
    from e2fl.grouping import GROUPINGS, Grouping
    from e2fl.learning import Learner, Settings
    from e2fl.models import MODELS, Model
    from e2fl.results import Comparison, Run, read_run
    from e2fl.runs.unseen import Assignment, assign
    from e2fl.wire import Message

_HOMES = {
    "run": "e2fl.api",
    "audit": "e2fl.auditing.api",
    "Audit": "e2fl.auditing.result",
    "compare": "e2fl.api",
    "read_run": "e2fl.results",
    "Run": "e2fl.results",
    "Comparison": "e2fl.results",
    "assign": "e2fl.runs.unseen",
    "Assignment": "e2fl.runs.unseen",
    "Experiment": "e2fl.config.experiment",
    "load_experiment": "e2fl.config.experiment:load",
    "Algorithm": "e2fl.algorithms",
    "ClientModel": "e2fl.algorithms",
    "ClientModels": "e2fl.algorithms",
    "Grouping": "e2fl.grouping",
    "Learner": "e2fl.learning",
    "Settings": "e2fl.learning",
    "Message": "e2fl.wire",
    "Model": "e2fl.models",
    "Client": "e2fl.data",
    "Examples": "e2fl.data",
    "FederatedData": "e2fl.data",
    "Population": "e2fl.data",
    "from_arrays": "e2fl.data",
    "from_partitioner": "e2fl.data",
    "from_table": "e2fl.data",
    "rows_of": "e2fl.data",
    "ALGORITHMS": "e2fl.algorithms",
    "GROUPINGS": "e2fl.grouping",
    "DATASETS": "e2fl.data",
    "MODELS": "e2fl.models",
    "E2flError": "e2fl.errors",
    "E2flWarning": "e2fl.errors",
    "StorageError": "e2fl.errors",
    "ConfigError": "e2fl.errors",
    "DataError": "e2fl.errors",
    "RunError": "e2fl.errors",
    "WireError": "e2fl.errors",
}

__all__ = [
    "ALGORITHMS",
    "DATASETS",
    "GROUPINGS",
    "MODELS",
    "Algorithm",
    "Assignment",
    "Audit",
    "Client",
    "ClientModel",
    "ClientModels",
    "Comparison",
    "ConfigError",
    "DataError",
    "E2flError",
    "E2flWarning",
    "Examples",
    "Experiment",
    "FederatedData",
    "Grouping",
    "Learner",
    "Message",
    "Model",
    "Population",
    "Run",
    "RunError",
    "Settings",
    "StorageError",
    "WireError",
    "__version__",
    "assign",
    "audit",
    "compare",
    "from_arrays",
    "from_partitioner",
    "from_table",
    "load_experiment",
    "read_run",
    "rows_of",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'e2fl' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)
