"""Where on the page the values of a record stand.

Strings and numbers are looked up in the visible text, then in the metadata. Offsets are
half-open, in code points. A value that stands nowhere has no evidence: it was inferred, or made
up.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pagemill.schemas.walk import escape

from .page import MetadataEntry
from .record import Evidence

_MAX_VALUES = 1000
_MAX_PLACES = 24
_MAX_VALUE_CHARS = 20_000
# A short value inside of a longer word is chance.
_MIN_INSIDE_WORD = 5

_NUMBER = re.compile(r"\d(?:[\d.,'’ \u202f]{0,20}\d)?")
_TYPOGRAPHY = str.maketrans(
    {
        "\n": " ",
        "‘": "'",
        "’": "'",
        "‚": "'",
        "“": '"',
        "”": '"',
        "„": '"',
        "«": '"',
        "»": '"',
        "‐": "-",
        "‑": "-",
        "‒": "-",
        "–": "-",
        "—": "-",
        "−": "-",
        "…": "...",
    }
)


@dataclass(frozen=True)
class _Place:
    start: int
    end: int
    exact: bool


def locate(
    record: Any,
    page_text: str,
    metadata: Sequence[MetadataEntry] = (),
    *,
    known: Collection[str] = (),
    verbatim: frozenset[str] = frozenset(),
) -> list[Evidence]:
    """Return the evidence for the strings and numbers of `record`, in document order.

    What stands at or below the JSON pointers `known` is passed by.

    Of several places the one nearest to the neighbouring values' is taken: the chain of places
    with the least sum of distances. Values at the pointers `verbatim` are spans of the page, and
    nothing that is only like them counts. Empty strings, booleans and null have no evidence.
    """
    text = Searchable(page_text)
    leaves = [leaf for leaf in _leaves(record) if not _is_below(leaf[0], known)]
    found = [(pointer, value, text.places(value, pointer in verbatim)) for pointer, value in leaves]
    chosen = _nearest_chain([places for _, _, places in found])
    entries = [(entry, Searchable(entry.value)) for entry in metadata]
    evidence: list[Evidence] = []
    for (pointer, value, places), place in zip(found, chosen, strict=True):
        if place is not None:
            evidence.append(
                Evidence(
                    pointer=pointer,
                    start=place.start,
                    end=place.end,
                    exact=place.exact,
                    ambiguous=len(places) > 1,
                )
            )
        elif (told := _in_metadata(pointer, value, entries)) is not None:
            evidence.append(told)
    return evidence


def _is_below(pointer: str, known: Collection[str]) -> bool:
    return any(pointer == above or pointer.startswith(f"{above}/") for above in known)


def _leaves(record: Any) -> Iterator[tuple[str, str | int | float]]:
    """(JSON pointer, value) of each string and number, in document order."""
    waiting: list[tuple[str, Any]] = [("", record)]
    count = 0
    while waiting and count < _MAX_VALUES:
        pointer, value = waiting.pop()
        if isinstance(value, dict):
            inner = [(f"{pointer}/{escape(key)}", item) for key, item in value.items()]
            waiting.extend(reversed(inner))
        elif isinstance(value, list):
            waiting.extend(reversed([(f"{pointer}/{i}", item) for i, item in enumerate(value)]))
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            count += 1
            yield pointer, value


def _in_metadata(
    pointer: str, value: str | int | float, entries: Sequence[tuple[MetadataEntry, Searchable]]
) -> Evidence | None:
    best: tuple[MetadataEntry, _Place] | None = None
    for entry, text in entries:
        places = text.places(value)
        if places and (best is None or (places[0].exact and not best[1].exact)):
            best = entry, places[0]
    if best is None:
        return None
    entry, place = best
    return Evidence(
        pointer=pointer,
        source="metadata",
        path=entry.path,
        start=place.start,
        end=place.end,
        exact=place.exact,
    )


class Searchable:
    """A text in which values are looked up: as it is, levelled, and by its numbers."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._level: tuple[str, list[int] | None] | None = None
        self._numbers: dict[float, list[_Place]] | None = None

    def places(self, value: str | int | float, verbatim: bool = False) -> list[_Place]:
        """Return where `value` stands, whole words first; the first few places only."""
        if not isinstance(value, str):
            return self._number_places(value)
        if verbatim:
            spans = _occurrences(self._text, value, inside_from=1)
            return [_Place(start, end, True) for start, end in spans]
        if not value.strip() or len(value) > _MAX_VALUE_CHARS:
            return []
        return self._exact(value) or self._levelled(value)

    def _exact(self, value: str) -> list[_Place]:
        spans = _occurrences(self._text, value)
        return [_Place(start, end, True) for start, end in spans]

    def _levelled(self, value: str) -> list[_Place]:
        if self._level is None:
            self._level = _level(self._text)
        level, origin = self._level
        wanted = " ".join(_level(value)[0].split())
        if not wanted:
            return []
        places = []
        for start, end in _occurrences(level, wanted):
            low = start if origin is None else origin[start]
            high = end if origin is None else origin[end - 1] + 1
            places.append(_Place(low, high, self._text[low:high] == value))
        return places

    def _number_places(self, value: int | float) -> list[_Place]:
        if self._numbers is None:
            self._numbers = {}
            for found in _NUMBER.finditer(self._text):
                for number, start, end in _readings(found):
                    places = self._numbers.setdefault(number, [])
                    if len(places) < _MAX_PLACES:
                        places.append(_Place(start, end, False))
        written = json.dumps(value)
        return [
            _Place(place.start, place.end, self._text[place.start : place.end] == written)
            for place in self._numbers.get(abs(float(value)), [])
        ]


