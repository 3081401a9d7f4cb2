"""`python -m benchmarks`: the whole benchmark, printed as a table or as JSON."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch

from benchmarks import engine, federation, peers
from benchmarks.measure import Figure, seconds
from e2fl.version import __version__


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="measure the speed of this machine, as ratios"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, for a first look")
    parser.add_argument(
        "--peers", action="store_true", help="measure other simulators too, if they are installed"
    )
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    figures = measure(quick=options.quick, others=options.peers)
    machine = describe_machine()
    if options.json:
        document = {
            "machine": machine,
            "quick": options.quick,
            "seconds": time.perf_counter() - began,
            "figures": [figure.to_json() for figure in figures],
        }
        print(json.dumps(document, indent=1))
    else:
        width = max(len(figure.what) for figure in figures)
        print(", ".join(f"{key} {value}" for key, value in machine.items()), end="\n\n")
        print(f"{'':{width}}  {'median':>10}  {'low':>10}  {'high':>10}")
        print(*(figure.line(width) for figure in figures), sep="\n")
    return 0


def measure(*, quick: bool, others: bool) -> list[Figure]:
    """Return all figures; others: of other simulators too."""
    warm = engine.paper_learner().engine.warm
    parts: dict[str, Callable[[bool], list[Figure]]] = {
        "compiling, or loading from the cache": lambda _: [
            Figure("compiling, or loading from the cache", "s", seconds(warm))
        ],
        "local training": engine.training,
        "the engine against autograd": engine.against_autograd,
        "rankings, votes and the wire": engine.rankings,
        "rounds": federation.rounds,
        "memory": federation.memory,
    }
    if others:
        parts["other simulators"] = peers.peers
    figures = []
    for name, part in parts.items():
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        figures += part(quick)
    return figures


def describe_machine() -> dict[str, object]:
    """Return the machine and the versions the figures are for."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
        "e2fl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
