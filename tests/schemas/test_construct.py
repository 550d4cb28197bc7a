"""The core's automata: equal to those of Outlines, and what only they can say."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill._core import Ambiguous, ByteDfa, Expressions, TooManyStates
from pagemill.schemas import SchemaRefused, library
from pagemill.schemas.compile_process import Builder
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.lowering import multiples

STRING = {"type": "string"}


def dfa_of(schema: Any) -> ByteDfa:
    return ByteDfa.from_bytes(compile_schema(schema, Builder.CORE)[0])


@pytest.mark.parametrize("name", library.names())
def test_library_tables_equal_those_of_outlines(name: str) -> None:
    schema = library.get(name)
    outlines, core = (compile_schema(schema, b) for b in (Builder.OUTLINES, Builder.CORE))
    assert (outlines[2], core[2]) == ("outlines", "core")
    assert outlines[:2] == core[:2]


@pytest.mark.parametrize("bound", [2**31 - 1, 2**53, 2**63 - 1])
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_bounds_of_many_digits_take_the_core(kind: str, bound: int) -> None:
    """Outlines' automaton of the digits below them takes from a second to for ever."""
    table, _, builder = compile_schema({"type": kind, "minimum": -bound, "maximum": bound})
    dfa = ByteDfa.from_bytes(table)
    assert builder == "core"
    for value in (0, bound - 1, bound, -bound):
        assert dfa.accepts(str(value).encode())
    for value in (bound + 1, -bound - 1, 10 * bound):
        assert not dfa.accepts(str(value).encode())


CASES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "pattern and length": (
        {**STRING, "pattern": "^[a-z]+(-[a-z]+)*$", "minLength": 3, "maxLength": 6},
        ["abc", "a-b", "abc-de", "abcdef"],
        ["ab", "a-", "abcdef-", "abcdefg", "abc-de-f", "-ab"],
    ),
    "pattern and length, both unanchored": (
        {**STRING, "pattern": "ab", "maxLength": 5},
        ["ab", "xxxab", "é😀ab!"],
        ["xxxxab", "xxxxx", ""],
    ),
    "pattern with gaps between its lengths": (
        {**STRING, "pattern": "^(abc)*$", "minLength": 4, "maxLength": 8},
        ["abcabc"],
        ["", "abc", "abcabcabc", "abca"],
    ),
    "two patterns": (
        {**STRING, "allOf": [{"pattern": "^a"}, {"pattern": "z$"}, {"pattern": "[0-9]"}]},
        ["a0z", "abc1xyz"],
        ["az", "0az", "a0"],
    ),
    "pattern and format": (
        {**STRING, "format": "date", "pattern": "^2"},
        ["2024-02-29"],
        ["1999-01-01", "2023-02-29"],
    ),
    "format and length": (
        {**STRING, "format": "email", "maxLength": 10},
        ["a@b.de", "ab@cde.org"],
        ["abc@cde.org", "a@b"],
    ),
    "uri and length": (
        {**STRING, "format": "uri", "maxLength": 2000},
        ["https://example.com/a", "https://a/" + "x" * 1990],
        ["https://a/" + "x" * 1991, "nothing"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_strings(name: str) -> None:
    schema, inside, outside = CASES[name]
    dfa = dfa_of(schema)
    for text in inside + outside:
        word = json.dumps(text, ensure_ascii=False).encode()
        assert dfa.accepts(word) == (text in inside), text


def test_a_counter_beside_a_pattern_costs_no_states() -> None:
    dfa = dfa_of({**STRING, "pattern": "^[a-z]+( [a-z]+)*$", "maxLength": 5000})
    assert dfa.has_counters
    assert dfa.num_states < 12


@given(
    st.sampled_from(["^[ab]*$", "^a*b$", "b", "^(ab|ba)+$", "^a{2,3}b*$", "^(a|bb)*a$"]),
    st.integers(0, 6),
    st.integers(0, 9),
    st.lists(st.text(alphabet="abc", max_size=11), min_size=40, max_size=80),
)
@settings(max_examples=80, deadline=None)
def test_lengths_of_patterns(pattern: str, low: int, more: int, texts: list[str]) -> None:
    schema = {**STRING, "pattern": pattern, "minLength": low, "maxLength": low + more}
    fits = [t for t in texts if re.search(pattern, t) and low <= len(t) <= low + more]
    try:
        dfa = dfa_of(schema)
    except SchemaRefused:
        assert not fits
        return
    for text in texts:
        assert dfa.accepts(json.dumps(text).encode()) == (text in fits), text


@given(st.sampled_from(["1", "3", "7", "0.1", "0.01", "0.25", "1.5", "12", "0.003", "100"]))
@settings(max_examples=30, deadline=None)
def test_multiples(factor: str) -> None:
    draw = random.Random(factor)
    digits = multiples.automaton(Decimal(factor))
    build = Expressions(100_000)
    node = build.automaton(digits.num_states, digits.edges, digits.finals)
    dfa = ByteDfa.from_bytes(build.table(node)[0])
    for _ in range(300):
        number = Decimal(draw.randrange(-3000, 3000)).scaleb(-draw.randrange(4))
        if draw.random() < 0.5:
            number = (number // Decimal(factor)) * Decimal(factor)
        text = format(number, "f") + draw.choice(["", "0", "00"]) * ("." in format(number, "f"))
        assert dfa.accepts(text.encode()) == (number % Decimal(factor) == 0), text
    assert not any(dfa.accepts(text) for text in (b"", b"-", b".", b"0.", b"-.5", b"1e2"))


def test_multiple_of_within_bounds() -> None:
    dfa = dfa_of({"type": "number", "multipleOf": 0.05, "minimum": 1, "exclusiveMaximum": 20})
    for text in ("1", "1.05", "19.95", "2.5", "3.150"):
        assert dfa.accepts(text.encode()), text
    for text in ("0.95", "20", "1.01", "1e1", "-5"):
        assert not dfa.accepts(text.encode()), text


def test_intersection_and_difference_mind_the_operations() -> None:
    build = Expressions(100)
    plain = build.literal(b"ab")
    counted = build.concat([build.literal(b"a"), build.counted(build.literal(b"b"), 0, 1, 5)])
    for combine in (build.intersect, build.subtract):
        with pytest.raises(Ambiguous):
            combine(plain, counted)
    rest = build.subtract(build.either([plain, build.literal(b"ac")]), plain)
    dfa = ByteDfa.from_bytes(build.table(rest)[0])
    assert (dfa.accepts(b"ac"), dfa.accepts(b"ab")) == (True, False)
    assert build.is_empty(build.subtract(plain, plain))


def test_bounds_on_states_and_arguments() -> None:
    build = Expressions(50)
    with pytest.raises(TooManyStates):
        build.table(build.repeat(build.literal(b"abc"), 40, 40))
    with pytest.raises(ValueError, match="no node"):
        build.concat([7])
    with pytest.raises(ValueError, match="bounds"):
        build.repeat(build.literal(b"a"), 3, 2)
    with pytest.raises(ValueError, match="range"):
        build.characters([(5, 4)])
