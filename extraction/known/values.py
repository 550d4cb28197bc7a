"""Known values: what they are, where they stand, and how they get into a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagemill.schemas.walk import escape

from ..record import Evidence


@dataclass(frozen=True)
class Place:
    """Where a scalar at `pointer` of the record stands: offsets in the value at `path`.

    `path` names a value of the metadata, "" the visible text; `exact`: it stands there as it is.
    """

    pointer: str
    path: str
    start: int
    end: int
    exact: bool


@dataclass(frozen=True)
class KnownValue:
    """A value of a field, and the places of its scalars."""

    value: Any
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Known:
    """Known values by JSON pointer, and why others that metadata speaks of were dropped."""

    values: dict[str, KnownValue] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def fields(self) -> frozenset[str]:
        """The fields' names, as the prompt has them ("outer.inner")."""
        return frozenset(
            ".".join(_unescape(part) for part in pointer[1:].split("/")) for pointer in self.values
        )

    def evidence(self) -> list[Evidence]:
        """The evidence of all strings and numbers among the known values."""
        return [
            Evidence(
                pointer=place.pointer,
                source="metadata" if place.path else "text",
                path=place.path,
                start=place.start,
                end=place.end,
                exact=place.exact,
            )
            for known in self.values.values()
            for place in known.places
        ]

    def whole_record(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record, when each property of the schema is known; else None."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return None
        record: dict[str, Any] = {}
        for name in properties:
            known = self.values.get(f"/{escape(name)}")
            if known is None:
                return None
            record[name] = known.value
        return record


def put(record: Any, known: Known) -> Any:
    """A copy of a record with the known values in the place of the model's.

    Only members that the record has are replaced: a field that the model left out stays out.
    """
    for pointer, value in known.values.items():
        record = _replaced(
            record, [_unescape(part) for part in pointer[1:].split("/")], value.value
        )
    return record


def _replaced(record: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    if not isinstance(record, dict) or path[0] not in record:
        return record
    return {**record, path[0]: _replaced(record[path[0]], path[1:], value)}


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
