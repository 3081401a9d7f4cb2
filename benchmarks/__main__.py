"""`python -m benchmarks`."""

import argparse
import sys

from benchmarks.main import bench


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
    return bench(json=options.json, peers=options.peers, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
