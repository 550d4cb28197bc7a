"""What a schema may come as, and what is refused with which reason and where."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

import outlines.types
import pydantic
import pytest
from pagemill.schemas import SchemaReason, SchemaRefused, canonical_json, content_hash, load
from pagemill.schemas.load import MAX_BYTES, MAX_DEPTH, MAX_ENUM, MAX_NODES

PRICE = {
    "type": "object",
    "properties": {"b": {"type": "number"}, "a": {"type": ["string", "null"]}},
    "required": ["b", "a"],
    "additionalProperties": False,
}


class Offer(pydantic.BaseModel):
    price: float | None
    currency: Literal["EUR", "USD"]


@dataclasses.dataclass
class Place:
    city: str


@pytest.mark.parametrize(
    "source",
    [
        PRICE,
        json.dumps(PRICE),
        json.dumps(PRICE).encode(),
        b"\xef\xbb\xbf" + json.dumps(PRICE, indent=2).encode(),
        outlines.types.JsonSchema(PRICE),
        outlines.types.JsonSchema(json.dumps(PRICE)),
    ],
    ids=["dict", "text", "bytes", "byte order mark", "outlines dict", "outlines text"],
)
def test_every_form_gives_the_same_schema_in_its_key_order(source):
    assert canonical_json(load(source)) == json.dumps(PRICE, separators=(",", ":")).encode()


def test_a_pydantic_model_gives_its_json_schema():
    schema = load(Offer)
    assert list(schema["properties"]) == ["price", "currency"]
    assert schema == Offer.model_json_schema()
    assert load(outlines.types.JsonSchema(Offer)) == schema


def test_a_dataclass_gives_its_json_schema():
    assert load(Place)["properties"]["city"]["type"] == "string"


def test_the_result_is_the_callers_own():
    schema = load(PRICE)
    schema["properties"]["b"]["type"] = "string"
    assert PRICE["properties"]["b"]["type"] == "number"


def test_draft_7_is_read_as_draft_7():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "string"}],
    }
    assert load(schema) == schema
    with pytest.raises(SchemaRefused) as refused:
        load({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    assert refused.value.at == "/items"


def nested(depth: int) -> dict:
    schema: dict = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


INVALID = SchemaReason.SCHEMA_INVALID
TOO_LARGE = SchemaReason.SCHEMA_TOO_LARGE
UNSUPPORTED = SchemaReason.KEYWORD_UNSUPPORTED


@pytest.mark.parametrize(
    ("source", "reason", "at"),
    [
        (None, INVALID, ""),
        (17, INVALID, ""),
        ([], INVALID, ""),
        ("[]", INVALID, ""),
        ("true", INVALID, ""),
        ("", INVALID, ""),
        ("{", INVALID, ""),
        (b"\xff\xfe{}", INVALID, ""),
        ('{"maximum": NaN}', INVALID, "/maximum"),
        ('{"maximum": 1e999}', INVALID, "/maximum"),
        ('{"maximum": 123456789012345678901234567890}', INVALID, "/maximum"),
        (f'{{"maximum": {"9" * 5000}}}', INVALID, ""),
        ('{"description": "\\ud800"}', INVALID, ""),
        ('{"type": "object", "type": "array"}', INVALID, ""),
        ('{"properties": {"a/b": {"type": "null", "type": "null"}}}', INVALID, "/properties/a~1b"),
        ({1: 2}, INVALID, ""),
        ({"enum": [{1, 2}]}, INVALID, "/enum/0"),
        ({"type": "text"}, INVALID, "/type"),
        ({"properties": {"a": {"maxLength": -1}}}, INVALID, "/properties/a/maxLength"),
        ({"required": "a"}, INVALID, "/required"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, INVALID, "/$schema"),
        ({"$schema": 7}, INVALID, "/$schema"),
        ({"pattern": "(?=a)"}, UNSUPPORTED, "/pattern"),
        ({"pattern": "("}, UNSUPPORTED, "/pattern"),
        ({"pattern": "(a{1000}){1000}"}, UNSUPPORTED, "/pattern"),
        ({"patternProperties": {"(": {}}}, UNSUPPORTED, "/patternProperties/("),
        ({"$ref": "#/$defs/a"}, INVALID, "/$ref"),
        ({"$ref": "#/type", "type": "string"}, INVALID, "/$ref"),
        ({"$ref": "#anchor"}, INVALID, "/$ref"),
        ({"items": {"$ref": "https://example.com/a.json"}}, UNSUPPORTED, "/items/$ref"),
        ({"items": {"$ref": "other.json#/a"}}, UNSUPPORTED, "/items/$ref"),
        ({"items": {"$ref": "file:///etc/passwd"}}, UNSUPPORTED, "/items/$ref"),
        ({"items": {"$dynamicRef": "https://example.com/a"}}, UNSUPPORTED, "/items/$dynamicRef"),
        ({"items": {"$id": "https://example.com/a.json"}}, UNSUPPORTED, "/items/$id"),
        (nested(MAX_DEPTH), TOO_LARGE, "/items" * MAX_DEPTH),
        ('{"not":' * 100_000 + "{}" + "}" * 100_000, TOO_LARGE, ""),
        (" " * (MAX_BYTES + 1), TOO_LARGE, ""),
        ({"description": "x" * MAX_BYTES}, TOO_LARGE, ""),
        ({"enum": list(range(MAX_ENUM + 1))}, TOO_LARGE, "/enum"),
        ({"required": [str(i) for i in range(MAX_NODES)]}, TOO_LARGE, None),
        (outlines.types.JsonSchema(PRICE, whitespace_pattern=" ?"), UNSUPPORTED, ""),
        (type("Opaque", (), {}), INVALID, ""),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refused(source, reason, at):
    with pytest.raises(SchemaRefused) as refused:
        load(source)
    assert refused.value.reason is reason
    if at is not None:
        assert refused.value.at == at[:200]
    assert len(str(refused.value)) < 1000


def test_a_dict_that_contains_itself_is_refused():
    schema: dict = {}
    schema["not"] = schema
    with pytest.raises(SchemaRefused) as refused:
        load(schema)
    assert refused.value.reason is TOO_LARGE


def test_definitions_that_double_each_other_are_refused():
    """Thirty lines that unfold to a thousand million subschemas."""
    doubling = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(30)
    }
    with pytest.raises(SchemaRefused) as refused:
        load({"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {"type": "null"}}})
    assert refused.value.reason is TOO_LARGE


def test_a_recursive_schema_is_a_schema():
    """Whether it can be decoded is the lowering's business."""
    tree = {"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}}
    assert load(tree) == tree


def test_property_names_are_not_keywords():
    schema = {
        "properties": {"pattern": {"type": "string"}, "$ref": {"type": "null"}},
        "const": {"$id": "x", "pattern": "("},
    }
    assert load(schema) == schema


def test_the_hash_knows_key_order():
    ab = {"properties": {"a": {}, "b": {}}}
    ba = {"properties": {"b": {}, "a": {}}}
    assert content_hash(load(ab)) != content_hash(load(ba))
    assert content_hash(load(ab)) == content_hash(load(json.dumps(ab, indent=4)))
