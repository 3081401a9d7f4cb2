"""`e2fl bench`: how fast this machine runs e2fl, side by side with the plain way and with others."""

from benchmarks.main import bench

__all__ = ["bench"]
