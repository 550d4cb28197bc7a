"""Which advice a schema gets, and where it points."""

from __future__ import annotations

import pytest
from pagemill.schemas import lint, load


def record(**properties: dict) -> dict:
    """A schema without faults but for those of `properties`."""
    identity = {"type": "string", "maxLength": 9, "description": "Its name."}
    fields = {"name": identity, **properties}
    return {
        "description": "A thing.",
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def found(schema: dict) -> set[tuple[str, str]]:
    return {(warning.code, warning.pointer) for warning in lint(load(schema))}


NULLABLE = {"type": ["string", "null"], "maxLength": 9}
DESCRIBED = {**NULLABLE, "description": "Where it is."}


def test_a_good_schema_gets_no_advice():
    assert found(record(place=DESCRIBED)) == set()


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ({"type": ["string", "null"], "description": "x"}, "unbounded-string"),
        ({"type": ["string", "null"], "pattern": "^a+$", "description": "x"}, "unbounded-string"),
        ({"type": ["string", "null"], "pattern": "a{2,}", "description": "x"}, "unbounded-string"),
        ({"type": "array", "items": NULLABLE, "description": "x"}, "unbounded-array"),
        (NULLABLE, "no-description"),
        ({"type": "number", "description": "x"}, "not-nullable"),
        ({"type": "boolean", "description": "x"}, "not-nullable"),
        ({"enum": ["a", "b"], "description": "x"}, "not-nullable"),
        (
            {"anyOf": [{"type": "number"}, {"type": "boolean"}], "description": "x"},
            "not-nullable",
        ),
    ],
    ids=str,
)
def test_advice_on_a_field(field, code):
    assert found(record(place=field)) == {(code, "/properties/place")}


@pytest.mark.parametrize(
    "field",
    [
        {"enum": ["a", None], "description": "x"},
        {"const": "a", "description": "x"},
        {"type": ["string", "null"], "format": "date", "description": "x"},
        {"type": ["string", "null"], "pattern": r"^[A-Z]{3}\+$", "description": "x"},
        {"type": "array", "maxItems": 3, "items": {"type": "boolean"}, "description": "x"},
        {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "x"},
    ],
    ids=str,
)
def test_no_advice_on_a_field(field):
    assert found(record(place=field)) == set()


def test_optional_properties():
    schema = record(place=DESCRIBED)
    schema["required"] = ["name"]
    assert found(schema) == {("optional", "/properties/place")}


def test_pointers_are_escaped_and_reach_into_arrays_and_definitions():
    items = record()
    del items["properties"]["name"]["maxLength"]
    schema = record(**{"a/b": {"type": "array", "maxItems": 2, "description": "x", "items": items}})
    schema["$defs"] = {"far": {"type": "array"}}
    assert found(schema) == {
        ("unbounded-string", "/properties/a~1b/items/properties/name"),
        ("unbounded-array", "/$defs/far"),
    }


def test_references_are_followed():
    schema = record(
        good={"$ref": "#/$defs/good"},
        bad={"$ref": "#/$defs/bad", "description": "Described here."},
        round={"$ref": "#/$defs/round"},
    )
    schema["$defs"] = {
        "good": DESCRIBED,
        "bad": {"type": "integer"},
        "round": {"$ref": "#/$defs/round"},
    }
    assert found(schema) == {
        ("not-nullable", "/properties/bad"),
        ("no-description", "/properties/round"),
    }


def test_the_whole_schema():
    schema = record(
        **{f"p{i}": {**NULLABLE, "description": "Somewhere on the page. " * 15} for i in range(20)}
    )
    del schema["description"]
    assert found(schema) == {
        ("no-description", ""),
        ("long-schema", ""),
        ("many-properties", "/properties"),
    }


def test_deep_nesting_points_to_the_deepest():
    schema: dict = {"type": "boolean"}
    for _ in range(4):
        schema = {"type": "array", "maxItems": 2, "items": schema}
    assert found(record(deep={**schema, "description": "x"})) == {
        ("deep-nesting", "/properties/deep/items/items/items")
    }


def test_messages_say_what_to_do():
    (warning,) = lint(record(place={"type": "number", "description": "x"}))
    assert '"type"' in warning.message
