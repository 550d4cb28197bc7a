"""Known values of a page for a schema: what metadata says, as values that the schema allows.

The rules, in the order in which they drop a value:

1. The thing asked about is the only one of its type, or the only one whose name is a heading or
   the title of the page; else nothing of it is known (`things.subject`).
2. Sources are asked by preference; the first that says anything readable answers.
3. A value is brought into the form that the field's schema asks for (`normalise`). What can't
   be read, or in two ways, is dropped, and so is what the schema doesn't allow.
4. Several different numbers for one field: the first that stands in the visible text.
5. A price that isn't in the visible text where amounts are is out of date: the text wins.
   The same for a product in stock on a page that says sold out and has nothing to buy with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..grounding import Searchable
from ..null_words import is_null_word
from ..page import Page
from ..page.metadata import clean_text
from . import cues, normalise, written_days
from .sources import KnownSource
from .things import Stated, level, subject, values_at
from .values import Known, KnownValue, Place

_MAIN_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_DOUBLED = re.compile(r"\(\(([^()]*)\)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_URL_DAY = re.compile(r"/\d{4}/\d{1,2}/\d{1,2}/|/\d{4}-\d{2}-\d{2}(?=[/-]|$)")
_LONG_TEXT = 200  # a text that may be longer is prose, and may be cut


class _Dropped(Exception):
    """Why a field's metadata is no known value."""


def find(page: Page, sources: Sequence[KnownSource]) -> Known:
    """Return what the page's metadata answers of the fields in `sources`."""
    known = Known()
    reader = _Reader(page)
    for source in sources:
        try:
            value = reader.read(source)
        except _Dropped as reason:
            known.dropped[source.pointer] = str(reason)
            continue
        if value is None:
            continue
        if errors := source.validator.errors(value.value):
            known.dropped[source.pointer] = f"the schema doesn't allow it: {errors[0]}"
        else:
            known.values[source.pointer] = value
    return known


