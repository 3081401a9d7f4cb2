"""Local training: scores of a supermask, or dense weights."""

from e2fl.learning.autograd import one_thread
from e2fl.learning.learner import Learner, Settings, build_learner, diverged

__all__ = ["Learner", "Settings", "build_learner", "diverged", "one_thread"]
