"""Regexes for JSON numbers within exact bounds.

Bounded numbers are written without an exponent; unbounded ones may have one of up to two digits.
Bounds are exact decimals, as in the schema's text, never binary floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

INTEGER = "(?:0|-?[1-9][0-9]*)"
NUMBER = "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?"

_ANY_FRACTION = "(?:\\.[0-9]+)?"
_POSITIVE_DIGITS = "0*[1-9][0-9]*"
MAX_DIGITS = 400


@dataclass(frozen=True)
class Bound:
    value: Decimal
    inclusive: bool


def _one_of(options: list[str]) -> str | None:
    if not options:
        return None
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _same_length(low: str, high: str) -> str:
    """Digit strings from `low` to `high`, which are equally long."""
    if low == high:
        return low
    rest = len(low) - 1
    if set(low) == {"0"} and set(high) == {"9"}:
        return f"[0-9]{{{len(low)}}}" if rest else "[0-9]"
    first, last = int(low[0]), int(high[0])
    if first == last:
        return low[0] + _same_length(low[1:], high[1:])
    if not rest:
        return _digit(first, last)
    options = []
    if set(low[1:]) != {"0"}:
        options.append(low[0] + _same_length(low[1:], "9" * rest))
        first += 1
    top = None
    if set(high[1:]) != {"9"}:
        top = high[0] + _same_length("0" * rest, high[1:])
        last -= 1
    if first <= last:
        options.append(_digit(first, last) + (f"[0-9]{{{rest}}}" if rest > 1 else "[0-9]"))
    if top is not None:
        options.append(top)
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _naturals(low: int, high: int | None) -> list[str]:
    """Decimal forms without leading zeros of low <= n <= high, for low >= 0."""
    options: list[str] = []
    if high is not None and low > high:
        return options
    if low == 0:
        options.append("0")
        low = 1
        if high == 0:
            return options
    length = len(str(low))
    if high is None:
        options.append(_same_length(str(low), "9" * length))
        options.append(f"[1-9][0-9]{{{length},}}")
        return options
    longest = len(str(high))
    if length == longest:
        options.append(_same_length(str(low), str(high)))
        return options
    options.append(_same_length(str(low), "9" * length))
    if longest - length > 1:
        options.append(f"[1-9][0-9]{{{length},{longest - 2}}}")
    options.append(_same_length("1" + "0" * (longest - 1), str(high)))
    return options


def integer(lower: Bound | None, upper: Bound | None) -> str | None:
    """A regex for the integers within the bounds; None when there are none."""
    if lower is None and upper is None:
        return INTEGER
    low = high = None
    if lower is not None:
        low = int(lower.value.to_integral_value(ROUND_CEILING))
        low += low == lower.value and not lower.inclusive
    if upper is not None:
        high = int(upper.value.to_integral_value(ROUND_FLOOR))
        high -= high == upper.value and not upper.inclusive
    options = []
    if low is None or low < 0:
        least = 1 if high is None or high >= 0 else -high
        negatives = _one_of(_naturals(least, None if low is None else -low))
        if negatives is not None:
            options.append("-" + negatives)
    if high is None or high >= 0:
        options.extend(_naturals(max(low or 0, 0), high))
    return _one_of(options)


def number(lower: Bound | None, upper: Bound | None, *, exponent: bool = True) -> str | None:
    """A regex for the numbers within the bounds; None when there are none.

    Without bounds they may have an exponent, unless that is not wanted.
    """
    if lower is None and upper is None and exponent:
        return NUMBER
    zero = Decimal(0)
    options = []
    if lower is None or lower.value < 0:
        # Magnitudes of the negative part; zero itself is written without a sign.
        least = Bound(zero, inclusive=False)
        if upper is not None and upper.value < 0:
            least = Bound(-upper.value, upper.inclusive)
        most = None if lower is None else Bound(-lower.value, lower.inclusive)
        negatives = _one_of(_magnitudes(least, most))
        if negatives is not None:
            options.append("-" + negatives)
    if upper is None or upper.value >= 0:
        least = lower if lower is not None and lower.value >= 0 else Bound(zero, inclusive=True)
        options.extend(_magnitudes(least, upper))
    return _one_of(options)


def _split(value: Decimal) -> tuple[int, str]:
    """The integer part of a non-negative decimal and its fraction's digits, zeros trimmed."""
    whole, _, fraction = format(value, "f").partition(".")
    return int(whole), fraction.rstrip("0")


