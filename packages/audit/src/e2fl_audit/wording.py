"""Formatting of numbers and names for sentences, the same everywhere on the page."""

import math
import unicodedata
from collections.abc import Iterable, Sequence


def percent(value: float, digits: int = 1) -> str:
    """Return a fraction as a percentage, such as 79.6 %."""
    return "–" if math.isnan(value) else f"{100 * value:.{digits}f} %"


def shown(value: float, unit: str) -> str:
    """Return a rate in percent, or a measure in its own unit with four significant digits."""
    if unit == "%" or math.isnan(value):
        return percent(value)
    return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def shown_apart(one: float, other: float, unit: str) -> tuple[str, str]:
    """Return two different values with as many digits as it takes to see the difference."""
    texts, digits = (shown(one, unit), shown(other, unit)), 2
    while texts[0] == texts[1] and digits <= 8:
        texts = percent(one, digits), percent(other, digits)
        if unit != "%":
            texts = f"{one:.{digits + 2}g}", f"{other:.{digits + 2}g}"
        digits += 1
    return texts


def interval(low: float, high: float, unit: str) -> str:
    """Return an interval, such as 75.0 to 83.6 %."""
    if math.isnan(low) or math.isnan(high):
        return "no interval"
    return f"{shown(low, unit).removesuffix(' %')} to {shown(high, unit)}"


def signed(value: float, unit: str) -> str:
    """Return a difference with its sign, in points for rates."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.1f}" if unit == "%" else f"{value:+.4g}"


def points(value: float, unit: str) -> str:
    """Return a difference without its sign: percentage points for rates."""
    amount = abs(value)
    if unit != "%":
        return shown(amount, unit)
    if 0 < amount < 0.0005:
        return "less than 0.1 percentage points"
    text = f"{100 * amount:.1f}" if amount < 0.0995 else f"{100 * amount:.0f}"
    return f"{text} percentage point{'' if text == '1.0' else 's'}"


def ratio(value: float) -> str:
    """Return a ratio with two digits, or with three where rounding would move it across 0.8."""
    if math.isnan(value):
        return "–"
    short = f"{value:.2f}"
    if (float(short) < 0.8) == (value < 0.8):
        return short
    return f"{value:.3f}" if round(value, 3) < 0.8 else "just below 0.8"


def p_value(value: float) -> str:
    """Return a p-value, such as p = 0.032 or p < 0.001."""
    if value < 0.001:
        return "p < 0.001"
    if f"{value:.2g}" == "0.05" and value != 0.05:  # the side of the limit has to be seen
        return f"p just {'below' if value < 0.05 else 'above'} 0.05"
    return f"p = {value:.2g}" if value < 0.995 else "p = 1.0"


def whole(value: float) -> str:
    """Return a count."""
    return "–" if math.isnan(value) else f"{value:,.0f}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names as part of a sentence: a, b and c."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def quoted(names: Iterable[str]) -> str:
    """Return names in quotation marks: 'a', 'b'."""
    return ", ".join(f"'{name}'" for name in names)


def noun(count: float, word: str) -> str:
    """Return a count with its noun: 1 group, 2 groups."""
    return f"{count:,.0f} {word}{'' if count == 1 else 's'}"


def for_page(text: str, most: int = 200) -> str:
    """Return a harmless text for the page; a number and its percent sign stay on one line."""
    return safe(text, most).replace(" %", "\u00a0%")


def safe(name: str, most: int = 200) -> str:
    """Return a name without control characters and direction overrides, cut to fit."""
    kinds = ("Cc", "Cf", "Cs")
    shown = "".join("\ufffd" if unicodedata.category(sign) in kinds else sign for sign in name)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
