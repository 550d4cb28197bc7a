"""What the last check of a record finds, and how it says so."""

from __future__ import annotations

import json
import urllib.request

import pytest
from pagemill.schemas import SchemaReason, SchemaRefused, Validator
from pagemill.schemas.lowering.formats import FORMATS

PRODUCT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "price": {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 100},
        "stock": {"enum": ["yes", "no", None]},
        "since": {"type": ["string", "null"], "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "tags": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "kind": {"const": "thing"},
        "a/b~c": {"type": "null"},
    },
    "required": ["name", "price"],
    "additionalProperties": False,
}
GOOD = {"name": "lamp", "price": 5.5}


@pytest.fixture(scope="module")
def validator() -> Validator:
    return Validator(PRODUCT)


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        {
            "name": "lamp",
            "price": None,
            "stock": None,
            "since": "2024-02-29",
            "code": "DE",
            "tags": ["a"],
            "kind": "thing",
            "a/b~c": None,
        },
    ],
)
def test_valid(validator, value):
    assert validator.errors(value) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "(root): [] is not object"),
        ({"price": 1}, "(root): 'name' missing"),
        ({**GOOD, "colour": 1}, "(root): 'colour' not in the schema"),
        ({**GOOD, "name": ""}, "/name: '' is shorter than 1 characters"),
        ({**GOOD, "name": "candle"}, "/name: 'candle' is longer than 5 characters"),
        ({**GOOD, "price": "5"}, "/price: '5' is not number or null"),
        ({**GOOD, "price": True}, "/price: True is not number or null"),
        ({**GOOD, "price": -1}, "/price: -1 is below minimum 0"),
        ({**GOOD, "price": 100}, "/price: 100 is above exclusiveMaximum 100"),
        ({**GOOD, "stock": "N/A"}, "/stock: 'N/A' is none of ['yes', 'no', None]"),
        ({**GOOD, "since": "2023-02-29"}, "/since: '2023-02-29' is not a date"),
        ({**GOOD, "code": "DE\n"}, "/code: 'DE\\n' does not match ^[A-Z]{2}$"),
        ({**GOOD, "tags": ["a", "b"]}, "/tags: more than 1 items"),
        ({**GOOD, "tags": [1]}, "/tags/0: 1 is not string"),
        ({**GOOD, "kind": "x"}, "/kind: 'x' is not 'thing'"),
        ({**GOOD, "a/b~c": 1}, "/a~1b~0c: 1 is not null"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_invalid(validator, value, message):
    assert validator.errors(value) == [message]


def test_several_errors_are_all_given_up_to_a_limit(validator):
    assert len(validator.errors({"name": 1, "price": ""})) == 2
    assert len(Validator({"items": {"type": "null"}}).errors([1] * 1000)) == 20


def test_a_long_value_is_cut_in_the_message(validator):
    (message,) = validator.errors({**GOOD, "name": "x" * 10_000})
    assert len(message) < 100


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2024-05-01T10:00:00+02:00", "2024-05-01 10:00"),
        ("time", "10:00:00Z", "25:00:00Z"),
        ("email", "a@example.com", "a.example.com"),
        ("uri", "https://example.com/a?b=c", "not a uri"),
        ("ipv4", "127.0.0.1", "300.0.0.1"),
        ("hostname", "example.com", "-bad-.example"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ],
)
def test_formats_are_checked(name, good, bad):
    validator = Validator({"type": "string", "format": name})
    assert validator.errors(good) == []
    assert validator.errors(bad) == [f"(root): {bad!r} is not a {name}"]


def test_iris_may_hold_any_script():
    validator = Validator({"type": "string", "format": "iri"})
    assert validator.errors("https://例え.jp/é?q=ü") == []
    assert validator.errors("https://例え.jp/a b")


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_of_decoding_is_checked(name):
    """A format without a checker would pass silently."""
    assert Validator({"type": "string", "format": name}).errors("\x00 [~2")


def test_draft_7_keeps_its_meaning():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "string"}],
        "additionalItems": False,
    }
    assert Validator(schema).errors(["a"]) == []
    assert Validator(schema).errors([1])
    assert Validator(schema).errors(["a", "b"])


def test_references_inside_the_schema():
    schema = {"$ref": "#/$defs/word", "$defs": {"word": {"type": "string"}}}
    assert Validator(schema).errors("a") == []
    assert Validator(schema).errors(1) == ["(root): 1 is not string"]


def test_recursion_in_schema_and_value_ends():
    tree = Validator({"items": {"$ref": "#"}, "type": "array"})
    assert tree.errors([[], [[]]]) == []
    assert tree.errors([[1]]) == ["/0/0: 1 is not array"]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert tree.errors(deep) == ["the value or the schema nests without end"]
    assert Validator({"$ref": "#"}).errors(1) == ["the value or the schema nests without end"]


def test_nothing_is_fetched(monkeypatch):
    def fetch(*_, **__):
        raise AssertionError("a schema must not cause a request")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    for keyword in ("$ref", "$dynamicRef"):
        with pytest.raises(SchemaRefused) as refused:
            Validator({"properties": {"a": {keyword: "http://example.com/schema.json"}}})
        assert refused.value.reason is SchemaReason.KEYWORD_UNSUPPORTED
    # A reference in the base URI's clothes, which resolves to a remote document.
    with pytest.raises(SchemaRefused):
        Validator({"$id": "http://example.com/a", "$ref": "b"})


def test_pattern_properties():
    validator = Validator(
        {
            "properties": {"id": {"type": "integer"}},
            "patternProperties": {"^x-": {"type": "string"}},
            "additionalProperties": False,
        }
    )
    assert validator.errors({"id": 1, "x-a": "b"}) == []
    assert validator.errors({"x-a": 1}) == ["/x-a: 1 is not string"]
    assert validator.errors({"id": 1, "y": 1}) == ["(root): 'y' not in the schema"]
    others = Validator({"properties": {"a": {}}, "additionalProperties": {"type": "null"}})
    assert others.errors({"a": 1, "b": None}) == []
    assert others.errors({"a": 1, "b": 1}) == ["/b: 1 is not null"]


def test_unevaluated_beside_pattern_properties_is_refused():
    with pytest.raises(SchemaRefused) as refused:
        Validator({"patternProperties": {"^a": True}, "unevaluatedProperties": False})
    assert refused.value.at == "/unevaluatedProperties"


def test_patterns_run_in_linear_time():
    assert Validator({"pattern": "^(a|a)*$"}).errors("a" * 5_000 + "b")
    names = Validator({"patternProperties": {"^(a|a)*$": False}, "additionalProperties": False})
    assert names.errors({"a" * 5_000 + "b": 1})


def test_the_schema_is_copied():
    schema = json.loads(json.dumps(PRODUCT))
    validator = Validator(schema)
    schema["properties"].clear()
    assert validator.errors(GOOD) == []
