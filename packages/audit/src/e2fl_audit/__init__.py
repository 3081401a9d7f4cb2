"""Fairness audits of tables of predictions or scores: `e2fl-audit`, `e2fl audit` and `audit`.

The steps: files (cells) -> columns (which column is what) -> reader (one frame of what they mean)
-> counting -> rates and clients (values with intervals and tests) -> findings (sentences) -> api ->
page. Names are imported when they are first used, so that `e2fl --help` does not wait for pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2fl_audit.api import Audit, audit
    from e2fl_audit.settings import AuditError

__version__ = "0.1.0"
__all__ = ["Audit", "AuditError", "__version__", "audit"]

_HOMES = {"audit": "api", "Audit": "api", "AuditError": "settings"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'e2fl_audit' has no attribute '{name}'")
    return getattr(import_module(f"e2fl_audit.{_HOMES[name]}"), name)
