"""Advice on schemas: what is legal but makes records worse, slower or cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .load import canonical_json
from .lowering.verbatim import left_out
from .walk import children, escape, resolve, subschemas

MAX_NESTING = 4
MAX_PROPERTIES = 20
MAX_SCHEMA_BYTES = 6_000

# An unescaped *, + or {n,}: the expression sets no bound of its own.
_OPEN_REPEAT = re.compile(r"(?<!\\)(?:[*+]|\{\d+,\})")


class LintWarning(msgspec.Struct, frozen=True):
    """One piece of advice: a stable code, the JSON pointer of its place, what to do and why."""

    code: str
    pointer: str
    message: str


def lint(schema: Mapping[str, Any]) -> list[LintWarning]:
    """Advice on a schema that `load` accepts, in document order; [] if there is none."""
    found = list(_whole(schema))
    found += [
        LintWarning("not-verbatim", at, f"can't be copied from the page as a span: {why}")
        for at, why in left_out(schema)
    ]
    for at, subschema in subschemas(schema):
        found += _bounds(at, subschema)
        if "properties" in subschema:
            found += _object(schema, at, subschema)
    return found


def _whole(schema: Mapping[str, Any]) -> Iterator[LintWarning]:
    if not (schema.get("description") or schema.get("title")):
        yield LintWarning(
            "no-description", "", "say in a description what one record is: the model reads it"
        )
    size = len(canonical_json(schema))
    if size > MAX_SCHEMA_BYTES:
        yield LintWarning(
            "long-schema",
            "",
            f"{size} bytes; every prompt repeats the fields and descriptions, and the page gets "
            f"what is left: shorten it below {MAX_SCHEMA_BYTES}, or split it",
        )
    deepest = max(_nesting(schema, ""), key=lambda found: found[1])
    if deepest[1] > MAX_NESTING:
        yield LintWarning(
            "deep-nesting",
            deepest[0],
            f"{deepest[1]} levels of objects and arrays; small models lose track beyond "
            f"{MAX_NESTING}: flatten it (address_city instead of address.city)",
        )


def _bounds(at: str, schema: Mapping[str, Any]) -> Iterator[LintWarning]:
    if "enum" in schema or "const" in schema:
        return
    types = _types(schema)
    if "string" in types and "maxLength" not in schema and not _bounded_string(schema):
        yield LintWarning(
            "unbounded-string",
            at,
            'add "maxLength": a value without one can run on until the token budget ends',
        )
    if "array" in types and "maxItems" not in schema and "prefixItems" not in schema:
        yield LintWarning(
            "unbounded-array",
            at,
            'add "maxItems": a list without it can run on until the token budget ends',
        )


def _bounded_string(schema: Mapping[str, Any]) -> bool:
    if "format" in schema:
        return True
    return "pattern" in schema and not _OPEN_REPEAT.search(schema["pattern"])


def _object(root: Mapping[str, Any], at: str, schema: Mapping[str, Any]) -> Iterator[LintWarning]:
    properties: Mapping[str, Any] = schema["properties"]
    required = schema.get("required", ())
    if len(properties) > MAX_PROPERTIES:
        yield LintWarning(
            "many-properties",
            f"{at}/properties",
            f"{len(properties)} fields; small models fill up to {MAX_PROPERTIES} well: split the "
            "schema, or group what belongs together",
        )
    for index, (name, value) in enumerate(properties.items()):
        here = f"{at}/properties/{escape(name)}"
        described, target = _described(root, value)
        if not described:
            yield LintWarning(
                "no-description",
                here,
                "describe what the field holds and where pages show it: the model reads it",
            )
        if name not in required:
            yield LintWarning(
                "optional",
                here,
                'make it required and let its type include "null": an optional field is one more '
                "choice for the model and saves nothing",
            )
        elif index > 0 and _must_have_value(root, target):
            # The first field is what makes the object a record, so it may insist on a value.
            yield LintWarning(
                "not-nullable",
                here,
                "pages may lack it, and a model that must answer invents: add null to its "
                '"type" (and "enum")',
            )


def _described(root: Mapping[str, Any], value: Any) -> tuple[bool, Any]:
    """Whether a property says what it is, and the schema behind its `$ref`s."""
    described = False
    for _ in range(16):  # A chain of references longer than that is a circle.
        if not isinstance(value, Mapping):
            return True, value
        described = described or bool(value.get("description"))
        if "$ref" not in value:
            break
        value = resolve(root, value["$ref"])
    return described, value


def _must_have_value(root: Mapping[str, Any], schema: Any) -> bool:
    """Whether a scalar must be given: not null, not one fixed constant."""
    if not isinstance(schema, Mapping) or "const" in schema:
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branches = [_described(root, branch)[1] for branch in schema[keyword]]
            return all(_must_have_value(root, branch) for branch in branches)
    if "enum" in schema:
        return None not in schema["enum"]
    types = _types(schema)
    return bool(types & {"string", "number", "integer", "boolean"}) and "null" not in types


def _types(schema: Mapping[str, Any]) -> set[str]:
    types = schema.get("type", [])
    return {types} if isinstance(types, str) else set(types)


def _nesting(schema: Mapping[str, Any], at: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Every subschema's pointer and how many objects and arrays it stands in, itself included."""
    depth += bool(_types(schema) & {"object", "array"})
    yield at, depth
    for pointer, child in children(schema, at):
        yield from _nesting(child, pointer, depth)
