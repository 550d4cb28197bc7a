"""A schema proposed from example records, in the form that extracts well.

Every field is required, and all but the first may be null; strings and arrays have bounds well
above what the examples show. What only a human knows, the descriptions, is left to be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import SchemaReason, SchemaRefused

MAX_RECORDS = 10_000
MAX_DEPTH = 12
MAX_PROPERTIES = 200

_LENGTHS = (20, 40, 80, 120, 200, 400, 1000, 2000, 5000)
_COUNTS = (5, 10, 20, 50, 100, 200, 500, 1000)
_FORMATS = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"),
    "uri": re.compile(r"https?://[\x21-\x7e]+"),
    "email": re.compile(r"[^@\s]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+"),
}
# A choice: few different words, each seen several times.
_MAX_CHOICES, _MAX_CHOICE_CHARS, _TIMES_SEEN = 8, 40, 3


def infer(records: Iterable[Any]) -> dict[str, Any]:
    """Return a JSON Schema that all of `records` obey but for null where they have no value.

    Raises SchemaRefused for no records, too many, or too large ones.
    """
    seen = _Seen()
    count = 0
    for record in records:
        count += 1
        if count > MAX_RECORDS:
            raise _refused(f"over {MAX_RECORDS} records: a sample of them is enough")
        seen.add(record, 0)
    if count == 0:
        raise _refused("no example record: give some, the more unlike the better")
    return seen.schema(nullable=False)


class _Seen:
    """What the values of one place have been."""

    def __init__(self) -> None:
        self.nulls = 0
        self.booleans = 0
        self.integers = self.fractions = 0
        self.lowest = 0.0
        self.strings = 0
        self.longest = 0
        self.formats = set(_FORMATS)
        self.choices: dict[str, None] | None = {}
        self.arrays = 0
        self.most_items = 0
        self.items: _Seen | None = None
        self.objects = 0
        self.properties: dict[str, _Seen] = {}

    def add(self, value: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _refused(f"a record nests deeper than {MAX_DEPTH}")
        if value is None or value == "":
            self.nulls += 1
        elif isinstance(value, bool):
            self.booleans += 1
        elif isinstance(value, int | float):
            self.integers += isinstance(value, int)
            self.fractions += isinstance(value, float)
            self.lowest = min(self.lowest, value)
        elif isinstance(value, str):
            self._add_string(value)
        elif isinstance(value, list):
            self.arrays += 1
            self.most_items = max(self.most_items, len(value))
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item, depth + 1)
        elif isinstance(value, Mapping):
            self.objects += 1
            for name, inner in value.items():
                self.properties.setdefault(name, _Seen()).add(inner, depth + 1)
            if len(self.properties) > MAX_PROPERTIES:
                raise _refused(f"over {MAX_PROPERTIES} different fields in one object")
        else:
            raise _refused(f"{type(value).__name__} is no JSON value")

    def _add_string(self, value: str) -> None:
        self.strings += 1
        self.longest = max(self.longest, len(value))
        self.formats = {name for name in self.formats if _FORMATS[name].fullmatch(value)}
        if self.choices is not None:
            self.choices[value] = None
            if len(self.choices) > _MAX_CHOICES or len(value) > _MAX_CHOICE_CHARS:
                self.choices = None

    def schema(self, *, nullable: bool) -> dict[str, Any]:
        """The schema of the place; `nullable` allows null whether it was seen or not."""
        kinds: list[dict[str, Any]] = []
        if self.objects:
            kinds.append(self._object())
        if self.arrays:
            kinds.append(self._array())
        if self.strings:
            kinds.append(self._string())
        if self.integers or self.fractions:
            number: dict[str, Any] = {"type": "number" if self.fractions else "integer"}
            kinds.append(number | ({"minimum": 0} if self.lowest >= 0 else {}))
        if self.booleans:
            kinds.append({"type": "boolean"})
        if not kinds:
            return {"type": ["string", "null"], "maxLength": 200}  # never seen: a guess
        if len(kinds) > 1:
            return {"anyOf": kinds + ([{"type": "null"}] if nullable or self.nulls else [])}
        # Of a list, [] says that there is nothing.
        return _with_null(kinds[0]) if self.nulls or (nullable and not self.arrays) else kinds[0]

    def _object(self) -> dict[str, Any]:
        properties = {
            name: seen.schema(nullable=i > 0 or seen._times() < self.objects)
            for i, (name, seen) in enumerate(self.properties.items())
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _times(self) -> int:
        numbers = self.integers + self.fractions
        return self.nulls + self.booleans + numbers + self.strings + self.arrays + self.objects

    def _array(self) -> dict[str, Any]:
        items = (self.items or _Seen()).schema(nullable=False)
        if self.most_items == 0:
            items = {"type": "string", "maxLength": 200}
        return {"type": "array", "items": items, "maxItems": _above(_COUNTS, 2 * self.most_items)}

    def _string(self) -> dict[str, Any]:
        for name in _FORMATS:
            if name in self.formats:
                return {"type": "string", "format": name}
        if self.choices and self.strings >= _TIMES_SEEN * len(self.choices):
            return {"enum": list(self.choices)}
        longest = _above(_LENGTHS, self.longest + self.longest // 2)
        return {"type": "string", "minLength": 1, "maxLength": longest}


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return schema | {"type": [schema["type"], "null"]}


def _above(steps: tuple[int, ...], wanted: int) -> int:
    return next((step for step in steps if step >= wanted), max(wanted, steps[-1]))


def _refused(message: str) -> SchemaRefused:
    return SchemaRefused(SchemaReason.SCHEMA_INVALID, message)
