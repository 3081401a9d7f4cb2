"""Test support: the contract of algorithms, plain twins of compiled code, and a toy problem."""

from typing import Any

__all__ = ["check_algorithm"]


def check_algorithm(algorithm: Any, **problem: Any) -> None:
    """Check that an algorithm keeps the contract; settings are those of `contract.Problem`, such as rounds or data."""
    from e2fl.testing import contract  # so that the plain twins import without it

    contract.check_algorithm(algorithm, **problem)
