"""docs/schemas.md: its snippets print what it shows, its tables are what decoding does."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pagemill._core import ByteDfa
from pagemill.schemas import SchemaReason, SchemaRefused, library, lint, load, lower
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.lowering.formats import FORMATS
from pagemill.schemas.lowering.keywords import CONSTRAINTS, DEFINITIONS, IN_PLACE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schemas.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLE = next(text for language, text in BLOCKS if language == "json")


def code_words(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_example_is_as_good_as_its_advice():
    assert lint(load(EXAMPLE)) == []
    assert lower(load(EXAMPLE))


def test_python_prints_what_the_page_shows(tmp_path, monkeypatch, redis_server, redis_client):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAGEMILL_REDIS_URL", redis_server.url)
    (tmp_path / "workshop.json").write_text(EXAMPLE)
    shown = [(language, text) for language, text in BLOCKS if language in {"python", "text"}]
    assert [language for language, _ in shown] == ["python", "text"] * (len(shown) // 2)
    namespace: dict[str, object] = {}
    for (_, code), (_, expected) in zip(shown[::2], shown[1::2], strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/schemas.md", "exec"), namespace)
        assert printed.getvalue() == expected


def test_the_command_has_no_advice_for_the_example(tmp_path):
    (tmp_path / "workshop.json").write_text(EXAMPLE)
    (command,) = [text.split() for language, text in BLOCKS if language == "sh"]
    assert command[0] == "pagemill"
    done = subprocess.run(
        [sys.executable, "-m", "pagemill.extraction.cli", *command[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


ROWS = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
SUPPORTED = [keyword for row in ROWS for keyword in code_words(row)]

# For each keyword a schema that it changes, a text of its language and one outside it.
OBJECT = {"type": "object"}
ARRAY = {"type": "array", "items": {"type": "null"}}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
A = {"properties": {"a": {"type": "null"}}, "required": ["a"]}
AB = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
ONE, BOTH = '{"a":null}', '{"a":null,"b":null}'
USES: dict[str, tuple[dict, str, str]] = {
    "type": ({"type": ["string", "null"]}, "null", "1"),
    "enum": ({"enum": ["a", None, 2]}, "2", "3"),
    "const": ({"const": {"k.k": [1]}}, '{"k.k":[1]}', '{"kxk":[1]}'),
    "properties": (OBJECT | A, '{"a":null}', '{"a":1}'),
    "required": (OBJECT | A, '{"a":null}', "{}"),
    "additionalProperties": (
        OBJECT | {"additionalProperties": {"type": "null"}},
        '{"x":null}',
        '{"x":1}',
    ),
    "patternProperties": (
        OBJECT | {"patternProperties": {"^x": {"type": "null"}}},
        '{"xy":null}',
        '{"y":null}',
    ),
    "propertyNames": (
        OBJECT | {"propertyNames": {"enum": ["x"]}, "additionalProperties": {"type": "null"}},
        '{"x":null}',
        '{"y":null}',
    ),
    "unevaluatedProperties": (
        OBJECT | A | {"unevaluatedProperties": False},
        '{"a":null}',
        '{"b":1}',
    ),
    "minProperties": (OBJECT | A | {"minProperties": 1}, '{"a":null}', "{}"),
    "maxProperties": (
        OBJECT | {"additionalProperties": {"type": "null"}, "maxProperties": 1},
        '{"x":null}',
        '{"x":null,"y":null}',
    ),
    "items": (ARRAY, "[null]", "[1]"),
    "prefixItems": ({"type": "array", "prefixItems": [STRING], "items": False}, '["a"]', "[1]"),
    "additionalItems": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [STRING],
            "additionalItems": False,
        },
        '["a"]',
        '["a",1]',
    ),
    "unevaluatedItems": (
        {"type": "array", "prefixItems": [STRING], "unevaluatedItems": False},
        '["a"]',
        '["a",1]',
    ),
    "minItems": (ARRAY | {"minItems": 1}, "[null]", "[]"),
    "maxItems": (ARRAY | {"maxItems": 1}, "[null]", "[null,null]"),
    "uniqueItems": (ARRAY | {"maxItems": 1, "uniqueItems": True}, "[null]", "[null,null]"),
    "minLength": (STRING | {"minLength": 2}, '"é\\n"', '"é"'),
    "maxLength": (STRING | {"maxLength": 2}, '"é\\n"', '"abc"'),
    "pattern": (STRING | {"pattern": "^a|b$"}, '"ac"', '"c"'),
    "format": (STRING | {"format": "date"}, '"2024-02-29"', '"2023-02-29"'),
    "minimum": (INTEGER | {"minimum": -5}, "-5", "-6"),
    "maximum": (INTEGER | {"maximum": 17}, "17", "18"),
    "exclusiveMinimum": (INTEGER | {"exclusiveMinimum": 3}, "4", "3"),
    "exclusiveMaximum": (INTEGER | {"exclusiveMaximum": 3}, "2", "3"),
    "multipleOf": ({"type": "number", "multipleOf": 1}, "3", "3.5"),
    "anyOf": ({"anyOf": [{"type": "null"}, INTEGER]}, "7", '"7"'),
    "allOf": ({"allOf": [INTEGER, {"minimum": 3}]}, "7", "2"),
    "oneOf": ({"oneOf": [{"type": "null"}, INTEGER]}, "7", '"7"'),
    "not": (INTEGER | {"not": {"const": 3}}, "4", "3"),
    "if": (INTEGER | {"if": {"minimum": 5}, "then": {"const": 7}}, "7", "8"),
    "then": (INTEGER | {"if": {"minimum": 5}, "then": {"const": 7}}, "4", "5"),
    "else": (INTEGER | {"if": {"minimum": 5}, "else": {"const": 3}}, "3", "4"),
    "contains": (ARRAY | {"contains": {"type": "null"}}, "[null]", "[]"),
    "minContains": (ARRAY | {"contains": {"type": "null"}, "minContains": 1}, "[null]", "[]"),
    "dependentRequired": (OBJECT | AB | {"dependentRequired": {"a": ["b"]}}, BOTH, ONE),
    "dependentSchemas": (
        OBJECT | AB | {"dependentSchemas": {"a": {"required": ["b"]}}},
        BOTH,
        ONE,
    ),
    "dependencies": (OBJECT | AB | {"dependencies": {"a": ["b"]}}, BOTH, ONE),
    "$ref": ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}, "null", "1"),
    "$defs": ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}, "null", "1"),
    "definitions": (
        {"$ref": "#/definitions/n", "definitions": {"n": {"type": "null"}}},
        "null",
        "1",
    ),
}


def test_the_table_has_exactly_the_keywords_of_the_lowering():
    assert sorted(SUPPORTED) == sorted(CONSTRAINTS | IN_PLACE | DEFINITIONS)


@pytest.mark.parametrize("keyword", SUPPORTED)
def test_a_keyword_of_the_table_is_honoured(keyword):
    schema, inside, outside = USES[keyword]
    assert keyword in json.dumps(schema)
    dfa = ByteDfa.from_bytes(compile_schema(load(schema))[0])
    assert dfa.accepts(inside.encode())
    assert not dfa.accepts(outside.encode())


def paragraph(beginning: str) -> list[str]:
    (text,) = re.findall(rf"^{beginning}(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    return code_words(text)


def test_the_formats_are_those_of_the_lowering():
    assert sorted(paragraph("Formats: ")) == sorted(FORMATS)


@pytest.mark.parametrize("keyword", paragraph("Refused: "))
def test_a_refused_keyword_is_refused(keyword):
    with pytest.raises(SchemaRefused) as refused:
        lower({"type": "object", keyword: {}})
    assert refused.value.reason is SchemaReason.KEYWORD_UNSUPPORTED
    assert refused.value.at == f"/{keyword}"


def test_the_library_is_listed_in_full():
    assert paragraph("Ready-made schemas") == list(library.names())
