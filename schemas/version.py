"""One immutable version of a schema, and how it is stored."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import SchemaReason, SchemaRefused
from .load import canonical_json, content_hash


class SchemaVersion(msgspec.Struct, frozen=True):
    """One immutable version of a named schema."""

    name: str
    version: int
    hash: str  # Of the content (`content_hash`): the same for equal content of another name.
    schema: dict[str, Any]
    created_s: float  # Unix time; 0 where the library is read without a registry.
    source: str  # "library", "registered", or "inline": it came with a submission.

    @property
    def ref(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"


class _Record(msgspec.Struct):
    """A version as it is stored. The schema's bytes are its canonical JSON."""

    hash: str
    created_s: float
    source: str
    schema: msgspec.Raw


def encode_version(
    name: str, number: int, schema: dict[str, Any], created_s: float, source: str
) -> tuple[bytes, SchemaVersion]:
    """Return a version with its stored form, which says nothing of name and number."""
    digest = content_hash(schema)
    record = _Record(digest, created_s, source, msgspec.Raw(canonical_json(schema)))
    version = SchemaVersion(name, number, digest, schema, created_s, source)
    return msgspec.json.encode(record), version


def decode_version(name: str, number: int, record: bytes | str | None) -> SchemaVersion:
    """Return a stored version; SchemaRefused if it isn't what was stored."""
    try:
        read = msgspec.json.decode(record or b"", type=_Record)
        schema = msgspec.json.decode(read.schema, type=dict[str, Any])
    except msgspec.MsgspecError:
        schema = None
    if schema is None or content_hash(schema) != read.hash:
        raise SchemaRefused(
            SchemaReason.SCHEMA_INVALID,
            f"{name}@{number} is damaged in the store",
            advice="put the schema again",
        )
    return SchemaVersion(name, number, read.hash, schema, read.created_s, read.source)
