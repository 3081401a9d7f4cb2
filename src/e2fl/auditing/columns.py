"""The role of each column of a table: as named by the user, or recognised by common names."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from e2fl.auditing.table import Options
from e2fl.construct import did_you_mean
from e2fl.errors import DataError

ALIASES: dict[str, tuple[str, ...]] = {
    "client": ("client", "client_id", "user", "user_id", "site", "site_id", "clinic", "hospital", "node", "device"),
    "y": ("y", "y_true", "label", "labels", "target", "truth", "true_label", "actual", "ground_truth", "outcome"),
    "y_hat": (
        *("y_hat", "yhat", "y_pred", "ypred", "pred", "prediction", "predictions", "predicted", "predicted_label"),
        *("decision", "selected", "hired"),
    ),
    "score": ("score", "y_score", "y_prob", "proba", "prob", "probability", "predicted_probability"),
    "accuracy": ("accuracy", "acc"),
    "n": ("n", "count", "n_test", "examples", "num_examples", "support"),
}
OPTIONS = {"client": "--client", "y": "--y", "y_hat": "--y-hat"}  # that name a column; --score for the others
GROUPS = ("group", "sensitive_feature", "sensitive_features")
SEX = ("sex", "gender")
RACE = ("race", "ethnicity", "race_ethnicity", "race/ethnicity")
PROTECTED = (*SEX, *RACE, "age_group", "disability", "religion", "nationality")


@dataclass
class ChosenColumns:
    """The position of each column that is used."""

    places: dict[str, int]  # of y, y_hat, score, accuracy and n, where there are such columns
    client: int | None
    groups: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plain(name: str) -> str:
    """Return a column's name as it is compared: trimmed, lower case, with underscores for blanks and hyphens."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


class Header:
    """The names of the columns, found in linear time."""

    def __init__(self, table: str, names: Sequence[str]):
        self.table, self.names = table, list(names)
        self.exact: dict[str, list[int]] = {}
        self.plain: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            self.exact.setdefault(name, []).append(place)
            self.plain.setdefault(plain(name), []).append(place)

    def named(self, name: str, option: str) -> int:
        """Return the column of this name, which the user gave."""
        found = self.exact.get(name) or self.plain.get(plain(name)) or []
        if not found:
            known = [known for known in self.names[:200] if known.strip()]
            raise DataError(f"{option}: {self.table} has no column '{name}'{did_you_mean(name, known)}")
        return self._single(found)

    def alias(self, role: str) -> int | None:
        """Return the column whose name means this role, or None. The first alias wins; two others are ambiguous."""
        first, *others = ALIASES[role]
        if first in self.plain:
            return self._single(self.plain[first])
        found = [name for name in others if name in self.plain]
        if len(found) > 1:
            option = OPTIONS.get(role, "--score")
            raise DataError(f"{self.table}: columns {_quoted(found)} both match; choose one with {option}")
        return self._single(self.plain[found[0]]) if found else None

    def groups(self) -> list[int]:
        """Return the columns that name groups: `group`, and protected attributes such as sex and race."""
        return [self._single(self.plain[name]) for name in (*GROUPS, *PROTECTED) if name in self.plain]

    def one_of(self, names: Sequence[str]) -> int | None:
        found = [name for name in names if name in self.plain]
        return self._single(self.plain[found[0]]) if found else None

    def _single(self, found: list[int]) -> int:
        if len(found) > 1:
            raise DataError(f"{self.table} has two columns '{self.names[found[0]]}'; rename one")
        return found[0]


def choose(header: Header, options: Options) -> ChosenColumns:
    """Return the columns to read, or raise `DataError` that says which one is missing."""
    client = header.named(options.client, "--client") if options.client else header.alias("client")
    given = {"y": options.y, "y_hat": options.y_hat, "score": options.score}
    found = {role: header.named(name, OPTIONS.get(role, "--score")) for role, name in given.items() if name}

    def look(role: str) -> None:
        place = header.alias(role)
        if place is not None:
            found[role] = place

    if "y" not in found:
        look("y")
    if not found.keys() & {"y_hat", "score"}:
        look("y_hat")
    if not found.keys() & {"y_hat", "score", "y"}:
        look("accuracy")
    if not found.keys() & {"y_hat", "score", "accuracy"}:
        look("score")
    chosen = ChosenColumns(found, client)
    chosen.groups = _groups(header, options, chosen.notes)
    if not found.keys() & {"y_hat", "score", "accuracy"}:
        raise DataError(_missing(header, "y_hat" if "y" in found else "accuracy"))
    if not found.keys() & {"y", "y_hat"}:
        look("n")
    return chosen


def _groups(header: Header, options: Options, notes: list[str]) -> list[int]:
    if options.profile == "ll144" and not options.groups:
        sex, race = header.one_of(SEX), header.one_of(RACE)
        if sex is None or race is None:
            missing = "sex" if sex is None else "race"
            raise DataError(
                f"--profile ll144: {header.table} has no column '{missing}'; name both, as in --group gender,ethnicity"
            )
        return [sex, race]
    if options.groups:
        found = [header.named(name, "--group") for name in options.groups]
        if len(set(found)) < len(found):
            raise DataError("--group names one column twice")
        return found
    found = header.groups()
    names = [header.names[place].strip() for place in found]
    if names and (len(names) > 1 or plain(names[0]) not in GROUPS):
        notes.append(f"Groups were taken from the columns {_quoted(names)}; choose others with --group.")
    return found


def _missing(header: Header, what: str) -> str:
    hint = did_you_mean(what, [name.strip() for name in header.names[:40]])
    forms = (
        "one row per person needs predictions (y_hat; name the column with --y-hat or --score) and labels (y), "
        "one row per client needs accuracy, or another measure named with --score"
    )
    return f"{header.table} has no column '{what}'{hint}. An audit needs one of two forms: {forms}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
