"""Schemas made to hurt, through the door that registration uses: `load`, then `compile`.

Each ends within the compiler's own caps, in a refusal that names its reason (or, if it is only
large, in an automaton), and the compiling process serves the next schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pagemill.schemas import SchemaReason, SchemaRefused, load
from pagemill.schemas.compiler import Compiler

TIMEOUT_S = 2.0
MEMORY = 1 << 30
TOO_MUCH = {SchemaReason.SCHEMA_TOO_LARGE, SchemaReason.SCHEMA_COMPILE_TIMEOUT}
NOT_SERVED = TOO_MUCH | {SchemaReason.KEYWORD_UNSUPPORTED}
WRONG = {SchemaReason.SCHEMA_INVALID, SchemaReason.SCHEMA_UNSATISFIABLE}

Made = dict[str, Any] | str | bytes
CASES: dict[str, tuple[Callable[[], Made], set[SchemaReason]]] = {}


def case(reasons: set[SchemaReason]) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def keep(make: Callable[[], Made]) -> Callable[[], Made]:
        CASES[make.__name__] = make, reasons
        return make

    return keep


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    made = Compiler(Path(tmp_path_factory.mktemp("grammars")))
    yield made
    made.close()


@case(NOT_SERVED)
def nested_one_of() -> Made:
    """Every level is one of two things that overlap, each of them the level below."""
    schema: dict[str, Any] = {"type": "object", "minProperties": 1}
    for level in range(12):
        beside = {"type": "object", "properties": {f"k{level}": schema}}
        schema = {"oneOf": [{"type": "object", "properties": {"a": schema}}, beside]}
    return {"type": "object", "properties": {"x": schema}}


@case(TOO_MUCH)
def enum_of_100_000() -> Made:
    return json.dumps({"enum": [f"v{n}" for n in range(100_000)]})


@case(TOO_MUCH)
def megabyte_of_text() -> Made:
    return json.dumps({"type": "string", "description": "x" * 1_000_001})


@case(TOO_MUCH)
def megabyte_of_properties() -> Made:
    return {"properties": {f"field_{n}": {"type": "string"} for n in range(20_000)}}


@case(TOO_MUCH | WRONG)
def brackets() -> Made:
    return "[" * 200_000


@case(TOO_MUCH)
def deep_objects() -> Made:
    return '{"properties":{"a":' * 5_000 + "true" + "}}" * 5_000


@case(TOO_MUCH)
def doubling_references() -> Made:
    """A chain whose links each use the next one twice."""
    defs: dict[str, Any] = {"d0": {"type": "string", "maxLength": 5}}
    for n in range(1, 40):
        below = {"$ref": f"#/$defs/d{n - 1}"}
        defs[f"d{n}"] = {"type": "object", "properties": {"a": below, "b": below}}
    return {"$defs": defs, "$ref": "#/$defs/d39"}


@case(NOT_SERVED)
def long_chain_of_references() -> Made:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 1_000):
        defs[f"d{n}"] = {"$ref": f"#/$defs/d{n - 1}"}
    return {"$defs": defs, "type": "object", "properties": {"a": {"$ref": "#/$defs/d999"}}}


@case(WRONG)
def reference_to_itself() -> Made:
    return {"$ref": "#"}


@case(WRONG)
def references_in_a_ring() -> Made:
    ring = {f"r{n}": {"$ref": f"#/$defs/r{(n + 1) % 50}"} for n in range(50)}
    return {"$defs": ring, "properties": {"a": {"$ref": "#/$defs/r0"}}, "required": ["a"]}


@case(WRONG)
def required_recursion() -> Made:
    return {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@case({SchemaReason.KEYWORD_UNSUPPORTED})
def negated_recursion() -> Made:
    return {"type": "object", "properties": {"a": {"type": "null"}}, "not": {"$ref": "#"}}


@case(TOO_MUCH)
def recursion_of_fifty_by_fifty() -> Made:
    """Fifty kinds of objects that each may hold any of the fifty, and must hold three."""
    kinds = [{"$ref": f"#/$defs/k{n}"} for n in range(50)]
    defs = {
        f"k{n}": {
            "type": "object",
            "properties": {f"f{n}_{m}": {"anyOf": [{"type": "null"}, *kinds]} for m in range(3)},
            "required": [f"f{n}_{m}" for m in range(3)],
        }
        for n in range(50)
    }
    return {"$defs": defs, "$ref": "#/$defs/k0"}


@case(NOT_SERVED)
def nested_repeats() -> Made:
    return {"type": "string", "pattern": "^(((a|b){1,99}c){1,99}d){1,99}$"}


@case(TOO_MUCH)
def far_window() -> Made:
    """What stood 24 characters ago: two states for each bit of it."""
    return {"type": "string", "pattern": "^[ab]*a[ab]{24}$"}


@case(TOO_MUCH)
def crossing_patterns() -> Made:
    return {
        "type": "string",
        "allOf": [{"pattern": f"^([a-z]{{{p}}})*$"} for p in (11, 13, 17, 19, 23)],
    }


@case(NOT_SERVED)
def back_reference() -> Made:
    return {"type": "string", "pattern": "^(a+)\\1$"}


@case(NOT_SERVED)
def look_behind() -> Made:
    return {"type": "string", "pattern": "(?<=(a+)+)b"}


@case(NOT_SERVED | WRONG)
def unclosed_groups() -> Made:
    return {"type": "string", "pattern": "(" * 3_000}


@case(NOT_SERVED)
def groups_in_groups() -> Made:
    return {"type": "string", "pattern": "(" * 2_000 + "a" + ")" * 2_000}


@case(NOT_SERVED | WRONG)
def unicode_property_of_no_name() -> Made:
    return {"type": "string", "pattern": "^\\p{Script=Klingon}{1,9}$"}


@case(TOO_MUCH)
def unicode_classes_at_length() -> Made:
    part = "[\u00e0-\u00ff\u0430-\u044f\u4e00-\u9fff]"
    return {"type": "string", "pattern": f"^({part}{{1,60}}x{part}{{1,60}}y){{1,60}}$"}


@case(NOT_SERVED | WRONG)
def half_a_surrogate() -> Made:
    return {"type": "object", "properties": {"\ud800": {"type": "string"}}}


@case(WRONG)
def key_that_comes_twice() -> Made:
    return '{"type":"object","properties":{"a":{"type":"null"},"a":{"type":"string"}}}'


@case(WRONG)
def number_of_a_million_digits() -> Made:
    return '{"type":"integer","minimum":' + "9" * 900_000 + "}"


@case(WRONG | TOO_MUCH)
def exponent_out_of_reach() -> Made:
    return '{"type":"number","maximum":1e400}'


@case(TOO_MUCH)
def a_billion_items() -> Made:
    return {"type": "array", "items": {"type": "null"}, "minItems": 10**9}


@case(TOO_MUCH)
def a_trillion_characters() -> Made:
    return {"type": "string", "minLength": 10**12}


@case(TOO_MUCH)
def counts_that_begin_alike() -> Made:
    """Arrays of which only the length tells the kind, so that no counter can say it."""
    short = {"type": "string", "pattern": "^[a-c]+$", "maxLength": 400}
    long = {"type": "string", "pattern": "^[a-b]+d?$", "minLength": 300}
    kinds = [
        {"type": "array", "items": short, "maxItems": 90},
        {"type": "array", "items": long, "minItems": 50},
    ]
    return {"type": "array", "items": {"anyOf": kinds}, "minItems": 40, "maxItems": 300}


@case(NOT_SERVED)
def multiple_of_a_prime() -> Made:
    return {"type": "integer", "multipleOf": 1_000_003}


@case(NOT_SERVED)
def many_free_keys() -> Made:
    return {
        "type": "object",
        "patternProperties": {
            f"{a}.*{a}": {"type": "integer", "minimum": n} for n, a in enumerate("abcdefghij")
        },
    }


@case(NOT_SERVED)
def all_of_any_of() -> Made:
    """Twenty choices of three at once: 3 ** 20 alternatives."""
    choice = [{"minProperties": n} for n in range(3)]
    return {"type": "object", "properties": {"a": True}, "allOf": [{"anyOf": choice}] * 20}


@case(NOT_SERVED)
def conditions_on_conditions() -> Made:
    schema: dict[str, Any] = {"required": ["a"]}
    for n in range(14):
        schema = {"if": schema, "then": {"required": [f"b{n}"]}, "else": {"not": schema}}
    names = ["a", *(f"b{n}" for n in range(14))]
    return {"type": "object", "properties": {name: {"type": "null"} for name in names}, **schema}


@case(NOT_SERVED)
def fetched_from_inside() -> Made:
    return {"$ref": "http://127.0.0.1:6379/schema.json"}


@case(NOT_SERVED)
def fetched_from_the_disk() -> Made:
    return {"properties": {"a": {"$ref": "file:///etc/passwd"}}}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_hostile_schemas_are_refused(compiler: Compiler, name: str) -> None:
    make, reasons = CASES[name]
    refused: SchemaRefused | None = None
    try:
        compiler.compile(load(make()), TIMEOUT_S, MEMORY)
    except SchemaRefused as error:
        refused = error
    if refused is None:
        # What is nothing but large may be ready in time, on a machine that is fast enough.
        assert reasons == TOO_MUCH
    else:
        assert refused.reason in reasons, str(refused)
        assert refused.message
    made = compiler.compile({"type": "string", "maxLength": len(CASES)}, 60.0, MEMORY)
    assert made.num_states > 1
