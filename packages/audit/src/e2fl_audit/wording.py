"""Formatting of numbers for sentences, the same everywhere on the page."""

import math
from collections.abc import Sequence


def percent(value: float, digits: int = 1) -> str:
    """Return a fraction as a percentage, such as 79.6 %."""
    return "–" if math.isnan(value) else f"{100 * value:.{digits}f} %"


def plain(value: float) -> str:
    """Return a number with three or four significant digits."""
    if math.isnan(value):
        return "–"
    return f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"


def shown(value: float, unit: str) -> str:
    """Return a rate in percent, or a measure in its own unit."""
    return percent(value) if unit == "%" else plain(value)


def shown_apart(one: float, other: float, unit: str) -> tuple[str, str]:
    """Return two different values with as many digits as it takes to see the difference."""
    if unit != "%":
        texts = plain(one), plain(other)
        return texts if texts[0] != texts[1] else (f"{one:.10g}", f"{other:.10g}")
    digits = 1
    while percent(one, digits) == percent(other, digits) and digits < 8:
        digits += 1
    return percent(one, digits), percent(other, digits)


def interval(low: float, high: float, unit: str) -> str:
    """Return an interval, such as 75.0 to 83.6 %."""
    if math.isnan(low) or math.isnan(high):
        return "no interval"
    if unit == "%":
        return f"{100 * low:.1f} to {100 * high:.1f} %"
    return f"{plain(low)} to {plain(high)}"


def points(value: float, unit: str) -> str:
    """Return a difference without its sign: percentage points for rates."""
    amount = abs(value)
    if unit != "%":
        return plain(amount)
    if 0 < amount < 0.0005:
        return "less than 0.1 percentage points"
    number = f"{100 * amount:.1f}" if amount < 0.0995 else f"{100 * amount:.0f}"
    return f"{number} percentage point{'' if number == '1.0' else 's'}"


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
    if f"{value:.2g}" == "0.05":  # which side of the limit it is on has to be seen
        side = "just below" if value < 0.05 else "just above"
        return "p = 0.05" if value == 0.05 else f"p {side} 0.05"
    return f"p = {value:.2g}" if value < 0.995 else "p = 1.0"


def whole(value: float) -> str:
    """Return a count."""
    return "–" if math.isnan(value) else f"{value:,.0f}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names as part of a sentence: a, b and c."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def noun(count: float, word: str) -> str:
    """Return a count with its noun: 1 group, 2 groups."""
    return f"{count:,.0f} {word}{'' if count == 1 else 's'}"
