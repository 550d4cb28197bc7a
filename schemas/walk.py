"""The subschemas of a JSON Schema, each with the JSON pointer of its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

# Keywords of drafts 2020-12 and 7 by what they hold; any other keyword's value is data.
SCHEMA_KEYWORDS = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
LIST_KEYWORDS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
MAP_KEYWORDS = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)


def escape(token: str) -> str:
    """A JSON pointer's reference token (RFC 6901, section 3)."""
    return token.replace("~", "~0").replace("/", "~1")


def children(schema: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The subschemas directly inside `schema`, which stands at pointer `at`, in document order.

    Boolean schemas are left out: they hold nothing.
    """
    for keyword, value in schema.items():
        here = f"{at}/{escape(keyword)}"
        if keyword in MAP_KEYWORDS and isinstance(value, dict):
            for name, subschema in value.items():
                if isinstance(subschema, dict):
                    yield f"{here}/{escape(name)}", subschema
        elif keyword in LIST_KEYWORDS and isinstance(value, list):
            for index, subschema in enumerate(value):
                if isinstance(subschema, dict):
                    yield f"{here}/{index}", subschema
        elif keyword in SCHEMA_KEYWORDS and isinstance(value, dict):
            yield here, value


def subschemas(schema: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """`schema` and every subschema below it with their pointers, in document order."""
    yield at, schema
    for pointer, child in children(schema, at):
        yield from subschemas(child, pointer)


def resolve(root: Mapping[str, Any], ref: str) -> Any:
    """What a local `$ref` ("#" or "#/...") points to. Raises KeyError if it points nowhere."""
    if not ref.startswith("#"):
        raise KeyError(ref)
    if ref == "#":
        return root
    head, *tokens = unquote(ref[1:]).split("/")
    if head:
        raise KeyError(ref)
    node: Any = root
    for token in tokens:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and token.isdecimal() and int(token) < len(node):
            node = node[int(token)]
        elif isinstance(node, dict) and token in node:
            node = node[token]
        else:
            raise KeyError(ref)
    return node
