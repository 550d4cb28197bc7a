"""Schemas from the forms that callers have, checked before anything is built on them.

What `load` returns is plain JSON data, bounded in size and depth, valid against its metaschema,
with references only into itself.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator as JsonSchemaValidator

from .errors import SchemaReason, SchemaRefused
from .pattern import Pattern
from .walk import children, escape, resolve, subschemas

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 5_000
MAX_ENUM = 1_000
# Nodes after every `$ref` has been replaced by what it points to.
MAX_EXPANDED_NODES = 50_000

DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"


def load(source: object) -> dict[str, Any]:
    """The schema as a dict of the caller's own, in the source's key order.

    `source` is a dict, JSON text (str or bytes, UTF-8), a pydantic model class (dataclasses and
    TypedDicts serve too) or an `outlines.types.JsonSchema`. `$schema` may name draft 2020-12
    (the default) or draft 7.

    Raises SchemaRefused, with the JSON pointer of what is wrong.
    """
    schema = _copy(_as_json(source), "", 1, [0])
    if not isinstance(schema, dict):
        raise _invalid("a schema is a JSON object", advice='{"type": "object", ...}')
    if len(canonical_json(schema)) > MAX_BYTES:
        raise _too_large(f"the schema is larger than {MAX_BYTES} bytes")
    _check_metaschema(schema)
    _check_subschemas(schema)
    _check_expansion(schema)
    return schema


def canonical_json(schema: Mapping[str, Any]) -> bytes:
    """The schema as compact JSON in its own key order, which is the order of decoding."""
    try:
        return json.dumps(
            schema, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()
    except UnicodeEncodeError:
        raise _invalid("a string holds half of a surrogate pair") from None


def content_hash(schema: Mapping[str, Any]) -> str:
    """SHA-256 of `canonical_json`, in hexadecimal: the identity of a schema's content."""
    return hashlib.sha256(canonical_json(schema)).hexdigest()


def dialect(schema: Mapping[str, Any]) -> type[JsonSchemaValidator]:
    """jsonschema's validator class for the draft that `$schema` names. Raises SchemaRefused."""
    name = schema.get("$schema", DRAFT_2020_12)
    known = name.removesuffix("#").replace("https:", "http:") if isinstance(name, str) else ""
    if known == DRAFT_2020_12.replace("https:", "http:"):
        return Draft202012Validator
    if known == DRAFT_7:
        return Draft7Validator
    raise _invalid(f"unknown dialect {name!r:.100}", at="/$schema", advice=f"use {DRAFT_2020_12}")


class _Object(dict[str, Any]):
    """A JSON object as parsed, which remembers a key that came twice."""

    duplicate: str | None = None


def _as_json(source: object) -> object:
    if isinstance(source, str | bytes | bytearray | memoryview):
        return _parse(source if isinstance(source, str) else bytes(source))
    if isinstance(source, Mapping):
        return source
    # An instance of Outlines' class can only come from a process that has imported it.
    outlines = sys.modules.get("outlines.types")
    if outlines is not None and isinstance(source, outlines.JsonSchema):
        if source.whitespace_pattern:
            raise SchemaRefused(
                SchemaReason.KEYWORD_UNSUPPORTED,
                "whitespace_pattern is set",
                advice="leave it out: records are compact JSON",
            )
        return _parse(source.schema)
    if isinstance(source, type):
        return _from_type(source)
    raise _invalid(
        f"can't read a schema from {type(source).__name__}",
        advice="give a dict, JSON text, a pydantic model or outlines.types.JsonSchema",
    )


