"""Equal and equitable federated learning. The public API, as one list.

Names are imported when they are first used, so that `import e2fl` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e2fl.version import __version__

if TYPE_CHECKING:
    from e2fl.algorithms import ALGORITHMS, Algorithm, ClientModel, ClientModels
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
    from e2fl.errors import (
        ConfigError,
        DataError,
        E2flError,
        E2flWarning,
        RunError,
        StorageError,
        WireError,
    )
    from e2fl.grouping import GROUPINGS, Grouping
    from e2fl.learning import Learner, Settings
    from e2fl.models import Model
    from e2fl.networks import MODELS
    from e2fl.results import Comparison, Run, compare, read_run, run
    from e2fl.runs.trained import Assignment, assign
    from e2fl.wire import Message
    from e2fl_audit import Audit, audit

_NAMES = {
    "e2fl.algorithms": "ALGORITHMS Algorithm ClientModel ClientModels",
    "e2fl.config.experiment": "Experiment",
    "e2fl.config.experiment:load": "load_experiment",
    "e2fl.data": "DATASETS Client Examples FederatedData Population from_arrays from_partitioner "
    "from_table rows_of",
    "e2fl.errors": "ConfigError DataError E2flError E2flWarning RunError StorageError WireError",
    "e2fl.grouping": "GROUPINGS Grouping",
    "e2fl.learning": "Learner Settings",
    "e2fl.models": "Model",
    "e2fl.networks": "MODELS",
    "e2fl.results": "Comparison Run compare read_run run",
    "e2fl.runs.trained": "Assignment assign",
    "e2fl.wire": "Message",
    "e2fl_audit": "Audit audit",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

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
    try:
        return getattr(import_module(module), attribute or name)
    except ModuleNotFoundError as error:
        if error.name != "e2fl_audit":
            raise
        what = "audits need the package e2fl-audit: pip install 'e2fl[audit]'"
        raise ModuleNotFoundError(what, name=error.name) from None
