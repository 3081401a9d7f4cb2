"""Equal and equitable federated learning."""

from e2fl.version import __version__

__all__ = ["__version__"]
