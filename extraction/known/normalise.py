"""Metadata's spellings to the JSON values that a schema asks for.

Each function returns None for what it can't read, and for what may be read in two ways: a value
that is ambiguous is left to who sees the page.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from . import written_days

_NUMBER = re.compile(r"(?:-?\d|(?<![\w.,])[.,](?=\d\d(?!\d)))[\d.,'’ \u00a0\u202f]*")
_COIN_BETWEEN = re.compile(r"(\d)\s?[€£$]\s?(\d\d)(?![\d.,])")  # 12€99
_SPACES = re.compile(r"[ '’\u00a0\u202f]")
_ISO_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:$|[T\s])")
_BARE_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})$")
_SLASHED_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(?:$|\s)")
_DURATION = re.compile(
    r"P(?:(\d{1,3})W)?(?:(\d{1,4})D)?"
    r"(?:T(?:(\d{1,4}(?:\.\d+)?)H)?(?:(\d{1,5}(?:\.\d+)?)M)?(?:(\d{1,7}(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_WORDED_DURATION = re.compile(
    r"(?:(\d{1,3})\s*(?:d|days?)\b)?[\s,]*"
    r"(?:(\d{1,3})\s*(?:h|hrs?|hours?|std\.?|stunden?|heures?|horas?|ore|uur)(?:\b|(?=\d)))?[\s,]*(?:and\s+)?"
    r"(?:(\d{1,4})\s*(?:m|mins?\.?|minutes?|minuten?|minutos?|minuti|min\.?)\b\.?)?",
    re.IGNORECASE,
)
# Only symbols that stand for one currency; "$" and "kr" stand for many.
_SYMBOLS = {
    "€": "EUR",
    "£": "GBP",
    "₹": "INR",
    "₽": "RUB",
    "₩": "KRW",
    "₺": "TRY",
    "₴": "UAH",
    "₫": "VND",
    "₪": "ILS",
    "฿": "THB",
    "zł": "PLN",
    "Kč": "CZK",
    "R$": "BRL",
    "US$": "USD",
    "A$": "AUD",
    "C$": "CAD",
    "CHF": "CHF",
}
# Choices of schemas under the names that schema.org and shops have for them.
_CHOICES = {
    "instock": "InStock",
    "available": "InStock",
    "limitedavailability": "InStock",
    "instoreonly": "InStock",
    "onlineonly": "InStock",
    "availablefororder": "InStock",
    "soldout": "OutOfStock",
    "oos": "OutOfStock",
    "unavailable": "OutOfStock",
    "presale": "PreOrder",
    "availableforpreorder": "PreOrder",
    "madetoorder": "BackOrder",
    "telecommute": "REMOTE",
    "contract": "CONTRACTOR",
    "perdiem": "OTHER",
}


def number(text: str, *, plain: bool = False) -> float | None:
    """The one number in a text; 1.299,50, 1,299.50, 1,00,000, 12€99 and ",89" alike.

    A single mark before three digits may be either mark: None, but for `plain` texts, in which a
    point is the decimal point, as schema.org asks of prices.
    """
    text = unicodedata.normalize("NFKC", text) if not text.isascii() else text
    found = _NUMBER.findall(_COIN_BETWEEN.sub(r"\1.\2", text))
    if len(found) != 1:
        return None
    run = _SPACES.sub("", found[0]).rstrip(".,")
    marks = [char for char in run if char in ".,"]
    if not marks:
        return float(run)
    last = marks[-1]
    whole, _, part = run.rpartition(last)
    if len(set(marks)) == 2:
        other = "," if last == "." else "."
        if whole.count(last) or not _are_thousands(whole.split(other)):
            return None
        return float(f"{whole.replace(other, '')}.{part}")
    if len(marks) > 1:
        return float(run.replace(last, "")) if _are_thousands(run.split(last)) else None
    if not whole:
        return float(f"0.{part}")
    if len(part) == 3 and whole.lstrip("-") != "0" and not (plain and last == "."):
        return None
    return float(f"{whole}.{part}")


def _are_thousands(groups: list[str]) -> bool:
    """Whether digits stand in groups of three, or of two before the last three as in India."""
    *inner, last = groups[1:]
    return len(last) == 3 and (
        all(len(group) == 3 for group in inner)
        or (len(groups[0]) < 3 and all(len(group) == 2 for group in inner))
    )


def day(text: str) -> str | None:
    """The day of a date or a moment as YYYY-MM-DD; in its own time zone, None for 3/4/2021."""
    text = text.strip()
    for pattern in (_ISO_DATE, _BARE_DATE, _SLASHED_DATE):
        if found := pattern.match(text):
            return written_days.iso(int(found[1]), int(found[2]), int(found[3]))
    if text.isascii() and text.isdigit() and len(text) in (10, 13):
        seconds = int(text) / (1000 if len(text) == 13 else 1)
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except (ValueError, TypeError, IndexError):
        pass
    written = {each.day for each in written_days.find(text)}
    return written.pop() if len(written) == 1 else None


def minutes(text: str) -> int | None:
    """The minutes of an ISO 8601 duration, of "1 h 15 min", or of a bare number."""
    text = text.strip()
    if found := _DURATION.fullmatch(text):
        weeks, days, hours, mins, seconds = (float(part or 0) for part in found.groups())
        total = weeks * 10080 + days * 1440 + hours * 60 + mins + seconds / 60
        return round(total) if any(found.groups()) else None
    if found := _WORDED_DURATION.fullmatch(text):
        days, hours, mins = (int(part or 0) for part in found.groups())
        return round(days * 1440 + hours * 60 + mins) if any(found.groups()) else None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def currency(text: str) -> str | None:
    """The ISO 4217 code, also of symbols that stand for one currency."""
    text = text.strip()
    if len(text) == 3 and text.isascii() and text.isalpha():
        return text.upper()
    return _SYMBOLS.get(text)


def choice(text: str, choices: list[object]) -> str | None:
    """The choice that a text means: "http://schema.org/InStock", "in stock", "Full-time"."""
    bare = _bare(text.strip().rstrip("/").rpartition("/")[2])
    named = {_bare(each): each for each in choices if isinstance(each, str)}
    meant = named.get(bare)
    if meant is None and bare in _CHOICES:
        meant = named.get(_bare(_CHOICES[bare]))
    return meant


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()
