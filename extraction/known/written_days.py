"""Days as people write them: 4 March 2021, March 4th, 2021, 4. März 2021, 4.3.2021, 2021-03-04."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

# A line a month: English, German, French, Spanish, Italian, Dutch, Portuguese, Polish, Russian, and
# short forms.
_NAMES = """
january januar janvier enero gennaio januari janeiro stycznia января jan janv ene gen
february februar février febrero febbraio februari fevereiro lutego февраля feb fév févr
march märz mars marzo maart março marca марта mar mär mrz
april avril abril aprile kwietnia апреля apr avr abr
may mai mayo maggio mei maio maja мая mag
june juni juin junio giugno junho czerwca июня jun giu
july juli juillet julio luglio julho lipca июля jul juil lug
august août agosto augustus sierpnia августа aug ago
september septembre septiembre settembre setembro września сентября sep sept set
october oktober octobre octubre ottobre outubro października октября oct okt ott out
november novembre noviembre novembro listopada ноября nov
december dezember décembre diciembre dicembre dezembro grudnia декабря dec dez déc dic
"""
_MONTHS = {
    name: month
    for month, line in enumerate(_NAMES.strip().split("\n"), start=1)
    for name in line.split()
}
_NAME = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_FORMS = (
    rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.|º)?\s*(?:de |of )?(?P<m>{_NAME})"
    rf"\.?,?\s*(?:de |del )?(?P<y>{_YEAR})",
    rf"(?P<m>{_NAME})\.?\s*(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>{_YEAR})",
    rf"(?P<y>{_YEAR})-(?P<m>\d\d)-(?P<d>\d\d)",
    # With points the day comes first wherever this is written.
    rf"(?P<d>\d{{1,2}})\.\s?(?P<m>\d{{1,2}})\.\s?(?P<y>{_YEAR})",
)
_PATTERNS = tuple(re.compile(rf"\b{form}(?!\d)", re.IGNORECASE) for form in _FORMS)
_MAX_LINE = 90  # a day on a longer line is part of a story
_NEAR_HEADING = 400  # characters


class WrittenDay(NamedTuple):
    """A day as YYYY-MM-DD, and where it stands in the text."""

    day: str
    start: int
    end: int


def iso(year: int, month: int, of_month: int) -> str | None:
    """The day as YYYY-MM-DD; None when there is no such day."""
    try:
        return date(year, month, of_month).isoformat()
    except ValueError:
        return None


def find(text: str) -> Iterator[WrittenDay]:
    """The days written in a text, in no order; what can be read in two ways is none."""
    for pattern in _PATTERNS:
        for found in pattern.finditer(text):
            name = found["m"]
            month = int(name) if name.isdigit() else _MONTHS[name.lower()]
            if day := iso(int(found["y"]), month, int(found["d"])):
                yield WrittenDay(day, *found.span())


def of_article(text: str) -> WrittenDay | None:
    """The first day on a line of few words below the main heading, else the only day of a page."""
    days = sorted((each for each in find(text) if _line(text, each) <= _MAX_LINE), key=_start)
    heading = text.find("\n# ") + 1
    below = [each for each in days if heading <= each.start <= heading + _NEAR_HEADING]
    if below:
        return below[0]
    return days[0] if len({each.day for each in days}) == 1 else None


def _start(each: WrittenDay) -> int:
    return each.start


def _line(text: str, each: WrittenDay) -> int:
    end = text.find("\n", each.end)
    return (end if end >= 0 else len(text)) - text.rfind("\n", 0, each.start) - 1
