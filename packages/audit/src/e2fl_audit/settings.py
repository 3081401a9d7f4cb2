"""What a user may choose: which column is what, what its values mean, and how groups are judged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from e2fl_audit.errors import AuditError

MIN_ROWS = 30
MIN_CLIENTS = 5
MAX_RESAMPLES = 100_000


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
    unit: str | None = None
    lower_is_better: bool = False
    drop_missing: bool = False
    profile: str | None = None
    reference: tuple[str, ...] = ()  # names of groups, "best" or "largest"; empty: the best group
    min_n: int | None = None
    suppress_below: int = 0
    resamples: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        if self.profile not in (None, "ll144"):
            raise AuditError(f"there is no profile '{self.profile}'; known: ll144")
        if self.unit not in (None, "percent", "fraction"):
            raise AuditError(f"unit must be percent or fraction, not '{self.unit}'")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise AuditError(f"threshold must be a number that scores reach, not {self.threshold}")
        if not 50 <= self.resamples <= MAX_RESAMPLES:
            reach = f"at least 50 and at most {MAX_RESAMPLES:,}"
            raise AuditError(f"resamples must be {reach}, not {self.resamples:,}")
        if self.min_n is not None and self.min_n < 1:
            raise AuditError(f"min_n must be 1 or more, not {self.min_n}")
        if self.suppress_below < 0:
            raise AuditError(f"suppress_below must be 0 or more, not {self.suppress_below}")

    @property
    def ll144(self) -> bool:
        return self.profile == "ll144"

    @property
    def largest(self) -> bool:
        """Whether groups are compared with the largest group."""
        return "largest" in self.reference

    @property
    def named_references(self) -> list[str]:
        return [name for name in self.reference if name not in ("best", "largest")]

    @property
    def min_rows(self) -> int:
        return self.min_n if self.min_n is not None else 1 if self.ll144 else MIN_ROWS


def names_of(reference: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return references as users give them: nothing, one name or several."""
    if reference is None:
        return ()
    return (reference,) if isinstance(reference, str) else tuple(map(str, reference))
