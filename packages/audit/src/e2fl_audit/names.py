"""Names of groups, clients and labels: how they are compared, sorted and shown."""

import math
import re
import unicodedata
from collections import defaultdict

import numpy as np

from e2fl_audit.files import Codes, Text, as_number, is_missing

POSITIVE = {"1", "yes", "y", "t", "positive", "pos", "selected", "hired", "accepted", "approved"}


def visible(name: str) -> str:
    """Return a name as it is seen: composed (NFC), without invisible characters, trimmed."""
    if not name.isascii():
        composed = unicodedata.normalize("NFC", name)
        name = "".join(sign for sign in composed if unicodedata.category(sign) != "Cf")
    return " ".join(name.split())


def plain(name: str) -> str:
    """Return a column's name as it is compared: lower case, with underscores for blanks, hyphens."""
    return visible(name).casefold().replace(" ", "_").replace("-", "_")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts G2 before G10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(1, int(text), "") if odd % 2 else (0, 0, text) for odd, text in enumerate(parts)]


def safe(name: str, most: int = 200) -> str:
    """Return a name without control characters and direction overrides, cut to a length that fits."""
    kinds = ("Cc", "Cf", "Cs")
    shown = "".join("\ufffd" if unicodedata.category(sign) in kinds else sign for sign in name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def name_codes(column: Text, notes: list[str]) -> tuple[list[str], Codes]:
    """Return the names in order, and each row's code; -1 where there is none.

    The order does not depend on that of the rows, and neither do the draws of the bootstrap then.
    """
    spelt = {text: "" if is_missing(text) else visible(text) for text in column.cat.categories}
    names = sorted(set(spelt.values()) - {""}, key=natural)
    code_of = {name: code for code, name in enumerate(names)} | {"": -1}
    written = defaultdict(set)
    for text, name in spelt.items():
        written[name].add(" ".join(text.split()))
    if blanks := written.pop("", None):
        blank = ", ".join(f"'{text}'" if text else "empty" for text in sorted(blanks)[:6])
        notes.append(f"Column '{column.name}': missing values ({blank}) are counted as unknown.")
    if several := [f"'{name}'" for name in names if len(written[name]) > 1]:
        notes.append(
            f"Column '{column.name}': {', '.join(several[:5])} is written in several ways that look "
            "the same; they are read as one name."
        )
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
        if other != name:
            pair = f"'{other}' and '{name}'"
            notes.append(f"Column '{column.name}': {pair} are counted as two groups; are they one?")
    return names, column.map(lambda text: code_of[spelt[text]]).to_numpy(np.int64)


class Labels:
    """Labels compared as values: 1, 1.0 and True are one label, and so are Yes and yes."""

    def __init__(self) -> None:
        self.spellings: dict[str, list[str]] = {}  # of each label, by its key

    @staticmethod
    def key(text: str) -> str:
        word = visible(text).casefold()
        word = {"true": "1", "false": "0"}.get(word, word)
        value = math.nan if word.endswith("%") else as_number(word, decimal_comma=True)
        return f"{value:.15g}" if math.isfinite(value) else word

    def code(self, text: str) -> int:
        """Return the code of a label, which is added if it is new."""
        key, spelt = self.key(text), visible(text)
        spellings = self.spellings.setdefault(key, [])
        if spelt not in spellings:
            spellings.append(spelt)
        return list(self.spellings).index(key)

    @property
    def names(self) -> list[str]:
        return [spellings[0] for spellings in self.spellings.values()]

    def positive(self) -> int | None:
        """Return the label that plainly means yes, where there are two labels or fewer."""
        keys = list(self.spellings)
        if not keys or set(keys) <= {"0"} or set(keys) <= {"-1"}:
            return self.code("1")
        if len(keys) > 2 or ("1" in keys and not set(keys) <= {"0", "-1", "1"}):
            return None  # of 1 and 2, either may be the positive one
        known = [code for code, key in enumerate(keys) if key in POSITIVE]
        return known[0] if len(known) == 1 else None
