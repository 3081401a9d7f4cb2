"""Benchmarks: how fast this machine runs e2fl, beside plain PyTorch and NumPy and beside other simulators.

python -m benchmarks            # a table; --json for programs, --quick for a first look, --peers for other simulators
python -m benchmarks.soak       # not speed but endurance: kills runs, mutates files and messages
"""
