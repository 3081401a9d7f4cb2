"""The whole benchmark, printed as a table or as JSON."""

import json as json_text
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch

from benchmarks import engine, federation
from benchmarks.figures import Figure, Goal
from benchmarks.peers import peers as measure_peers
from benchmarks.work import real_digits
from e2fl.version import __version__

Results = tuple[list[Figure], list[Goal]]


def bench(*, json: bool = False, peers: bool = False, quick: bool = False) -> int:
    """Measure, and print a table, or JSON.

    peers: measure other simulators too, if they are installed.  quick: fewer repeats.
    """
    began = time.perf_counter()
    _say("compiling, or loading from the cache ...")
    start = time.perf_counter()
    engine.paper_learner().engine.warm()
    warm = Figure("compiling, or loading from the cache", "s", (time.perf_counter() - start,))
    parts: dict[str, Callable[[], Results]] = {
        "local training": lambda: engine.training(quick),
        "rankings, votes and the wire": lambda: engine.rankings(quick),
        "rounds": lambda: federation.rounds(quick),
        "memory": federation.memory,
    }
    if peers:
        parts["other simulators"] = lambda: measure_peers(quick)
    figures, goals = [warm], []
    for name, part in parts.items():
        _say(f"measuring {name} ...")
        found, reached = part()
        figures += found
        goals += reached
    machine = describe_machine()
    if json:
        document = {
            "machine": machine,
            "quick": quick,
            "seconds": time.perf_counter() - began,
            "figures": [figure.to_json() for figure in figures],
            "goals": [goal.to_json() for goal in goals],
        }
        print(json_text.dumps(document, indent=1))
    else:
        print(_table(machine, figures, goals))
    return 0


def describe_machine() -> dict[str, object]:
    """The machine and the versions the figures are for."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
        "images": "MNIST" if real_digits() else "synthetic",
        "e2fl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in path.read_text().splitlines()
            if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def _table(machine: dict[str, object], figures: list[Figure], goals: list[Goal]) -> str:
    lines = [", ".join(f"{key} {value}" for key, value in machine.items()), ""]
    width = max(len(item.what) for item in [*figures, *(goal.figure for goal in goals)])
    lines.append(f"{'':{width}}  {'median':>10}  {'low':>10}  {'high':>10}")
    for figure in figures:
        lines.append(_row(figure, width))
        if figure.note:
            lines[-1] += f"  {figure.note}"
    lines += [
        "",
        f"{'goals':{width}}  {'median':>10}  {'low':>10}  {'high':>10}"
        f"        {'at least':>8} {'aim':>6}",
    ]
    for goal in goals:
        limits = f"{goal.at_least:>8g} {goal.aim:>6g}  {goal.verdict}"
        lines.append(f"{_row(goal.figure, width):{width + 43}} {limits}")
    return "\n".join(lines)


def _row(figure: Figure, width: int) -> str:
    values = (figure.median, min(figure.values), max(figure.values))
    return (
        f"{figure.what:{width}}  "
        + "  ".join(f"{_short(value):>10}" for value in values)
        + f"  {figure.unit}"
    )


def _short(value: float) -> str:
    return f"{value:.4g}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
