"""Each case: a schema, texts in its language, texts outside it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pagemill.schemas import SchemaReason, SchemaRefused, lower
from pagemill.schemas.compile_worker import Builder, compile_schema

OBJECT = {"type": "object"}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}

# Shapes that Outlines' own JSON Schema conversion gets wrong.
OUTLINES_WRONG: dict[str, tuple[Any, list[str], list[str]]] = {
    "a value of any kind": (
        {**OBJECT, "properties": {"a": {}}, "required": ["a"]},
        ['{"a":1}', '{"a":null}', '{"a":{"b":[true]}}'],
        ["null", "1", '{"a":true', '{"a":}'],
    ),
    "allOf of two": (
        {
            "allOf": [
                {**OBJECT, "properties": {"a": INTEGER}, "required": ["a"]},
                {**OBJECT, "properties": {"b": INTEGER}, "required": ["b"]},
            ]
        },
        ['{"a":1,"b":2}'],
        ['{"a":1}{"b":2}', '{"a":1}', '{"b":2}'],
    ),
    "allOf of the same type": ({"allOf": [INTEGER, INTEGER]}, ["7", "0"], ["00", "07"]),
    "alternatives with an anchor each": (
        {**STRING, "pattern": "^cat|dog$"},
        ['"cat"', '"catalog"', '"hot dog"', '"cat dog"'],
        ['"cat', 'dog"', '"a cat!"', '"dogs"'],
    ),
    "a dot": (
        {**STRING, "pattern": "^.{3}$"},
        ['"abc"', '"é😀x"', r'"a\"b"', r'"\\\\\\"'],
        ['"a"b"', '"ab"', '"abcd"', '"a\nb"', r'"a\nb"'],
    ),
    "a negated class": (
        {**STRING, "pattern": "^[^,]+$"},
        ['"ab"', r'"\""', r'"\n"', r'"\\"'],
        ['"a,b"', '"a"b"', '"\\"', '""', '"\n"'],
    ),
    "format uri": (
        {**STRING, "format": "uri"},
        ['"https://example.com/a?b=c#d"', '"mailto:a@b.de"', '"urn:a:b"'],
        ['"https://a"b"', r'"https://a\qb"', '"example.com"', '"https://a b"'],
    ),
    "format time": (
        {**STRING, "format": "time"},
        ['"10:00:00Z"', '"10:00:00.5Z"', '"23:59:59+02:00"'],
        [r'"10:00:00\q5Z"', '"24:00:00Z"', '"10:00:00"', '"10:00"'],
    ),
    "recursion through a required member": (
        {
            "$defs": {
                "N": {
                    **OBJECT,
                    "properties": {
                        "v": INTEGER,
                        "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
                    },
                    "required": ["v", "next"],
                }
            },
            "$ref": "#/$defs/N",
        },
        ['{"v":4,"next":null}', '{"v":4,"next":{"v":5,"next":null}}'],
        ['{"v":4,}', '{"v":4}', '{"v":4,"next":{}}'],
    ),
    "quotes in a member's name": (
        {**OBJECT, "properties": {'a"b\\': INTEGER}, "required": ['a"b\\']},
        [r'{"a\"b\\":1}'],
        ['{"a"b":1}', "{}"],
    ),
    "a whole number with a fraction": (
        {"enum": [-2.0, 1e2, -0.0, 0.5]},
        ["-2.0", "-2", "100.0", "100", "-0.0", "0", "0.5"],
        ["2", "10", "1e2", "5", "null"],
    ),
    "whole numbers inside a const": (
        {"const": {"a": [1.0, "x"], "b": 2}},
        ['{"a":[1.0,"x"],"b":2}', '{"a":[1,"x"],"b":2}'],
        ['{"a":[2,"x"],"b":2}', '{"a":[1],"b":2}', '{"b":2}'],
    ),
    "equal numbers are no two items": (
        {"type": "array", "items": {"enum": [1.0, 2]}, "uniqueItems": True},
        ["[]", "[1]", "[1,2]", "[2]"],
        ["[1,1.0]", "[1.0,1]", "[2,2]"],
    ),
    "const with a dot in a key": (
        {"const": {"k.k": 1}},
        ['{"k.k":1}'],
        ['{"kxk":1}', '{"k.k":2}'],
    ),
}

LANGUAGES: dict[str, tuple[Any, list[str], list[str]]] = {
    "optional members keep their order": (
        {**OBJECT, "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER}},
        ["{}", '{"a":1}', '{"b":1}', '{"a":1,"c":3}', '{"a":1,"b":2,"c":3}'],
        ["{,}", '{"a":1,}', '{,"a":1}', '{"b":1,"a":1}', '{"a":1"b":2}', '{"a":1,"a":1}'],
    ),
    "required amid optional": (
        {**OBJECT, "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER}, "required": ["b"]},
        ['{"b":1}', '{"a":1,"b":1}', '{"b":1,"c":2}', '{"a":1,"b":2,"c":3}'],
        ["{}", '{"a":1}', '{"a":1,"c":1}', '{"b":1,}'],
    ),
    "undeclared members are never written": (
        {**OBJECT, "properties": {"a": INTEGER}, "additionalProperties": True},
        ["{}", '{"a":1}'],
        ['{"b":1}', '{"a":1,"b":1}'],
    ),
    "a required name without a schema": (
        {**OBJECT, "properties": {"a": INTEGER}, "required": ["b"]},
        ['{"b":"x"}', '{"a":1,"b":[]}'],
        ["{}", '{"a":1}'],
    ),
    "a forbidden required member leaves nothing there": (
        {"anyOf": [{**OBJECT, "properties": {"a": False}, "required": ["a"]}, {"type": "null"}]},
        ["null"],
        ["{}", '{"a":1}'],
    ),
    "a map": (
        {**OBJECT, "additionalProperties": INTEGER},
        ["{}", '{"x":1}', '{"x":1,"y":2}', r'{"\"":1}'],
        ['{"x":"y"}', '{"x":1,}', "{x:1}"],
    ),
    "keys by pattern": (
        {**OBJECT, "patternProperties": {"^k[0-9]$": INTEGER}, "additionalProperties": False},
        ["{}", '{"k1":1,"k2":2}'],
        ['{"k":1}', '{"x":1}'],
    ),
    "at least one member": (
        {**OBJECT, "properties": {"a": INTEGER, "b": INTEGER}, "minProperties": 1},
        ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
        ["{}"],
    ),
    "array with bounds": (
        {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 6},
        ["[1,2]", "[1,2,3,4,5,6]"],
        ["[]", "[1]", "[1,2,]", "[1,2,3,4,5,6,7]", "[1 ,2]"],
    ),
    "an array that may be empty": (
        {"type": "array", "items": STRING, "maxItems": 5},
        ["[]", '["a"]', '["a","b","c","d","e"]'],
        ["[,]", '["a",]', '["a","b","c","d","e","f"]'],
    ),
    "array in an array": (
        {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "array", "maxItems": 4, "minItems": 1, "items": INTEGER},
        },
        ["[]", "[[1]]", "[[1,2,3,4],[1],[2],[3],[4,5]]"],
        ["[[]]", "[[1,2,3,4,5]]", "[[1],[1],[1],[1],[1],[1]]"],
    ),
    "tuple": (
        {"type": "array", "prefixItems": [INTEGER, STRING], "items": False},
        ["[]", "[1]", '[1,"a"]'],
        ['["a"]', '[1,"a",2]', "[1,]"],
    ),
    "tuple with a tail": (
        {"type": "array", "prefixItems": [INTEGER], "items": STRING, "minItems": 1, "maxItems": 3},
        ["[1]", '[1,"a"]', '[1,"a","b"]'],
        ["[]", '["a"]', '[1,"a","b","c"]'],
    ),
    "lengths count characters, an escape is one": (
        {**STRING, "minLength": 2, "maxLength": 5},
        ['"ab"', '"abcde"', '"éé"', '"😀😀😀😀😀"', r'"\"\\\n\/\u001f"', r'"\u0000x"'],
        ['"a"', '"abcdef"', r'"\n"', '"😀"', '"a\tb"', '"ab', r'"\u00"', r'"\ud800x"'],
    ),
    "one class with a length": (
        {**STRING, "pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 6},
        ['"AB"', '"ABCDEF"'],
        ['"A"', '"ABCDEFG"', '"ab"'],
    ),
    "enum of all kinds": (
        {"enum": ["a", 1, 1.5, None, True, [1, "x"], {"b": 2, "a": "\n"}]},
        ['"a"', "1", "1.5", "null", "true", '[1,"x"]', r'{"b":2,"a":"\n"}'],
        ['{"a":"\\n","b":2}', "2", "false", '"b"'],
    ),
    "enum filtered by its neighbours": (
        {"enum": ["a", "bbb", 1, 7], "type": ["string", "integer"], "maxLength": 2, "minimum": 5},
        ['"a"', "7"],
        ['"bbb"', "1"],
    ),
    "nullable": ({"type": ["string", "null"]}, ['"x"', "null"], ["1", "nul"]),
    "keywords beside $ref bind too": (
        {"$defs": {"s": {**STRING, "maxLength": 5}}, "$ref": "#/$defs/s", "minLength": 3},
        ['"abc"', '"abcde"'],
        ['"ab"', '"abcdef"'],
    ),
    "an escaped pointer": (
        {"$defs": {"a/b~": INTEGER}, "$ref": "#/$defs/a~1b~0"},
        ["1"],
        ['"x"'],
    ),
    "anyOf with keywords beside it": (
        {"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 3}]},
        ["10", "3", "-4", "100"],
        ["5", "4", "9"],
    ),
    "oneOf told apart by a const": (
        {
            "oneOf": [
                {
                    **OBJECT,
                    "properties": {"kind": {"const": k}, k: INTEGER},
                    "required": ["kind", k],
                }
                for k in ("a", "b")
            ]
        },
        ['{"kind":"a","a":1}', '{"kind":"b","b":1}'],
        ['{"kind":"a","b":1}', '{"kind":"a"}'],
    ),
    "oneOf of types": ({"oneOf": [STRING, {"type": "null"}, INTEGER]}, ["1", '"x"'], ["true"]),
    "integers between": (
        {**INTEGER, "minimum": -12, "exclusiveMaximum": 130},
        ["-12", "-1", "0", "9", "99", "129"],
        ["-13", "130", "-0", "01", "1.0", "1e1"],
    ),
    "numbers between": (
        {"type": "number", "minimum": 0, "maximum": 5},
        ["0", "0.0", "4.999", "5", "5.00", "3"],
        ["-0.1", "5.01", "6", "-1", "1e0"],
    ),
    "numbers above zero": (
        {"type": "number", "exclusiveMinimum": 0},
        ["0.1", "0.001", "1", "123.5"],
        ["0", "0.0", "-1"],
    ),
    "the end of recursion": (
        {**OBJECT, "properties": {"c": {"type": "array", "items": {"$ref": "#"}}}},
        ["{}", '{"c":[]}', '{"c":[{"c":[{}]}]}'],
        ['{"c":[1]}'],
    ),
    "draft 7 tuple": (
        {"items": [INTEGER, STRING], "additionalItems": False},
        ["[]", '[1,"a"]'],
        ['[1,"a",1]', '["a"]'],
    ),
    "dates are real": (
        {**STRING, "format": "date"},
        ['"2024-02-29"', '"2000-02-29"', '"2023-12-31"'],
        ['"2023-02-29"', '"1900-02-29"', '"2024-02-31"', '"2024-13-01"', '"٢٠٢٤-01-01"'],
    ),
    "date-time": (
        {**STRING, "format": "date-time"},
        ['"2024-02-29T10:00:00Z"', '"2024-01-01T10:00:00.123456+02:00"'],
        ['"2024-02-30T10:00:00Z"', '"2024-01-01T10:00:00"', '"2024-01-01"'],
    ),
    "uuid": (
        {**STRING, "format": "uuid"},
        ['"123E4567-e89b-12d3-a456-426614174000"'],
        ['"123e4567e89b12d3a456426614174000"'],
    ),
    "ipv4": (
        {**STRING, "format": "ipv4"},
        ['"127.0.0.1"'],
        ['"256.0.0.1"', '"1.2.3"', '"01.2.3.4"'],
    ),
    "ipv6": (
        {**STRING, "format": "ipv6"},
        ['"::1"', '"::"', '"fe80::1:2"', '"1:2:3:4:5:6:7:8"', '"1::"'],
        ['"1::2::3"', '"1:2:3:4:5:6:7:8:9"', '":1"'],
    ),
    "email": (
        {**STRING, "format": "email"},
        ['"a.b+c@Example.co.uk"'],
        ['"a@b"', '"a b@c.de"', '"@c.de"', '"a..b@c.de"'],
    ),
    "an object or a string, both bounded": (
        {"anyOf": [{**STRING, "maxLength": 5}, {"type": "array", "items": STRING, "maxItems": 4}]},
        ['"abcde"', "[]", '["a","b","c","d"]'],
        ['"abcdef"', '["a","b","c","d","e"]'],
    ),
    "two bounds for what begins alike": (
        {"anyOf": [{**STRING, "maxLength": 6}, {**STRING, "minLength": 8, "maxLength": 9}]},
        ['"abcdef"', '"abcdefgh"', '""'],
        ['"abcdefg"', '"abcdefghij"'],
    ),
}
# Read by no regex: differences and intersections of languages.
CONDITIONS: dict[str, tuple[Any, list[str], list[str]]] = {
    "oneOf that overlaps": (
        {"oneOf": [INTEGER, {"type": "number"}]},
        ["1.5", "-0.5"],
        ["1", "1.0", "0"],
    ),
    "oneOf of required members": (
        {
            **OBJECT,
            "properties": {"a": INTEGER, "b": STRING, "c": STRING},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        ['{"a":1}', '{"b":""}', '{"a":1,"c":""}'],
        ["{}", '{"a":1,"b":""}', '{"c":""}'],
    ),
    "not, however it is written": (
        {**STRING, "not": {"enum": ["a/b", "c"]}},
        ['"a"', '""', '"cc"'],
        ['"a/b"', r'"a\/b"', '"c"'],
    ),
    "if, then, else": (
        {
            **OBJECT,
            "properties": {"kind": {"enum": ["x", "y"]}, "n": INTEGER, "s": STRING},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "x"}}},
            "then": {"required": ["n"]},
            "else": {"required": ["s"], "properties": {"n": False}},
        },
        ['{"kind":"x","n":1}', '{"kind":"x","n":1,"s":""}', '{"kind":"y","s":""}'],
        ['{"kind":"x"}', '{"kind":"y","n":1,"s":""}', '{"kind":"y"}'],
    ),
    "dependentRequired": (
        {
            **OBJECT,
            "properties": {"a": INTEGER, "b": INTEGER},
            "dependentRequired": {"a": ["b"]},
        },
        ["{}", '{"b":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependencies of draft 7": (
        {
            **OBJECT,
            "properties": {"a": INTEGER, "b": INTEGER},
            "dependencies": {"a": {"properties": {"b": {"const": 2}}}},
        },
        ["{}", '{"b":1}', '{"a":1,"b":2}', '{"a":1}'],
        ['{"a":1,"b":1}'],
    ),
    "contains": (
        {"type": "array", "items": INTEGER, "contains": {"const": 5}},
        ["[5]", "[1,5]", "[5,5,2]"],
        ["[]", "[1]", "[55]"],
    ),
    "uniqueItems of few values": (
        {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True, "minItems": 1},
        ['["a"]', '[1,"b","a"]'],
        ["[]", '["a","a"]', '[1,"a",1]'],
    ),
    "counts of members": (
        {
            **OBJECT,
            "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER},
            "minProperties": 2,
            "maxProperties": 3,
        },
        ['{"a":1,"d":1}', '{"a":1,"b":1,"c":1}', '{"c":1,"d":1}'],
        ["{}", '{"c":1}', '{"a":1,"b":1,"c":1,"d":1}'],
    ),
    "several patterns for keys": (
        {
            **OBJECT,
            "patternProperties": {"^a": INTEGER, "z$": {"maximum": 5}},
            "additionalProperties": {"type": "boolean"},
        },
        ['{"a":9}', '{"az":5,"b":true}', '{"z":1}'],
        ['{"az":6}', '{"a":true}', '{"b":1}'],
    ),
    "the standard's reading": (
        {
            "x-pagemill-standard": True,
            **OBJECT,
            "properties": {"a": INTEGER},
            "patternProperties": {"^x-": STRING},
            "propertys": "an annotation",
        },
        ['{"a":1}', '{"other":[1]}', '{"a":1,"x-b":"","c":null}'],
        ['{"a":1,"a":2}', '{"a":1,"a":true}', '{"x-b":1}', r'{"\u0061":1}'],
    ),
}
CASES = OUTLINES_WRONG | CONDITIONS | LANGUAGES


@pytest.mark.parametrize("name", CASES)
def test_language(name: str, language) -> None:
    schema, inside, outside = CASES[name]
    spoken = language(schema)
    for text in inside:
        assert spoken.accepts(text), f"{text} is valid"
        json.loads(text)
    for text in outside:
        assert not spoken.accepts(text), f"{text} is not valid"


REFUSED: dict[str, tuple[Any, SchemaReason, str]] = {
    "not": ({"not": {}}, SchemaReason.SCHEMA_UNSATISFIABLE, ""),
    "a condition on free keys": (
        {**OBJECT, "not": {"required": ["a"]}},
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/not/required",
    ),
    "a format as a condition": (
        {**STRING, "not": {"format": "uri"}},
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/not/format",
    ),
    "a letter's case": ({"maxlength": 3}, SchemaReason.KEYWORD_UNSUPPORTED, "/maxlength"),
    "a typo": ({"propertys": {}}, SchemaReason.KEYWORD_UNSUPPORTED, "/propertys"),
    "nullable": (
        {"type": "string", "nullable": True},
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/nullable",
    ),
    "below": (
        {"properties": {"a/b": {"items": {"maxContains": 2}}}},
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/properties/a~1b/items/maxContains",
    ),
    "uniqueItems": (
        {"type": "array", "uniqueItems": True},
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/uniqueItems",
    ),
    "format": ({**STRING, "format": "zip"}, SchemaReason.KEYWORD_UNSUPPORTED, "/format"),
    "look-ahead": ({**STRING, "pattern": "(?=a)b"}, SchemaReason.KEYWORD_UNSUPPORTED, "/pattern"),
    "remote": ({"$ref": "https://example.com/s"}, SchemaReason.KEYWORD_UNSUPPORTED, "/$ref"),
    "reference to nowhere": ({"$ref": "#/$defs/x"}, SchemaReason.SCHEMA_INVALID, "/$ref"),
    "reference to itself": ({"$ref": "#"}, SchemaReason.SCHEMA_INVALID, ""),
    "type": ({"type": "text"}, SchemaReason.SCHEMA_INVALID, "/type"),
    "length": ({**STRING, "maxLength": -1}, SchemaReason.SCHEMA_INVALID, "/maxLength"),
    "false": (False, SchemaReason.SCHEMA_UNSATISFIABLE, ""),
    "contradiction": (
        {**INTEGER, "minimum": 5, "maximum": 4},
        SchemaReason.SCHEMA_UNSATISFIABLE,
        "",
    ),
    "endless": (
        {**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        SchemaReason.SCHEMA_UNSATISFIABLE,
        "",
    ),
    "no value": ({"enum": []}, SchemaReason.SCHEMA_UNSATISFIABLE, ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_place(name: str) -> None:
    schema, reason, at = REFUSED[name]
    with pytest.raises(SchemaRefused) as refused:
        compile_schema(schema, Builder.CORE)
    assert (refused.value.reason, refused.value.at) == (reason, at)


def test_annotations_change_nothing() -> None:
    annotated = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A",
        "description": "b",
        "default": "c",
        "examples": ["d"],
        "$comment": "e",
        "x-vendor": True,
        "vendor": {"not": "a keyword"},
        **STRING,
    }
    assert lower(annotated) == lower(STRING)


def test_the_plain_regex_holds_no_marks() -> None:
    schema = {"type": "array", "items": {**STRING, "maxLength": 20}, "maxItems": 9}
    assert not re.search(r"\\x\{(?:[0-9A-F]|1[0-9A-F])\}", lower(schema))
