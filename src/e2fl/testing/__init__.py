"""Test support: the contract of algorithms, and a toy problem."""

from typing import Any

__all__ = ["check_algorithm"]


def check_algorithm(algorithm: Any, **problem: Any) -> None:
    """Check that an algorithm keeps the contract.

    problem: settings of `contract.Problem`, such as rounds or data.
    """
    from e2fl.testing import contract  # imports torch

    contract.check_algorithm(algorithm, **problem)
