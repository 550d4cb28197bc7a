"""Results as NDJSON, CSV or Parquet.

A table has a column for each of the schema's top-level fields. Texts, numbers and such stand in it
as they are, lists and objects as JSON (Parquet has lists of texts as lists); what has no column
(pages may name a schema of their own) or doesn't fit its column's type stands as JSON in the last
one, so that nothing is lost.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from ..reason import Reason, Refused
from ..record import Result
from .output import Format

_FIXED = ("id", "url", "status", "reason", "message", "schema")
_OTHER = "other"
_ROWS_AT_ONCE = 1000
_INT64 = range(-(2**63), 2**63)
_PLAIN = ("string", "boolean", "integer", "number")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class ResultWriter(Protocol):
    """Takes results one at a time; Refused(INPUT_INVALID) when they can't be written."""

    def write(self, result: Result) -> None: ...

    def close(self) -> None:
        """Write what is held back. The sink stays open."""


def make_writer(kind: Format, sink: BinaryIO, schema: Mapping[str, Any]) -> ResultWriter:
    """A writer to `sink`; `schema` is the JSON Schema that gives a table its columns."""
    if kind is Format.NDJSON:
        return NdjsonWriter(sink)
    return CsvWriter(sink, schema) if kind is Format.CSV else ParquetWriter(sink, schema)


def _write(sink: BinaryIO, data: bytes) -> None:
    """Write and flush, so that whoever reads along has whole lines."""
    try:
        sink.write(data)
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(Reason.INPUT_INVALID, f"output: {error.strerror}") from None


class NdjsonWriter:
    """A line of JSON for each result, everything in it."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink

    def write(self, result: Result) -> None:
        _write(self._sink, result.to_json_line() + b"\n")

    def close(self) -> None:
        """Nothing is held back."""


def _columns(schema: Mapping[str, Any]) -> dict[str, str]:
    """The columns by field; a field that has the name of a fixed column gets a `_`."""
    properties = schema.get("properties")
    names = list(properties) if isinstance(properties, Mapping) else []
    taken = {*_FIXED, _OTHER, *names}
    columns = {}
    for name in names:
        column = name
        while column in (*_FIXED, _OTHER) or (column != name and column in taken):
            column += "_"
        taken.add(column)
        columns[name] = column
    return columns


def _fixed(result: Result) -> dict[str, str | None]:
    error = result.error
    return {
        "id": result.id,
        "url": result.url,
        "status": result.status,
        "reason": None if error is None else str(error.reason),
        "message": None if error is None else error.message,
        "schema": result.schema,
    }


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fields(record: Any) -> tuple[dict[str, Any], Any]:
    """A record's fields; one that isn't an object (a list of records) has no fields."""
    return (record, None) if isinstance(record, dict) else ({}, record)


class CsvWriter:
    """RFC 4180 with a header, in UTF-8. Null is an empty cell."""

    def __init__(self, sink: BinaryIO, schema: Mapping[str, Any]) -> None:
        self._sink = sink
        self._columns = _columns(schema)
        self._put([*_FIXED, *self._columns.values(), _OTHER])

    def write(self, result: Result) -> None:
        fields, whole = _fields(result.record)
        row: list[str | None] = list(_fixed(result).values())
        row += [_cell(fields.get(name)) for name in self._columns]
        other = {name: value for name, value in fields.items() if name not in self._columns}
        row.append(_as_json(other) if other else None if whole is None else _as_json(whole))
        self._put(row)

    def close(self) -> None:
        """Nothing is held back."""

    def _put(self, row: list[str | None]) -> None:
        text = io.StringIO()
        csv.writer(text).writerow(row)
        _write(self._sink, text.getvalue().encode("utf-8", "replace"))


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _as_json(value)


class ParquetWriter:
    """A table with typed columns; needs pyarrow (the extra `parquet`).

    The file is whole once `close` has been called. Rows are written a thousand at a time.
    """

    def __init__(self, sink: BinaryIO, schema: Mapping[str, Any]) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise Refused(
                Reason.INPUT_INVALID,
                "Parquet needs pyarrow",
                advice="pip install 'pagemill[parquet]'",
            ) from None
        self._arrow = pyarrow
        self._columns = _columns(schema)
        self._kinds = {name: _kind(schema["properties"][name]) for name in self._columns}
        text = pyarrow.string()
        types = {
            "string": text,
            "integer": pyarrow.int64(),
            "number": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
            "strings": pyarrow.list_(text),
            "json": text,
        }
        columns = [(name, text) for name in _FIXED]
        columns += [(self._columns[name], types[kind]) for name, kind in self._kinds.items()]
        self._schema = pyarrow.schema([*columns, (_OTHER, text)])
        self._writer = parquet.ParquetWriter(sink, self._schema)
        self._rows: list[dict[str, Any]] = []

    def write(self, result: Result) -> None:
        fields, whole = _fields(result.record)
        row: dict[str, Any] = dict(_fixed(result))
        other = {}
        for name, value in fields.items():
            kind = self._kinds.get(name)
            if kind is not None and (value is None or kind == "json" or _fits(value, kind)):
                is_json = kind == "json" and value is not None
                row[self._columns[name]] = _as_json(value) if is_json else value
            else:
                other[name] = value
        row[_OTHER] = _as_json(other) if other else None if whole is None else _as_json(whole)
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._put(self._writer.close)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            table = self._arrow.Table.from_pylist(rows, schema=self._schema)
            self._put(lambda: self._writer.write_table(table))

    @staticmethod
    def _put(write: Any) -> None:
        try:
            write()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Refused(Reason.INPUT_INVALID, f"output: {error}") from None


def _kind(field: Any) -> str:
    """A column's type for a field's schema: one of its plain types, else JSON as text."""
    kinds = _types(field) - {"null"}
    if kinds == {"array"} and _types(field.get("items")) == {"string"}:
        return "strings"
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 and kinds <= set(_PLAIN) else "json"


def _types(field: Any) -> set[str]:
    if not isinstance(field, Mapping):
        return {"any"}
    if isinstance(branches := field.get("anyOf") or field.get("oneOf"), list):
        return {kind for branch in branches for kind in _types(branch)}
    stated = field.get("type")
    if stated is None and isinstance(choices := field.get("enum"), list):
        return {_NAMES.get(type(choice), "any") for choice in choices}
    return set(stated) if isinstance(stated, list) else {str(stated)}


def _fits(value: Any, kind: str) -> bool:
    if kind == "strings":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind in ("string", "boolean"):
        return _NAMES.get(type(value)) == kind
    if kind == "integer":
        return type(value) is int and value in _INT64
    return type(value) is float or (type(value) is int and abs(value) <= 2**53)