def _parse(text: str | bytes) -> object:
    if len(text) > MAX_BYTES:
        raise _too_large(f"the schema is larger than {MAX_BYTES} bytes")

    def collect(pairs: list[tuple[str, Any]]) -> _Object:
        collected = _Object(pairs)
        if len(collected) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            collected.duplicate = next(key for key, count in counts.items() if count > 1)
        return collected

    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
        parsed: object = json.loads(decoded, object_pairs_hook=collect)
    except RecursionError:
        raise _too_large(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # Syntax, UTF-8, numbers of thousands of digits.
        raise _invalid(f"not JSON: {error}") from None
    return parsed


def _from_type(source: type) -> object:
    # Only here: pydantic takes a while to import and most schemas don't come from it.
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(source).json_schema()
    except PydanticUserError as error:
        raise _invalid(f"pydantic has no JSON Schema for {source.__name__}: {error}") from None


def _copy(value: object, at: str, depth: int, nodes: list[int]) -> Any:
    """A plain copy of JSON data, refused at the first thing that isn't JSON or is too much."""
    nodes[0] += 1
    if nodes[0] > MAX_NODES:
        raise _too_large(f"more than {MAX_NODES} values", at=at)
    if depth > MAX_DEPTH:
        raise _too_large(f"nested deeper than {MAX_DEPTH} levels", at=at[:200])
    if isinstance(value, _Object) and value.duplicate is not None:
        raise _invalid(f"the key {value.duplicate!r:.100} comes twice", at=at)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise _invalid("an integer has more than 64 bits", at=at)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid("a number is not finite", at=at)
        return value
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _invalid(f"the key {key!r:.100} is not a string", at=at)
            copy[key] = _copy(item, f"{at}/{escape(key)}", depth + 1, nodes)
        return copy
    if isinstance(value, list | tuple):
        return [_copy(item, f"{at}/{i}", depth + 1, nodes) for i, item in enumerate(value)]
    raise _invalid(f"{type(value).__name__} is not JSON data", at=at)


def _check_metaschema(schema: dict[str, Any]) -> None:
    checker = _metaschema_checker(dialect(schema))
    error = best_match(checker.iter_errors(schema))
    if error is not None:
        at = "".join(f"/{escape(str(token))}" for token in error.absolute_path)
        raise _invalid(f"not a valid JSON Schema: {error.message:.300}", at=at)


@functools.cache
def _metaschema_checker(draft: type[JsonSchemaValidator]) -> JsonSchemaValidator:
    return draft(draft.META_SCHEMA)


def _check_subschemas(schema: dict[str, Any]) -> None:
    for at, subschema in subschemas(schema):
        if at and "$id" in subschema:
            raise SchemaRefused(
                SchemaReason.KEYWORD_UNSUPPORTED,
                "$id inside a schema",
                at=f"{at}/$id",
                advice="keep $id at the top and refer by JSON pointer",
            )
        if "$ref" in subschema:
            _check_ref(schema, subschema["$ref"], f"{at}/$ref")
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in subschema:
                raise SchemaRefused(
                    SchemaReason.KEYWORD_UNSUPPORTED,
                    keyword,
                    at=f"{at}/{keyword}",
                    advice="use $ref",
                )
        if len(subschema.get("enum", ())) > MAX_ENUM:
            raise _too_large(f"more than {MAX_ENUM} values", at=f"{at}/enum")
        if "pattern" in subschema:
            _check_pattern(subschema["pattern"], f"{at}/pattern")
        for expression in subschema.get("patternProperties", ()):
            _check_pattern(expression, f"{at}/patternProperties/{escape(expression)}")


def _check_pattern(expression: str, at: str) -> None:
    try:
        Pattern(expression)
    except ValueError as error:
        raise SchemaRefused(
            SchemaReason.KEYWORD_UNSUPPORTED,
            f"the pattern can't be used ({error})",
            at=at[:200],
            advice="use the regular part of ECMA-262: no look-around, no back-references",
        ) from None


def _check_ref(schema: dict[str, Any], ref: str, at: str) -> None:
    if not ref.startswith("#"):
        raise SchemaRefused(
            SchemaReason.KEYWORD_UNSUPPORTED,
            f"{ref!r:.100} is outside the schema",
            at=at,
            advice="copy the definition into $defs; nothing is ever fetched",
        )
    try:
        target = resolve(schema, ref)
    except KeyError:
        raise _invalid(f"{ref!r:.100} points nowhere", at=at) from None
    if not isinstance(target, dict | bool):
        raise _invalid(f"{ref!r:.100} is not a schema", at=at)


def _check_expansion(schema: dict[str, Any]) -> None:
    """Refuse a schema whose references unfold to more than MAX_EXPANDED_NODES subschemas.

    Thirty definitions that each use the next one twice are a small file and 2**30 subschemas.
    A reference back to a schema that is being unfolded counts as one.
    """
    sizes: dict[int, int] = {}

    def size(node: Mapping[str, Any]) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = 1
        total = 1 + sum(size(child) for _, child in children(node))
        target = resolve(schema, node["$ref"]) if "$ref" in node else None
        if isinstance(target, dict):
            total += size(target)
        sizes[id(node)] = total
        return total

    try:
        expanded = size(schema)
    except RecursionError:
        expanded = MAX_EXPANDED_NODES + 1
    if expanded > MAX_EXPANDED_NODES:
        raise _too_large(
            f"its references unfold to more than {MAX_EXPANDED_NODES} subschemas",
            advice="repeat less by $ref",
        )


def _invalid(message: str, *, at: str = "", advice: str = "") -> SchemaRefused:
    return SchemaRefused(SchemaReason.SCHEMA_INVALID, message, at=at, advice=advice)


def _too_large(message: str, *, at: str = "", advice: str = "") -> SchemaRefused:
    return SchemaRefused(SchemaReason.SCHEMA_TOO_LARGE, message, at=at, advice=advice)