def _occurrences(
    text: str, value: str, inside_from: int = _MIN_INSIDE_WORD
) -> list[tuple[int, int]]:
    """Spans of `value` in `text`: those at word borders, or failing these, any."""
    bordered: list[tuple[int, int]] = []
    inside: list[tuple[int, int]] = []
    start = text.find(value)
    while start >= 0 and len(bordered) < _MAX_PLACES and len(inside) < 10 * _MAX_PLACES:
        end = start + len(value)
        at_border = not (start and _glued(text[start - 1], text[start])) and not (
            end < len(text) and _glued(text[end - 1], text[end])
        )
        (bordered if at_border else inside).append((start, end))
        start = text.find(value, start + 1)
    if bordered:
        return bordered
    return inside[:_MAX_PLACES] if len(value) >= inside_from else []


def _glued(left: str, right: str) -> bool:
    """Whether two characters belong to one word (scripts without spaces have no such words)."""
    return left.isalnum() and right.isalnum() and left < "\u2e80" and right < "\u2e80"


def _level(text: str) -> tuple[str, list[int] | None]:
    """Return the text without differences of case, width, accents' form, quotes and white space.

    With it goes the origin of each character, None when it is the same position.
    """
    if text.isascii():
        return text.replace("\n", " ").lower(), None
    out: list[str] = []
    origin: list[int] = []
    for i, char in enumerate(text):
        folded = _fold(char)
        out.append(folded)
        origin.extend([i] * len(folded))
    return "".join(out), origin


@lru_cache(maxsize=8192)
def _fold(char: str) -> str:
    plain = char.translate(_TYPOGRAPHY)
    folded = unicodedata.normalize("NFKD", plain.casefold())
    return " " if folded.isspace() else folded


def _readings(found: re.Match[str]) -> Iterator[tuple[float, int, int]]:
    """The numbers that a run of digits and separators may mean, each with its span.

    "1.299,50" is 1299.5 and nothing else; "1.299" may be 1299 or 1.299. A run with spaces may
    also be several numbers.
    """
    whole, start, end = found[0], found.start(), found.end()
    runs = [(whole, start, end)]
    if any(char in whole for char in "  \u202f"):
        at = start
        for part in re.split(r"[  \u202f]", whole):
            runs.append((part, at, at + len(part)))
            at += len(part) + 1
    for run, low, high in runs:
        for number in _values(run):
            yield number, low, high


@lru_cache(maxsize=4096)
def _values(run: str) -> tuple[float, ...]:
    bare = re.sub(r"[  \u202f'’]", "", run).strip(".,")
    if not bare or len(bare) > 24:
        return ()
    values: list[float] = []
    last = max(bare.rfind("."), bare.rfind(","))
    digits = re.sub(r"[.,]", "", bare)
    if last < 0:
        values.append(float(digits))
    else:
        separators = {char for char in bare if char in ".,"}
        tail = bare[last + 1 :]
        head = re.sub(r"[.,]", "", bare[:last])
        if len(separators) == 2 or bare.count(bare[last]) == 1:
            values.append(float(f"{head or '0'}.{tail}"))
        if len(separators) == 1 and len(tail) == 3:
            values.append(float(digits))
    return tuple(values)


def _nearest_chain(candidates: Sequence[Sequence[_Place]]) -> list[_Place | None]:
    """Choose a place for each value so that neighbours lie close (Viterbi over places)."""
    chosen: list[_Place | None] = [None] * len(candidates)
    layers = [i for i, places in enumerate(candidates) if places]
    costs: list[list[tuple[int, int]]] = []  # (cost so far, index in the layer before)
    for number, layer in enumerate(layers):
        row: list[tuple[int, int]] = []
        for place in candidates[layer]:
            if number == 0:
                row.append((0, -1))
                continue
            before = candidates[layers[number - 1]]
            row.append(
                min((costs[-1][j][0] + _distance(before[j], place), j) for j in range(len(before)))
            )
        costs.append(row)
    at = -1
    for number in range(len(layers) - 1, -1, -1):
        if at < 0:
            at = min(range(len(costs[number])), key=lambda k: costs[number][k])
        chosen[layers[number]] = candidates[layers[number]][at]
        at = costs[number][at][1]
    return chosen


def _distance(left: _Place, right: _Place) -> int:
    if left.start <= right.start:
        return max(0, right.start - left.end)
    return max(0, left.start - right.end)
