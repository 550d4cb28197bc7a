"""From a schema to its term: the recursion over subschemas, with its bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from ..errors import SchemaReason, SchemaRefused
from . import multiples, numbers
from .charset import ANY
from .containers import array_term, object_term
from .facts import decimal, each, number_bounds, types
from .keywords import invalid, refuse_keyword
from .layers import Conjunction, Expander, Layer
from .strings import string
from .terms import NEVER, Either, Mapping, Number, String, Term, Text, either
from .terms import Array as ArrayTerm
from .values import Values, json_text

MAX_TERMS = 20_000
MAX_DEPTH = 48
# How deep a value nests of which the schema says nothing.
FREE_DEPTH = 2


class Builder:
    """Builds the term of one root schema.

    A subschema that contains itself is followed `max_recursion` times on one path; what would
    lie deeper is left out, so optional members, array items and alternatives end the recursion.
    """

    def __init__(self, root: Any, max_recursion: int) -> None:
        self.expander = Expander(root, Values(root))
        self.max_recursion = max_recursion
        self.recursive = False
        self._path: list[Conjunction] = []
        self._terms = 0

    def root(self) -> Term:
        return self.term((Layer(self.expander.root, ""),))

    def term(self, layers: Conjunction) -> Term:
        """The term of what satisfies all of the subschemas."""
        if self._path.count(layers) >= self.max_recursion and layers:
            self.recursive = True
            return NEVER
        with self._entered(layers):
            conjunctions = self.expander.alternatives(layers)
            return either([self._conjunction(conjunction) for conjunction in conjunctions])

    @contextmanager
    def _entered(self, layers: Conjunction) -> Iterator[None]:
        at = layers[-1].at if layers else ""
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"over {MAX_TERMS} subschemas once references are resolved",
                at=at,
                advice="split the schema, or use fewer nested references",
            )
        if len(self._path) >= MAX_DEPTH:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE, f"nests over {MAX_DEPTH} levels deep", at=at
            )
        self._path.append(layers)
        try:
            yield
        finally:
            self._path.pop()

    def _conjunction(self, layers: Conjunction) -> Term:
        listed = self.expander.values.listed(layers)
        if listed is not None:
            return either([self._constant(value, layers) for value in listed])
        allowed = types(layers, infer=True)
        if not layers:
            return free(FREE_DEPTH)
        options: list[Term] = []
        if "null" in allowed:
            options.append(Text("null"))
        if "boolean" in allowed:
            options.append(Either((Text("true"), Text("false"))))
        if "number" in allowed or "integer" in allowed:
            options.append(_number(layers, whole="number" not in allowed))
        if "string" in allowed:
            options.append(string(layers))
        if "array" in allowed:
            options.append(array_term(layers, self))
        if "object" in allowed:
            options.append(object_term(layers, self))
        return either(options)

    def _constant(self, value: Any, layers: Conjunction) -> Term:
        try:
            return Text(json_text(value))
        except ValueError as error:
            raise invalid("enum", layers[0].at, f"a value without JSON text ({error})") from None


def _number(layers: Conjunction, *, whole: bool) -> Term:
    factors: dict[Decimal, None] = {}
    for value, layer in each(layers, "multipleOf"):
        factor = decimal(value, "multipleOf", layer)
        if factor <= 0:
            raise invalid("multipleOf", layer.at, "needs a number above 0")
        if (1 / factor) % 1 == 0 and whole:
            continue
        if factor == 1:
            whole = True
        elif not multiples.is_small(factor):
            raise refuse_keyword("multipleOf", layer.at, what="multipleOf of many digits")
        else:
            factors[factor] = None
    lower, upper = number_bounds(layers)
    if whole:
        regex = numbers.integer(lower, upper)
    else:
        regex = numbers.number(lower, upper, exponent=not factors)
    return NEVER if regex is None else Number(regex, tuple(factors))


def free(depth: int) -> Term:
    """Any value, nested at most `depth` levels."""
    text = String(ANY, 0, None)
    options: list[Term] = [
        Text("null"),
        Text("true"),
        Text("false"),
        Number(numbers.NUMBER),
        text,
    ]
    if depth > 0:
        inner = free(depth - 1)
        options += [ArrayTerm((), inner, 0, None), Mapping(text, inner, 0, None)]
    return Either(tuple(options))


MAX_SCHEMA_BYTES = 1 << 20
RECURSION_DEPTHS = (4, 3, 2, 1)


def check_size(schema: Any) -> None:
    """SchemaRefused for a schema too large or too deep to look at."""
    try:
        size = len(json.dumps(schema))
    except RecursionError:
        size = MAX_SCHEMA_BYTES + 1
    except (TypeError, ValueError) as error:
        raise SchemaRefused(SchemaReason.SCHEMA_INVALID, f"not JSON ({error})") from None
    if size > MAX_SCHEMA_BYTES:
        raise SchemaRefused(
            SchemaReason.SCHEMA_TOO_LARGE, f"the schema has over {MAX_SCHEMA_BYTES} bytes"
        )
