"""Schemas from example records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.schemas import SchemaRefused, Validator, compile, infer, lint, load

BOOKS = [
    {
        "title": f"Book number {i}",
        "price": 9.5 + i if i % 3 else None,
        "pages": 100 + i,
        "kind": ["paper", "audio"][i % 2],
        "day": "2026-01-02",
        "url": f"https://books.example/{i}",
        "tags": ["new"] * (i % 3),
        "maker": {"name": "Ann", "city": None},
        **({"note": "Signed"} if i == 5 else {}),
    }
    for i in range(8)
]


def test_a_schema_that_extracts_well() -> None:
    schema = infer(BOOKS)
    fields = schema["properties"]
    assert list(fields) == [*BOOKS[0], "note"]
    assert schema["required"] == list(fields)
    assert schema["additionalProperties"] is False
    assert fields["title"] == {"type": "string", "minLength": 1, "maxLength": 20}
    assert fields["price"] == {"type": ["number", "null"], "minimum": 0}
    assert fields["pages"] == {"type": ["integer", "null"], "minimum": 0}
    assert fields["kind"] == {"enum": ["paper", "audio", None]}
    assert fields["day"] == {"type": ["string", "null"], "format": "date"}
    assert fields["url"] == {"type": ["string", "null"], "format": "uri"}
    assert fields["tags"]["maxItems"] == 5
    assert fields["note"]["type"] == ["string", "null"]
    assert {warning.code for warning in lint(schema)} == {"no-description"}
    assert compile(schema).num_states > 0


def test_mixed_values_become_branches() -> None:
    schema = infer([{"a": 1, "b": "x"}, {"a": 2, "b": 3}])
    assert [branch["type"] for branch in schema["properties"]["b"]["anyOf"]] == [
        "string",
        "integer",
        "null",
    ]


@pytest.mark.parametrize(
    ("records", "word"),
    [
        ([], "no example"),
        ([{str(i): 1 for i in range(300)}], "200 different"),
        ([object()], "no JSON value"),
        (({"a": i} for i in range(10_001)), "a sample"),
    ],
)
def test_what_is_refused(records: Any, word: str) -> None:
    with pytest.raises(SchemaRefused, match=word):
        infer(records)


def test_deep_records_are_refused() -> None:
    record: Any = 1
    for _ in range(50):
        record = [record]
    with pytest.raises(SchemaRefused, match="nests deeper"):
        infer([record])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**6) | st.floats(-5, 1e6) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(records=st.lists(JSON, min_size=1, max_size=6))
def test_the_examples_obey_it(records: list[Any]) -> None:
    # But for fields that an example leaves out, and empty strings, which count as null.
    validator = Validator(load(_without_required(infer(records))))
    for record in records:
        assert validator.errors(_with_nulls(record)) == []


def _without_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_required(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_required(inner) for name, inner in value.items()}
        if key == "properties"
        else _without_required(value)
        for key, value in schema.items()
        if key != "required"
    }


def _with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nulls(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_nulls(inner) for inner in value]
    return None if value == "" else value
