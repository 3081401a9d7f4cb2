"""Local training: scores of a supermask, or dense weights."""

from e2fl.learning.learner import Learner, Settings, build_learner, diverged

__all__ = ["Learner", "Settings", "build_learner", "diverged"]
