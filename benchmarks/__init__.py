"""Benchmarks: how fast this machine runs e2fl, beside PyTorch, NumPy and other simulators.

python -m benchmarks            # a table; --json for programs, --quick for a first look, --peers
python -m benchmarks.soak       # not speed but endurance: kills runs, mutates messages
"""
