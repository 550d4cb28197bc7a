"""`x-pagemill-verbatim` at the root: all strings that can be spans of the page are to be.

The keyword then goes to each string that may also be null and that nothing but `maxLength` bounds.
Others stay as they are, for a page may hold nothing that fits them; `lint` names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..walk import SCHEMA_KEYWORDS, children, escape
from .keywords import VERBATIM

# What a span can't be told to obey, or what may put the string into a condition.
_IN_THE_WAY = ("$ref", "allOf", "anyOf", "const", "enum", "format", "not", "oneOf", "pattern")
_CONDITIONS = ("not", "if", "then", "else", "contains", "dependentSchemas", "dependencies")
_ENTERED = ("properties", "patternProperties", "$defs", "definitions")
_DEFINITIONS = ("$defs", "definitions")


def spread(schema: Any) -> Any:
    """Return the schema with the root's keyword at the strings it means, itself if it has none."""
    if not asks(schema):
        return schema
    root = {keyword: value for keyword, value in schema.items() if keyword != VERBATIM}
    # A definition that a condition refers to can't hold spans.
    return _spread(root, definitions=not _refers_in_condition(root, inside=False))


def asks(schema: Any) -> bool:
    """Whether the root asks for all of its fields; a root that is a string speaks of itself."""
    return (
        isinstance(schema, dict) and schema.get(VERBATIM) is True and "string" not in _types(schema)
    )


def left_out(schema: Any) -> Iterator[tuple[str, str]]:
    """The pointers of strings that stay ordinary, each with the reason, in document order."""
    if asks(schema):
        yield from _left_out(spread(schema), "")


def _spread(schema: Any, *, definitions: bool) -> Any:
    # What a condition judges can't be a span, and it may judge anything below.
    if not isinstance(schema, dict) or any(keyword in schema for keyword in _CONDITIONS):
        return schema
    if _may_be_span(schema, nullable=False):
        return {**schema, VERBATIM: True}
    made = dict(schema)
    for keyword in _ENTERED:
        if isinstance(schema.get(keyword), dict) and (definitions or keyword not in _DEFINITIONS):
            made[keyword] = {
                name: _spread(value, definitions=definitions)
                for name, value in schema[keyword].items()
            }
    for keyword in ("items", "prefixItems"):
        if isinstance(schema.get(keyword), list):
            made[keyword] = [_spread(value, definitions=definitions) for value in schema[keyword]]
    for keyword in ("items", "additionalItems", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            made[keyword] = _spread(schema[keyword], definitions=definitions)
    if isinstance(schema.get("anyOf"), list):
        made["anyOf"] = [
            branch
            if isinstance(branch, dict) and "string" in _types(branch)
            else _spread(branch, definitions=definitions)
            for branch in schema["anyOf"]
        ]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and len([k for k in _IN_THE_WAY if k in schema]) == 1:
            made[keyword] = _spread_branch(made[keyword])
    return made


def _spread_branch(branches: Any) -> Any:
    """The branches of a choice, marked where one is a string and one is null."""
    if not isinstance(branches, list) or not all(isinstance(b, dict) for b in branches):
        return branches
    # A branch that states no type may be a string as well, and two strings can't be told apart.
    texts = [b for b in branches if not _types(b) or "string" in _types(b)]
    nullable = any("null" in _types(branch) for branch in branches)
    if len(texts) != 1 or not nullable or not _may_be_span(texts[0], nullable=True):
        return branches
    return [{**b, VERBATIM: True} if b is texts[0] else b for b in branches]


def _may_be_span(schema: Mapping[str, Any], *, nullable: bool) -> bool:
    return (
        "string" in _types(schema)
        and (nullable or "null" in _types(schema))
        and not any(keyword in schema for keyword in (*_IN_THE_WAY, *_CONDITIONS, VERBATIM))
        and schema.get("minLength", 0) in (0, 1)
        and schema.get("maxLength", 1) != 0
    )


def _left_out(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    listed = "enum" in schema or "const" in schema
    if "string" in _types(schema) and not listed and VERBATIM not in schema:
        yield at, _why(schema)
    skipped = {f"{at}/{escape(keyword)}" for keyword in (*_CONDITIONS, "propertyNames")}
    for pointer, child in children(schema, at):
        if not any(pointer == place or pointer.startswith(f"{place}/") for place in skipped):
            yield from _left_out(child, pointer)


def _why(schema: Mapping[str, Any]) -> str:
    for keyword in ("format", "pattern", "minLength"):
        if keyword in schema and (keyword != "minLength" or schema[keyword] not in (0, 1)):
            return f"{keyword} says what it must be"
    if "null" not in _types(schema):
        return 'it can\'t be null: add "null" to its type, since a page may hold nothing that fits'
    return "it stands in a condition or beside other schemas"


def _refers_in_condition(schema: Any, *, inside: bool) -> bool:
    if not isinstance(schema, dict):
        return False
    if inside and "$ref" in schema:
        return True
    for keyword, value in schema.items():
        within = inside or keyword in (*_CONDITIONS, "oneOf", "allOf")
        if keyword in SCHEMA_KEYWORDS and isinstance(value, dict):
            found = [value]
        elif isinstance(value, list):
            found = value
        elif isinstance(value, dict):
            found = list(value.values())
        else:
            continue
        if any(_refers_in_condition(inner, inside=within) for inner in found):
            return True
    return False


def _types(schema: Mapping[str, Any]) -> set[str]:
    types = schema.get("type", [])
    return {types} if isinstance(types, str) else {t for t in types if isinstance(t, str)}
