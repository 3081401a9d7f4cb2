"""For tests, ours and other people's: the promises every algorithm makes, plain twins of fast code, a toy problem."""

from typing import Any

__all__ = ["check_algorithm"]


def check_algorithm(algorithm: Any, **problem: Any) -> None:
    """Check everything that an algorithm promises; settings are those of `contract.Problem`, such as rounds or data."""
    from e2fl.testing import contract  # the plain twins are wanted without torch

    contract.check_algorithm(algorithm, **problem)
