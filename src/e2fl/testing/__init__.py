"""Test support: the contract of algorithms, and a toy problem."""

from e2fl.testing.contract import check_algorithm

__all__ = ["check_algorithm"]
