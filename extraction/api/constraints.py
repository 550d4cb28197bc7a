"""Automata of what answers are bound to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pagemill import schemas
from pagemill.schemas import CompiledSchema

from ..bound_schema import BoundSchema, bind
from .openai_formats import Constraint

_DEPTH = 4
_MAX_ITEMS = 64
_MAX_CHARACTERS = 4000
_MAX_NAME = 200


@dataclass(frozen=True)
class Bounds:
    """What an answer is bound by; `tag` is the name under which it is counted.

    `schema` is None for texts and for any object.
    """

    grammar: CompiledSchema
    tag: str
    schema: BoundSchema | None = None


def compile_constraint(constraint: Constraint) -> Bounds:
    """Return the bounds that a constraint means; SchemaRefused."""
    if constraint.choices:
        grammar = schemas.compile_choices(constraint.choices)
        return Bounds(grammar, grammar.hash)
    if constraint.schema is None:
        return Bounds(any_object(), "json_object")
    bound = bind(dict(constraint.schema))
    return Bounds(bound.grammar, bound.hash, bound)


@functools.cache
def any_object() -> CompiledSchema:
    """Any JSON object, nested up to five deep: an automaton has to end somewhere."""
    return schemas.compile(_object(_DEPTH))


def _object(depth: int) -> dict[str, Any]:
    return {
        "type": "object",
        "propertyNames": {"maxLength": _MAX_NAME},
        "additionalProperties": _value(depth),
    }


def _value(depth: int) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": _MAX_CHARACTERS},
        {"type": ["number", "boolean", "null"]},
    ]
    if depth > 0:
        kinds.append({"type": "array", "items": _value(depth - 1), "maxItems": _MAX_ITEMS})
        kinds.append(_object(depth - 1))
    return {"anyOf": kinds}
