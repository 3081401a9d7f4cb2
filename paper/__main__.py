"""`python -m paper table1 --budget 60`: the same as `e2fl reproduce table1 --budget 60`."""

import sys

from e2fl.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
