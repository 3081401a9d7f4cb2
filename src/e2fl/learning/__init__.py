"""Local training: scores of a supermask, or dense weights."""

from e2fl.learning.learner import Learner, Settings

__all__ = ["Learner", "Settings"]
