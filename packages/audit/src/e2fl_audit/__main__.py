"""`python -m e2fl_audit`."""

import sys

from e2fl_audit.command import main

sys.exit(main())
