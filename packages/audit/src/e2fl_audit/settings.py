"""What a user may choose, and the error of a table or a setting that does not fit."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass

MIN_ROWS = 30
MIN_CLIENTS = 5


class AuditError(ValueError):
    """A table or a setting that cannot be audited.

    The message says what is wrong and what to do.
    """


@dataclass(frozen=True)
class Settings:
    """The settings of an audit; `e2fl_audit.audit` explains each."""

    client: str | None = None
    groups: tuple[str, ...] = ()
    y: str | None = None
    y_hat: str | None = None
    score: str | None = None
    positive: str | None = None
    threshold: float | None = None
    lower_is_better: bool = False
    drop_missing: bool = False
    profile: str | None = None
    reference: tuple[str, ...] = ()  # names of groups, "best" or "largest"; empty: the best group
    min_n: int | None = None
    suppress_below: int = 0
    resamples: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = {
            "profile must be ll144": self.profile in (None, "ll144"),
            "threshold must be a finite number": math.isfinite(self.threshold or 0),
            "resamples must be at least 50, at most 100,000": 50 <= self.resamples <= 100_000,
            "min_n must be 1 or more": self.min_n is None or self.min_n >= 1,
            "suppress_below must be 0 or more": self.suppress_below >= 0,
        }
        for rule, holds in allowed.items():
            if not holds:
                raise AuditError(f"{rule}, not {getattr(self, rule.split()[0])}")

    @property
    def ll144(self) -> bool:
        return self.profile == "ll144"

    @property
    def named_references(self) -> list[str]:
        return [name for name in self.reference if name not in ("best", "largest")]

    def least(self, default: int) -> int:
        """Return the size from which a group is judged."""
        return default if self.min_n is None else self.min_n


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the closest known name, and all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"{hint} known: {', '.join(names)}" if names else "; there are none"
