"""Which column of a table is what: by the names given, or by the names people use."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    "loss": ("loss",),
}
GROUPS = ("group", "sensitive_feature", "sensitive_features")
SEX = ("sex", "gender")
RACE = ("race", "ethnicity", "race_ethnicity", "race/ethnicity")
PROTECTED = (*SEX, *RACE, "age_group", "disability", "religion", "nationality")


@dataclass
class Chosen:
    """The position of each column that is used."""

    groups: list[int] = field(default_factory=list)
    client: int | None = None
    y: int | None = None
    y_hat: int | None = None
    score: int | None = None
    accuracy: int | None = None
    n: int | None = None
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
            raise DataError(f"{option}: {self.table} has no column '{name}'{self._hint(name)}")
        return self._single(found)

    def alias(self, role: str, option: str) -> int | None:
        """Return the column whose name means this role, or None. The first alias wins; two others are ambiguous."""
        first, *others = ALIASES[role]
        if first in self.plain:
            return self._single(self.plain[first])
        found = [name for name in others if name in self.plain]
        if len(found) > 1:
            raise DataError(f"{self.table}: columns {_quoted(found)} may both be meant; choose one with {option}")
        return self._single(self.plain[found[0]]) if found else None

    def groups(self) -> list[int]:
        """Return the columns that name groups: `group`, and protected attributes such as sex and race."""
        found = [name for name in (*GROUPS, *PROTECTED) if name in self.plain]
        return [self._single(self.plain[name]) for name in found]

    def one_of(self, names: Sequence[str]) -> int | None:
        found = [name for name in names if name in self.plain]
        return self._single(self.plain[found[0]]) if found else None

    def _single(self, found: list[int]) -> int:
        if len(found) > 1:
            raise DataError(f"{self.table} has two columns '{self.names[found[0]]}'; rename one")
        return found[0]

    def _hint(self, name: str) -> str:
        known = [known for known in self.names[:200] if known.strip()]
        return did_you_mean(name, known)


def choose(
    header: Header,
    *,
    client: str | None,
    groups: Sequence[str],
    y: str | None,
    y_hat: str | None,
    score: str | None,
    ll144: bool,
) -> Chosen:
    """Return the columns to read, or raise `DataError` that says which one is missing."""
    chosen = Chosen()
    chosen.client = header.named(client, "--client") if client else header.alias("client", "--client")
    chosen.y = header.named(y, "--y") if y else header.alias("y", "--y")
    chosen.y_hat = header.named(y_hat, "--y-hat") if y_hat else None
    chosen.score = header.named(score, "--score") if score else None
    if chosen.y_hat is None and chosen.score is None:
        chosen.y_hat = header.alias("y_hat", "--y-hat")
    if chosen.y_hat is None and chosen.score is None:
        chosen.accuracy = header.alias("accuracy", "--score") if chosen.y is None else None
        if chosen.accuracy is None:
            chosen.score = header.alias("score", "--score")
    chosen.groups = _groups(header, groups, chosen, ll144)
    if chosen.y_hat is None and chosen.score is None and chosen.accuracy is None:
        raise DataError(_missing(header, chosen))
    if chosen.y_hat is None:
        chosen.n = header.alias("n", "--score") if chosen.y is None else None
    return chosen


def _groups(header: Header, given: Sequence[str], chosen: Chosen, ll144: bool) -> list[int]:
    if ll144 and not given:
        sex, race = header.one_of(SEX), header.one_of(RACE)
        if sex is None or race is None:
            missing = "sex" if sex is None else "race"
            raise DataError(
                f"--profile ll144: {header.table} has no column '{missing}'; name both, as in --group gender,ethnicity"
            )
        return [sex, race]
    if given:
        found = [header.named(name, "--group") for name in given]
        if len(set(found)) < len(found):
            raise DataError("--group names one column twice")
        return found
    found = header.groups()
    names = [header.names[place].strip() for place in found]
    if names and (len(names) > 1 or plain(names[0]) not in GROUPS):
        chosen.notes.append(f"Groups were taken from the columns {_quoted(names)}; choose others with --group.")
    return found


def _missing(header: Header, chosen: Chosen) -> str:
    names = [name.strip() for name in header.names[:40]]
    what = "y_hat" if chosen.y is not None else "accuracy"
    hint = did_you_mean(what, names)
    forms = (
        "one row per person needs predictions (y_hat; name the column with --y-hat or --score) and labels (y), "
        "one row per client needs accuracy, or another measure named with --score"
    )
    return f"{header.table} has no column '{what}'{hint}. An audit needs one of two forms: {forms}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
