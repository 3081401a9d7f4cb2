"""The role of each column of a table: as named by the user, or recognised by common names."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from e2fl_audit.errors import AuditError, did_you_mean
from e2fl_audit.names import visible
from e2fl_audit.settings import Settings

ALIASES = {
    "client": "client client_id user user_id site site_id clinic hospital node device",
    "y": "y y_true label labels target truth true_label actual ground_truth outcome",
    "y_hat": "y_hat yhat y_pred ypred pred prediction predictions predicted predicted_label "
    "decision selected hired",
    "score": "score y_score y_prob proba prob probability predicted_probability",
    "accuracy": "accuracy acc",
    "n": "n count n_test examples num_examples support",
}
OPTIONS = {"client": "--client", "y": "--y", "y_hat": "--y-hat"}  # --score for the others
GROUPS = ("group", "sensitive_feature", "sensitive_features")
SEX = ("sex", "gender")
RACE = ("race", "ethnicity", "race_ethnicity", "race/ethnicity")
PROTECTED = (*SEX, *RACE, "age_group", "disability", "religion", "nationality")


@dataclass
class Roles:
    """The position of each column that is used."""

    values: dict[str, int]  # of y, y_hat, score, accuracy and n, where there are such columns
    client: int | None
    groups: list[int]
    notes: list[str] = field(default_factory=list)

    @property
    def positions(self) -> list[int]:
        return [
            *self.values.values(),
            *self.groups,
            *([] if self.client is None else [self.client]),
        ]


def plain(name: str) -> str:
    """Return a column's name as it is compared: lower case, with underscores for blanks, hyphens."""
    return visible(name).casefold().replace(" ", "_").replace("-", "_")


class Header:
    """The names of the columns of a table."""

    def __init__(self, table: str, names: Sequence[str]):
        self.table, self.names = table, list(names)
        self.exact: dict[str, list[int]] = defaultdict(list)
        self.plain: dict[str, list[int]] = defaultdict(list)
        for position, name in enumerate(names):
            self.exact[name].append(position)
            self.plain[plain(name)].append(position)

    def named(self, name: str, option: str) -> int:
        """Return the column of this name, which the user gave."""
        positions = self.exact.get(name) or self.plain.get(plain(name))
        if not positions:
            known = [known for known in self.names[:200] if known.strip()]
            hint = did_you_mean(name, known)
            raise AuditError(f"{option}: {self.table} has no column '{name}'{hint}")
        return self._single(positions)

    def alias(self, role: str) -> int | None:
        """Return the column whose name means this role. The first alias wins over all others."""
        first, *others = ALIASES[role].split()
        names = [first] if first in self.plain else [name for name in others if name in self.plain]
        if len(names) > 1:
            quoted = ", ".join(f"'{name}'" for name in names)
            option = OPTIONS.get(role, "--score")
            raise AuditError(f"{self.table}: columns {quoted} both match; choose one with {option}")
        return self._single(self.plain[names[0]]) if names else None

    def first_of(self, names: Sequence[str]) -> int | None:
        return next((self._single(self.plain[name]) for name in names if name in self.plain), None)

    def _single(self, positions: list[int]) -> int:
        if len(positions) > 1:
            name = self.names[positions[0]]
            raise AuditError(f"{self.table} has two columns '{name}'; rename one")
        return positions[0]


def choose(header: Header, settings: Settings) -> Roles:
    """Return the columns to read, or raise an error that says which one is missing."""
    client = (
        header.named(settings.client, "--client") if settings.client else header.alias("client")
    )
    given = {"y": settings.y, "y_hat": settings.y_hat, "score": settings.score}
    values = {
        role: header.named(name, OPTIONS.get(role, "--score"))
        for role, name in given.items()
        if name
    }

    def look(role: str, unless: set[str]) -> None:
        position = None if values.keys() & unless else header.alias(role)
        if position is not None:
            values[role] = position

    look("y", {"y"})
    look("y_hat", {"y_hat", "score"})
    look("accuracy", {"y", "y_hat", "score"})
    look("score", {"y_hat", "score", "accuracy"})
    roles = Roles(values, client, [])
    roles.groups = _groups(header, settings, roles.notes)
    if not values.keys() & {"y_hat", "score", "accuracy"}:
        raise AuditError(_missing(header, "y_hat" if "y" in values else "accuracy"))
    look("n", {"y", "y_hat"})
    return roles


def _groups(header: Header, settings: Settings, notes: list[str]) -> list[int]:
    if settings.groups:
        positions = [header.named(name, "--group") for name in settings.groups]
        if len(set(positions)) < len(positions):
            raise AuditError("--group names one column twice")
        return positions
    if settings.ll144:
        sex, race = header.first_of(SEX), header.first_of(RACE)
        if sex is None or race is None:
            missing = "sex" if sex is None else "race"
            raise AuditError(
                f"--profile ll144: {header.table} has no column '{missing}'; "
                "name both, as in --group gender,ethnicity"
            )
        return [sex, race]
    names = [name for name in (*GROUPS, *PROTECTED) if name in header.plain]
    positions = [header._single(header.plain[name]) for name in names]
    if names and (len(names) > 1 or names[0] not in GROUPS):
        quoted = ", ".join(f"'{header.names[position].strip()}'" for position in positions)
        notes.append(f"Groups were taken from the columns {quoted}; choose others with --group.")
    return positions


def _missing(header: Header, what: str) -> str:
    hint = did_you_mean(what, [name.strip() for name in header.names[:40]])
    return (
        f"{header.table} has no column '{what}'{hint}. An audit needs one of two forms: one row per "
        "person needs predictions (y_hat; name the column with --y-hat or --score) and labels (y), "
        "one row per client needs accuracy, or another measure named with --score"
    )
