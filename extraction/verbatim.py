"""Which values of a record are verbatim: spans of the page's text (docs/verbatim.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pagemill.schemas.lowering.keywords import VERBATIM
from pagemill.schemas.walk import escape, resolve, subschemas

_MAX_REFERENCES = 32


def has_verbatim(schema: Mapping[str, Any]) -> bool:
    return any(subschema.get(VERBATIM) is True for _, subschema in subschemas(schema))


def verbatim_values(schema: Mapping[str, Any], record: Any) -> frozenset[str]:
    """The JSON pointers of the strings that some branch of the schema says are verbatim."""
    if not has_verbatim(schema):
        return frozenset()
    return strings_where(schema, record, lambda layer: layer.get(VERBATIM) is True)


def strings_where(
    schema: Mapping[str, Any], record: Any, is_meant: Callable[[Mapping[str, Any]], bool]
) -> frozenset[str]:
    """The JSON pointers of the strings of which some branch of the schema says what is meant."""
    found: set[str] = set()
    waiting: list[tuple[str, Any, list[Any]]] = [("", record, [schema])]
    while waiting:
        pointer, value, said = waiting.pop()
        layers = list(_layers(schema, said))
        if isinstance(value, str) and any(map(is_meant, layers)):
            found.add(pointer)
        elif isinstance(value, dict):
            for key, member in value.items():
                inner = [_member(layer, key) for layer in layers]
                waiting.append((f"{pointer}/{escape(key)}", member, inner))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                inner = [_item(layer, index) for layer in layers]
                waiting.append((f"{pointer}/{index}", item, inner))
    return frozenset(found)


def _layers(root: Mapping[str, Any], said: list[Any]) -> Iterator[Mapping[str, Any]]:
    """The schemas, with what they refer to and their branches."""
    waiting = [(schema, 0) for schema in said]
    while waiting:
        schema, depth = waiting.pop()
        if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
            continue
        yield schema
        if isinstance(ref := schema.get("$ref"), str):
            waiting.append((resolve(root, ref), depth + 1))
        for keyword in ("allOf", "anyOf", "oneOf"):
            waiting += [(branch, depth + 1) for branch in schema.get(keyword, ())]
        for keyword in ("then", "else"):
            waiting.append((schema.get(keyword), depth + 1))


def _member(schema: Mapping[str, Any], key: str) -> Any:
    declared = schema.get("properties", {})
    return declared[key] if key in declared else schema.get("additionalProperties")


def _item(schema: Mapping[str, Any], index: int) -> Any:
    items = schema.get("items")
    first = schema.get("prefixItems", items if isinstance(items, list) else [])
    if index < len(first):
        return first[index]
    return schema.get("additionalItems") if isinstance(items, list) else items
