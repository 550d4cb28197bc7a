"""Which keywords the lowering knows, and what it refuses with which advice."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from typing import Any

from ..errors import SchemaReason, SchemaRefused
from ..walk import escape

# They say nothing about which values are valid, so leaving them out changes no language.
ANNOTATIONS = frozenset(
    {
        "$comment",
        "$id",
        "$schema",
        "$vocabulary",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "enumDescriptions",
        "errorMessage",
        "example",
        "examples",
        "id",
        "markdownDescription",
        "readOnly",
        "self",
        "title",
        "writeOnly",
    }
)
IN_PLACE = frozenset(
    {
        "$ref",
        "allOf",
        "anyOf",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "minContains",
        "not",
        "oneOf",
        "then",
    }
)
DEFINITIONS = frozenset({"$defs", "definitions"})
BY_TYPE: dict[str, frozenset[str]] = {
    "object": frozenset(
        {
            "additionalProperties",
            "maxProperties",
            "minProperties",
            "patternProperties",
            "properties",
            "propertyNames",
            "required",
            "unevaluatedProperties",
        }
    ),
    "array": frozenset(
        {
            "additionalItems",
            "items",
            "maxItems",
            "minItems",
            "prefixItems",
            "unevaluatedItems",
            "uniqueItems",
        }
    ),
    "string": frozenset({"format", "maxLength", "minLength", "pattern"}),
    "number": frozenset(
        {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}
    ),
}
VALUES = frozenset({"const", "enum", "type"})
CONSTRAINTS = VALUES.union(*BY_TYPE.values())
KNOWN = ANNOTATIONS | IN_PLACE | DEFINITIONS | CONSTRAINTS
# Keywords of the drafts that the lowering doesn't do, and OpenAPI's `nullable`.
UNSUPPORTED = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "disallow",
        "divisibleBy",
        "extends",
        "maxContains",
        "nullable",
    }
)
# Stands at the root, true: the schema is read as the standard has it. Objects that don't say
# otherwise take undeclared members, and what is unknown, or looks misspelt, is an annotation.
STANDARD = "x-pagemill-standard"
# Beside a string, true: its values are spans of the page.
VERBATIM = "x-pagemill-verbatim"
BINDING = IN_PLACE | CONSTRAINTS | UNSUPPORTED
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_ADVICE = {
    "$anchor": "refer to it by a JSON pointer, e.g. #/$defs/name",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
    "nullable": 'use "type": [..., "null"]',
}


def refuse_keyword(keyword: str, at: str, *, what: str = "", advice: str = "") -> SchemaRefused:
    """The refusal of a keyword (or of a use of it) that stands in the schema at `at`."""
    return SchemaRefused(
        SchemaReason.KEYWORD_UNSUPPORTED,
        what or f"unsupported keyword {keyword!r}",
        at=f"{at}/{escape(keyword)}",
        advice=advice or _ADVICE.get(keyword, "drop it, or check it after extraction"),
    )


def invalid(keyword: str, at: str, what: str) -> SchemaRefused:
    return SchemaRefused(SchemaReason.SCHEMA_INVALID, what, at=f"{at}/{escape(keyword)}")


def check_keywords(schema: Mapping[str, Any], at: str, *, standard: bool) -> None:
    """SchemaRefused at the first keyword that is neither understood nor an annotation.

    To the standard, a name outside its vocabularies is an annotation. It is taken for one
    unless it looks like a misspelt keyword, whose loss would go unnoticed, and the schema doesn't
    ask for the `standard` reading.
    """
    for keyword in schema:
        # Alone, unevaluated... says what additional... does; beside branches and references it
        # depends on what those evaluate.
        unevaluated = keyword.startswith("unevaluated") and schema[keyword] is not True
        if unevaluated and IN_PLACE & schema.keys():
            raise refuse_keyword(keyword, at, advice="declare all members in one place")
        if keyword in KNOWN:
            continue
        if keyword in UNSUPPORTED:
            raise refuse_keyword(keyword, at)
        if standard or keyword[:1] in ("_", "@") or keyword.startswith("x-"):
            continue
        meant = misspelt(keyword)
        if meant is not None:
            raise refuse_keyword(
                keyword, at, what=f"unknown keyword {keyword!r}", advice=f"did you mean {meant}?"
            )


@functools.lru_cache(maxsize=4096)
def misspelt(keyword: str) -> str | None:
    """The keyword of the standard that an unknown one is close to."""
    by_folded = {name.casefold(): name for name in BINDING}
    close = difflib.get_close_matches(keyword.casefold(), by_folded, n=1, cutoff=0.82)
    return by_folded[close[0]] if close else None
