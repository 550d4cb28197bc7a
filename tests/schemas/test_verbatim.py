"""`x-pagemill-verbatim` at the root: which strings become spans, and which are named."""

from __future__ import annotations

from typing import Any

import pytest
from pagemill._core import ByteDfa
from pagemill.schemas import SchemaRefused, lint, load
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.lowering.verbatim import left_out, spread

VERBATIM = "x-pagemill-verbatim"
TEXT: dict[str, Any] = {"type": ["string", "null"], "maxLength": 40}
MARKED = {**TEXT, VERBATIM: True}


def record(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A thing.",
        VERBATIM: True,
        "properties": properties,
        "required": list(properties),
    }


def spread_field(field: Any) -> Any:
    return spread(record(a=field))["properties"]["a"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (TEXT, MARKED),
        ({**TEXT, "minLength": 1}, {**MARKED, "minLength": 1}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "A"},
            {"anyOf": [{"type": "string", VERBATIM: True}, {"type": "null"}], "title": "A"},
        ),
        (
            {"type": "object", "properties": {"b": TEXT}},
            {"type": "object", "properties": {"b": MARKED}},
        ),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": MARKED}),
    ],
    ids=str,
)
def test_strings_that_may_be_null_become_spans(field: Any, expected: Any) -> None:
    assert spread_field(field) == expected
    explicit = {**record(a=expected)}
    del explicit[VERBATIM]
    assert compile_schema(load(record(a=field))) == compile_schema(load(explicit))


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"type": "string", "maxLength": 9}, "null"),
        ({**TEXT, "pattern": "^a"}, "pattern"),
        ({"type": ["string", "null"], "format": "date"}, "format"),
        ({**TEXT, "minLength": 3}, "minLength"),
    ],
    ids=str,
)
def test_others_stay_and_are_named(field: Any, why: str) -> None:
    assert spread_field(field) == field
    ((at, reason),) = left_out(record(a=field))
    assert at == "/properties/a"
    assert why in reason
    schema = load(record(a=field))
    assert ("not-verbatim", "/properties/a") in {(w.code, w.pointer) for w in lint(schema)}
    assert not ByteDfa.from_bytes(compile_schema(schema)[0]).has_verbatim


@pytest.mark.parametrize(
    "field",
    [
        {"enum": ["x", None]},
        {"const": "x"},
        {"type": ["number", "null"]},
        {**TEXT, VERBATIM: False},
    ],
    ids=str,
)
def test_choices_numbers_and_what_opts_out_are_no_strings_to_name(field: Any) -> None:
    assert spread_field(field) == field
    assert list(left_out(record(a=field))) == []


def outcome(schema: dict[str, Any]) -> int | str:
    """The number of states, or why there are none."""
    try:
        return compile_schema(load(schema))[1]
    except SchemaRefused as refused:
        return str(refused)


@pytest.mark.parametrize(
    "extra",
    [
        {"if": {"$ref": "#/$defs/t"}, "then": True},
        {"not": {"required": ["a"], "properties": {"a": {"const": "x"}}}},
        {"oneOf": [{"properties": {"a": TEXT}}, {"properties": {"a": {"type": "number"}}}]},
        {"properties": {"a": {"anyOf": [TEXT, {"type": "string", "pattern": "^x"}]}}},
    ],
    ids=str,
)
def test_conditions_and_choices_between_strings_hold_none(extra: dict[str, Any]) -> None:
    """What would be refused if it were marked by hand is left alone."""
    schema = {**record(a={"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}, **extra}
    plain = {key: value for key, value in schema.items() if key != VERBATIM}
    assert outcome(schema) == outcome(plain)


def test_definitions_are_marked_once_for_all_that_refer_to_them() -> None:
    schema = {**record(a={"$ref": "#/$defs/t"}), "$defs": {"t": TEXT}}
    assert spread(schema)["$defs"]["t"] == MARKED
    assert ByteDfa.from_bytes(compile_schema(load(schema))[0]).has_verbatim


def test_a_root_that_is_a_string_speaks_of_itself() -> None:
    assert spread(MARKED) is MARKED
    assert list(left_out(MARKED)) == []
