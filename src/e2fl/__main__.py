"""`python -m e2fl` is the command `e2fl`."""

from e2fl.cli import main

raise SystemExit(main())
