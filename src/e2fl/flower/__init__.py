"""Runs the same algorithms on many machines, with Flower; see docs/flower.md.

Only this package imports Flower. `server` and `client` make the two apps of a Flower run.
"""

from importlib.util import find_spec

from e2fl.errors import ConfigError

if find_spec("flwr") is None:
    raise ConfigError("Flower is an extra: pip install 'e2fl[flower]'")