def _magnitudes(lower: Bound, upper: Bound | None) -> list[str]:
    """Regexes for low <= x <= high, x without sign; the bounds are not negative."""
    options: list[str] = []
    if upper is not None and lower.value > upper.value:
        return options
    low, low_digits = _split(lower.value)
    high, high_digits = (None, "") if upper is None else _split(upper.value)
    if upper is not None and low == high:
        tail = _tail_between(low_digits, lower.inclusive, high_digits, upper.inclusive)
        if tail is not None:
            options.append(str(low) + tail)
        return options
    options.append(str(low) + _fraction(_digits_from(low_digits, lower.inclusive)))
    between = _one_of(_naturals(low + 1, None if high is None else high - 1))
    if between is not None:
        options.append(between + _ANY_FRACTION)
    if upper is not None:
        digits = _digits_to(high_digits, upper.inclusive)
        if digits is not None:
            options.append(str(high) + _fraction(digits))
    return options


@dataclass(frozen=True)
class _Digits:
    """Digits after the point: a regex of one or more (None: none), and whether none may stand."""

    regex: str | None
    may_be_empty: bool


def _fraction(digits: _Digits) -> str:
    if digits.regex is None:
        return ""
    return f"(?:\\.{digits.regex})?" if digits.may_be_empty else f"\\.{digits.regex}"


def _continued(digits: _Digits) -> str:
    """The digits right after another digit of the fraction."""
    if digits.regex is None:
        return ""
    return f"(?:{digits.regex})?" if digits.may_be_empty else digits.regex


def _digits_from(bound: str, inclusive: bool) -> _Digits:
    """Digits d with 0.d >= 0.bound (> when not inclusive)."""
    if not bound:
        return _Digits("[0-9]+", True) if inclusive else _Digits(_POSITIVE_DIGITS, False)
    first = int(bound[0])
    options = [bound[0] + _continued(_digits_from(bound[1:], inclusive))]
    if first < 9:
        options.append(_digit(first + 1, 9) + "[0-9]*")
    return _Digits(_one_of(options), False)


def _digits_to(bound: str, inclusive: bool) -> _Digits | None:
    """Digits d with 0.d <= 0.bound (< when not inclusive); None when not even 0 is."""
    if not bound:
        return _Digits("0+", True) if inclusive else None
    first = int(bound[0])
    options = []
    rest = _digits_to(bound[1:], inclusive)
    if rest is not None:
        options.append(bound[0] + _continued(rest))
    if first > 0:
        options.append(_digit(0, first - 1) + "[0-9]*")
    return _Digits(_one_of(options), True)


def _digits_between(low: str, low_in: bool, high: str, high_in: bool) -> _Digits | None:
    """Digits d with 0.low <= 0.d <= 0.high."""
    if not low and not high:
        return _Digits("0+", True) if low_in and high_in else None
    first, last = int(low[:1] or "0"), int(high[:1] or "0")
    may_be_empty = not low and low_in  # 0 <= 0.high holds: high is not empty here
    if first > last:
        return None
    options = []
    if first == last:
        rest = _digits_between(low[1:], low_in, high[1:], high_in)
        if rest is not None:
            options.append(str(first) + _continued(rest))
    else:
        options.append(str(first) + _continued(_digits_from(low[1:], low_in)))
        if last - first > 1:
            options.append(_digit(first + 1, last - 1) + "[0-9]*")
        to = _digits_to(high[1:], high_in)
        if to is not None:
            options.append(str(last) + _continued(to))
    regex = _one_of(options)
    return None if regex is None and not may_be_empty else _Digits(regex, may_be_empty)


def _tail_between(low: str, low_in: bool, high: str, high_in: bool) -> str | None:
    digits = _digits_between(low, low_in, high, high_in)
    return None if digits is None else _fraction(digits)
