"""Random schemas against a JSON Schema validator, in both directions."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pagemill._core import ByteDfa, RowState
from pagemill.schemas import SchemaReason, SchemaRefused, library
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.lowering import numbers

KEYS = ["a", "b", 'c"', "ab"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-30, 30),
    st.sampled_from([0.5, -2.25, 10.75, 3.125]),
    st.text(alphabet='ab"\\\n é😀', max_size=5),
)


def bounds(low: str, high: str, largest: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(
        st.none() | st.integers(0, largest // 2), st.none() | st.integers(largest // 2, largest)
    ).map(lambda pair: {k: v for k, v in zip((low, high), pair, strict=True) if v is not None})


def number_schemas(draw: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    for keyword in draw(
        st.sets(
            st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
            max_size=2,
        )
    ):
        schema[keyword] = draw(st.integers(-20, 20) | st.sampled_from([0.5, -1.75, 10.25]))
    return schema


@st.composite
def schemas(draw: Any, depth: int = 2) -> dict[str, Any]:
    kinds = ["null", "boolean", "number", "string", "enum"]
    kind = draw(st.sampled_from(kinds + (["array", "object", "anyOf", "allOf"] if depth else [])))
    inner = schemas(depth=depth - 1)
    if kind in ("null", "boolean"):
        return {"type": kind}
    if kind == "number":
        return number_schemas(draw)
    if kind == "string":
        return {"type": "string", **draw(bounds("minLength", "maxLength", 6))}
    if kind == "enum":
        return {"enum": draw(st.lists(SCALARS, min_size=1, max_size=4))}
    if kind == "array":
        return {"type": "array", "items": draw(inner), **draw(bounds("minItems", "maxItems", 6))}
    if kind == "object":
        properties = draw(st.dictionaries(st.sampled_from(KEYS), inner, max_size=3))
        required = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=2))
        return {
            "type": "object",
            "properties": properties,
            "required": [key for key in required if key in properties],
            "additionalProperties": False,
        }
    return {kind: draw(st.lists(inner, min_size=1, max_size=3))}


def automaton(schema: Any) -> ByteDfa:
    try:
        return ByteDfa.from_bytes(compile_schema(schema)[0])
    except SchemaRefused as refusal:
        assume(refusal.reason is not SchemaReason.SCHEMA_UNSATISFIABLE)
        raise


def random_text(dfa: ByteDfa, draw: random.Random, limit: int = 400) -> bytes:
    """A word of the language: at random at first, then by the shortest way to the end."""
    row = RowState()
    row.state = dfa.start
    text = bytearray()
    while len(text) < limit * 2:
        if dfa.is_final(row.state) and (not dfa.has_edges(row.state) or draw.random() < 0.2):
            break
        moves = []
        for byte in range(256):
            moved = row.copy()
            if dfa.step(moved, byte):
                moves.append((byte, moved))
        assert moves, f"a dead end after {bytes(text)!r}"
        if len(text) > draw.randrange(limit):
            nearest = min(dfa.distance(moved.state) for _, moved in moves)
            moves = [move for move in moves if dfa.distance(move[1].state) == nearest]
        byte, row = draw.choice(moves)
        text.append(byte)
    assert dfa.is_final(row.state)
    return bytes(text)


@given(schemas(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_all_that_can_be_written_is_valid(schema: dict[str, Any], seed: int) -> None:
    dfa = automaton(schema)
    validator = jsonschema.Draft202012Validator(schema)
    draw = random.Random(seed)
    for _ in range(15):
        text = random_text(dfa, draw)
        value = json.loads(text, parse_float=Decimal)
        assert validator.is_valid(value), text


@st.composite
def conditional(draw: Any) -> dict[str, Any]:
    """A schema with conditions beside declared members, items or bounds."""
    inner = schemas(depth=1)
    around: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"type": "object", "properties": {key: draw(inner) for key in KEYS[:3]}},
                {"type": "array", "items": draw(schemas(depth=0)), "maxItems": 4},
                draw(schemas(depth=0)),
                {},
            ]
        )
    )
    if "properties" in around:
        some = st.lists(st.sampled_from(KEYS), unique=True, min_size=1, max_size=2)
        inner = st.one_of(
            inner,
            some.map(lambda names: {"required": names}),
            schemas(depth=0).map(lambda schema: {"properties": {"a": schema}}),
        )
    kind = draw(st.sampled_from(["oneOf", "not", "if", "contains", "dependent"]))
    if kind == "oneOf":
        around["oneOf"] = draw(st.lists(inner, min_size=2, max_size=3))
    elif kind == "if":
        around |= {"if": draw(inner), "then": draw(inner), "else": draw(inner)}
    elif kind == "dependent":
        around["dependentSchemas"] = {"a": draw(inner)}
        around["dependentRequired"] = {"b": draw(st.lists(st.sampled_from(KEYS), max_size=2))}
    else:
        around[kind] = draw(inner)
    if draw(st.booleans()):
        around["x-pagemill-standard"] = True
    return around


@given(conditional(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_conditions_let_nothing_invalid_be_written(schema: dict[str, Any], seed: int) -> None:
    try:
        dfa = ByteDfa.from_bytes(compile_schema(schema)[0])
    except SchemaRefused:
        return
    validator = jsonschema.Draft202012Validator(schema)
    draw = random.Random(seed)
    for _ in range(10):
        text = random_text(dfa, draw, limit=60)
        assert validator.is_valid(json.loads(text, parse_float=Decimal)), text


def in_order(schema: Any, value: Any) -> Any:
    """The value with members in an order in which some schema of the tree declares them."""
    if isinstance(value, dict):
        return {key: in_order(schema, value[key]) for key in sorted(value, key=KEYS.index)}
    if isinstance(value, list):
        return [in_order(schema, item) for item in value]
    return value


def sorted_keys(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: {k: sorted_keys(value[k]) for k in sorted(value, key=KEYS.index)}
            if key == "properties"
            else sorted_keys(value)
            for key, value in schema.items()
            if key != "enum"
        } | ({"enum": schema["enum"]} if "enum" in schema else {})
    return [sorted_keys(item) for item in schema] if isinstance(schema, list) else schema


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(schemas(), st.lists(VALUES, min_size=10, max_size=30), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_exactly_the_valid_values_can_be_written(
    schema: dict[str, Any], values: list[Any], seed: int
) -> None:
    """Random values, and words of the language changed a little."""
    schema = sorted_keys(schema)
    dfa = automaton(schema)
    validator = jsonschema.Draft202012Validator(schema)
    draw = random.Random(seed)
    near = [changed(json.loads(random_text(dfa, draw)), draw) for _ in range(10)]
    for value in values + near:
        value = in_order(schema, value)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if "e" in text.lower().replace("true", "").replace("false", "") or "-0" in text:
            continue  # spellings of numbers that are never written
        assert dfa.accepts(text.encode()) == validator.is_valid(value), text


def changed(value: Any, draw: random.Random) -> Any:
    """The value with one leaf, item or member changed."""
    if isinstance(value, list) and value and draw.random() < 0.8:
        copy = list(value)
        index = draw.randrange(len(copy))
        action = draw.randrange(3)
        if action == 0:
            del copy[index]
        elif action == 1:
            copy.insert(index, copy[index])
        else:
            copy[index] = changed(copy[index], draw)
        return copy
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        if draw.random() < 0.3:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, str):
        return value + draw.choice(["", "a", '"', "é"])
    if isinstance(value, bool) or value is None:
        return draw.choice([True, False, None, 0, "a"])
    if isinstance(value, int):
        return value + draw.choice([-1, 0, 1, 10])
    return draw.choice([0, 1, None, "", [], {}])


@pytest.mark.parametrize("name", library.names())
def test_library_records(name: str) -> None:
    schema = library.get(name)
    dfa = automaton(schema)
    cls = jsonschema.Draft202012Validator
    validator = cls(schema, format_checker=cls.FORMAT_CHECKER)
    draw = random.Random(name)
    for _ in range(8):
        text = random_text(dfa, draw, limit=1500)
        value = json.loads(text)
        assert validator.is_valid(value), text


@given(
    st.decimals(-2000, 2000, places=3) | st.integers(-2000, 2000).map(Decimal),
    st.decimals(0, 3000, places=2) | st.integers(0, 30).map(Decimal),
    st.booleans(),
    st.booleans(),
    st.lists(st.decimals(-5, 5, places=4), min_size=20, max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_number_bounds_are_exact(
    low: Decimal, width: Decimal, low_in: bool, high_in: bool, steps: list[Decimal]
) -> None:
    high = low + width
    lower, upper = numbers.Bound(low, low_in), numbers.Bound(high, high_in)
    real, whole = numbers.number(lower, upper), numbers.integer(lower, upper)
    for step in [Decimal(0), *steps]:
        for value in (low + step, high + step, (low + step).to_integral_value()):
            inside = (low < value or (low_in and low == value)) and (
                value < high or (high_in and high == value)
            )
            text = format(abs(value) if value == 0 else value, "f")
            assert bool(real and re.fullmatch(real, text)) == inside
            if value == value.to_integral_value():
                text = str(int(value))
                assert bool(whole and re.fullmatch(whole, text)) == inside
