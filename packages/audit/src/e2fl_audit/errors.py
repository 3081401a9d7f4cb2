"""The error that a user can cause and fix, and the hint it ends with."""

import difflib
from collections.abc import Iterable


class AuditError(ValueError):
    """A table or a setting that cannot be audited; the message says what is wrong and what to do."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the closest known name, and all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} known: {', '.join(names)}" if names else "; there are none"
