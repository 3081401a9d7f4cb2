"""Benchmarks: how fast this machine runs e2fl, plain PyTorch, NumPy and other simulators.

python -m benchmarks    # --quick for a first look, --peers for simulators, --json for programs
python -m benchmarks.soak       # not speed but endurance: kills runs, mutates files and messages
"""