class _Reader:
    """Reads fields from one page's metadata."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._things = page.metadata.things
        headings = [level(found[1]) for found in _HEADING.finditer(page.text)]
        self._headings = frozenset(headings)
        title = page.title
        parts = re.split(r"\s+[|–—·:»-]\s+", title)
        self._names = self._headings | {level(title)} | {level(part) for part in parts}
        self._subjects: dict[str, tuple[str, dict[str, Any]] | None] = {}
        self._text: Searchable | None = None

    def read(self, source: KnownSource) -> KnownValue | None:
        dropped: _Dropped | None = None
        for stated in self._stated(source):
            try:
                if stated and (value := self._value(source, stated)) is not None:
                    return value
            except _Dropped as reason:
                dropped = dropped or reason
        seen = self._seen(source)
        if seen is None and dropped is not None:
            raise dropped
        return seen

    def _seen(self, source: KnownSource) -> KnownValue | None:
        """What the visible text itself says plainly: a code under its label, words of shops."""
        text = self._page.text
        found: tuple[Any, int, int] | None = None
        if source.labels and source.pointer.endswith("price"):
            found = cues.labelled_amount(text, source.labels)
        elif source.labels:
            found = cues.labelled(text, source.labels)
        if found is None and {"InStock", "OutOfStock"} <= set(source.schema.get("enum", ())):
            found = cues.availability(text)
        if found is None and source.heading:
            found = self._main_heading()
        if found is None and source.days:
            found = written_days.of_article(text)
        if found is None:
            return None
        value, start, end = found
        exact = text[start:end] == value
        return KnownValue(value, (Place(source.pointer, "", start, end, exact),))

    def _stated(self, source: KnownSource) -> Iterable[list[Stated]]:
        for kind, *parts in source.paths:
            if kind not in self._subjects:
                self._subjects[kind] = subject(self._things, kind, self._names)
            found = self._subjects[kind]
            if found is not None:
                path, thing = found
                yield list(values_at(thing, tuple(parts), path, self._things))
        for tag in source.tags:
            if tag == "url":
                if found_day := _URL_DAY.search(self._page.url or ""):
                    yield [Stated(found_day[0].strip("/"), "url")]
                continue
            content = self._page.metadata.tags.get(tag)
            # Titles of tags carry the site's name, unless they are the page's heading.
            if content and (not tag.endswith("title") or level(content) in self._headings):
                yield [Stated(content, f"meta/{tag}")]

    def _value(self, source: KnownSource, stated: list[Stated]) -> KnownValue | None:
        schema = source.schema
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds or []
        if "array" in kinds:
            return _texts(source.pointer, stated, schema)
        if "enum" in schema:
            return self._choice(source.pointer, stated, schema["enum"])
        if "number" in kinds or "integer" in kinds:
            return self._number(source, stated, whole="number" not in kinds)
        if "string" in kinds:
            return self._string(source.pointer, stated, schema)
        raise _Dropped("no value of the field's type is made from metadata")

    def _main_heading(self) -> tuple[str, int, int] | None:
        """The first main heading that the page's title repeats."""
        title = level(self._page.title)
        for found in _MAIN_HEADING.finditer(self._page.text):
            name = level(found[1])
            if name and name in title:
                return (found[1], *found.span(1))
        return None

    def _choice(self, pointer: str, stated: list[Stated], choices: list[Any]) -> KnownValue:
        read = [(normalise.choice(text, choices), text, path) for text, path in stated]
        meant = {value for value, _, _ in read if value is not None}
        if len(meant) > 1 and "InStock" in meant:
            meant = {"InStock"}  # one of the offers can be bought
        if len(meant) != 1:
            raise _Dropped("it says none of the choices" if not meant else "it says several")
        value = meant.pop()
        seen = cues.availability(self._page.text) if value == "InStock" else None
        if seen is not None and seen[0] == "OutOfStock":
            raise _Dropped("the page says that it is sold out")
        text, path = next((text, path) for each, text, path in read if each == value)
        return KnownValue(value, (Place(pointer, path, 0, len(clean_text(text)), text == value),))

    def _number(self, source: KnownSource, stated: list[Stated], *, whole: bool) -> KnownValue:
        in_minutes = source.pointer.endswith("_minutes")
        read: dict[float, Stated] = {}
        for each in stated:
            value = (
                normalise.minutes(each.text)
                if in_minutes
                else normalise.number(each.text, plain=True)
            )
            if value is not None:
                read.setdefault(value, each)
        if not read:
            raise _Dropped("it can't be read as one number")
        is_price = source.pointer.endswith("price")
        chosen = next(iter(read))
        if len(read) > 1 or is_price:
            seen = [value for value in read if value and self._searchable().places(value)]
            if seen:
                chosen = seen[0]
            elif len(read) > 1:
                raise _Dropped("it says several numbers")
            elif cues.AMOUNT.search(self._page.text):
                raise _Dropped("the page shows other amounts")
        if is_price and not chosen:
            raise _Dropped("a price of 0 says that there is none")
        text, path = read[chosen]
        value = int(chosen) if whole or chosen == int(chosen) else chosen
        exact = text == json.dumps(value)
        return KnownValue(value, (Place(source.pointer, path, 0, len(clean_text(text)), exact),))

    def _string(
        self, pointer: str, stated: list[Stated], schema: Mapping[str, Any]
    ) -> KnownValue | None:
        pattern, longest = schema.get("pattern"), schema.get("maxLength")
        for raw, path in stated:
            text = clean_text(raw)
            if not text or is_null_word(text):
                continue
            if schema.get("format") == "date":
                text = normalise.day(text) or ""
            elif pattern == "^[A-Z]{3}$":
                text = normalise.currency(text) or ""
            elif pattern == "^[a-z]{2}$":
                text = text[:2].lower() if re.fullmatch(r"[A-Za-z]{2}(?:[-_]\w+)*", text) else ""
            elif pattern and text.isascii() and "[0-9]" in pattern and "a-z" not in pattern:
                text = re.sub(r"[\s-]+", "", text)
            if not text:
                raise _Dropped("it can't be read as the schema asks")
            if longest and len(text) > longest:
                if longest < _LONG_TEXT:
                    raise _Dropped("it is longer than the schema allows")
                text = _cut(text, longest)
            return KnownValue(text, (_place(pointer, path, raw, text),))
        return None

    def _searchable(self) -> Searchable:
        if self._text is None:
            self._text = Searchable(self._page.text)
        return self._text


def _texts(pointer: str, stated: list[Stated], schema: Mapping[str, Any]) -> KnownValue | None:
    """A list of texts; one text with commas where keywords are asked for is several."""
    items = schema.get("items")
    if not isinstance(items, Mapping) or items.get("type") != "string":
        raise _Dropped("no list of such items is made from metadata")
    longest = items.get("maxLength")
    values: list[str] = []
    places: list[Place] = []
    for raw, path in stated:
        # A widespread recipe plugin writes notes as ((note)).
        texts = [_DOUBLED.sub(r"(\1)", clean_text(raw))]
        if len(stated) == 1 and longest and longest <= 60 and "," in raw:
            texts = [part.strip() for part in texts[0].split(",")]
        elif len(stated) == 1 and "\n" in raw.strip():
            texts = [clean_text(line) for line in raw.split("\n")]
        for text in texts:
            if not text or is_null_word(text):
                continue
            places.append(_place(f"{pointer}/{len(values)}", path, raw, text))
            values.append(text)
    most = schema.get("maxItems")
    if most and len(values) > most:
        values, places = values[:most], places[:most]
    return KnownValue(values, tuple(places)) if values else None


def _place(pointer: str, path: str, raw: str, text: str) -> Place:
    """Where a text stands in the metadata's; all of it where the spelling differs."""
    raw = clean_text(raw)
    start = raw.find(text)
    if start < 0:
        return Place(pointer, path, 0, len(raw), False)
    return Place(pointer, path, start, start + len(text), True)


def _cut(text: str, longest: int) -> str:
    """The sentences that fit, or failing these the words."""
    head = text[: longest + 1]
    for end in (". ", "! ", "? "):
        if (at := head.rfind(end)) > longest // 2:
            return head[: at + 1]
    return head[:longest].rpartition(" ")[0] or head[:longest]
