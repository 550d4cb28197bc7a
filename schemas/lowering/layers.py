"""Schemas as alternatives of conjunctions: `$ref`, `allOf`, `anyOf`, `oneOf` resolved away.

A conjunction is a tuple of layers, each an object schema of which only the keywords that speak
of the value itself are read; a value must satisfy all of them. Alternatives are a list of such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ..errors import SchemaReason, SchemaRefused
from ..walk import escape
from .exclusive import disjoint
from .keywords import CONSTRAINTS, check_keywords, invalid, refuse_keyword
from .values import Values

MAX_ALTERNATIVES = 256


@dataclass(frozen=True, eq=False)
class Layer:
    """A subschema and its place. Compared by place: one place holds one schema."""

    schema: Any
    at: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layer) and other.at == self.at

    def __hash__(self) -> int:
        return hash(self.at)

    def child(self, *tokens: str | int) -> Layer:
        schema = self.schema
        for token in tokens:
            schema = schema[token]
        return Layer(schema, self.at + "".join(f"/{escape(str(token))}" for token in tokens))


Conjunction = tuple[Layer, ...]


class Expander:
    """Expands subschemas of one root into alternatives."""

    def __init__(self, root: Any, values: Values) -> None:
        self.root = root
        self.values = values

    def alternatives(self, layers: Conjunction) -> list[Conjunction]:
        """The alternatives of the conjunction of any subschemas; [] when nothing is valid."""
        return _product(self._expand(layer, frozenset()) for layer in layers)

    def _expand(self, layer: Layer, seen: frozenset[str]) -> list[Conjunction]:
        schema, at = layer.schema, layer.at
        if schema is True:
            return [()]
        if schema is False:
            return []
        if not isinstance(schema, dict):
            raise SchemaRefused(SchemaReason.SCHEMA_INVALID, "not a schema", at=at)
        if at in seen:
            raise SchemaRefused(
                SchemaReason.SCHEMA_INVALID, "a $ref that leads back to itself", at=at
            )
        seen |= {at}
        check_keywords(schema, at)
        factors: list[list[Conjunction]] = []
        if any(keyword in CONSTRAINTS for keyword in schema):
            factors.append([(layer,)])
        if "$ref" in schema:
            factors.append(self._expand(self.resolve(schema["$ref"], at), seen))
        factors += [self._expand(branch, seen) for branch in self._branches(layer, "allOf")]
        if "anyOf" in schema:
            options = [a for b in self._branches(layer, "anyOf") for a in self._expand(b, seen)]
            factors.append(_distinct(options))
        expanded = _product(factors)
        if "oneOf" in schema:
            return self._exclusive(layer, expanded, seen)
        return expanded

    def _branches(self, layer: Layer, keyword: str) -> list[Layer]:
        branches = layer.schema.get(keyword, [])
        if keyword in layer.schema and (not isinstance(branches, list) or not branches):
            raise invalid(keyword, layer.at, "needs a non-empty list of schemas")
        return [layer.child(keyword, index) for index in range(len(branches))]

    def _exclusive(
        self, layer: Layer, around: list[Conjunction], seen: frozenset[str]
    ) -> list[Conjunction]:
        """One branch and no other: only where the branches provably share no value."""
        branches = [self._expand(branch, seen) for branch in self._branches(layer, "oneOf")]
        if sum(map(len, branches)) * max(len(around), 1) > MAX_ALTERNATIVES:
            raise _too_many(layer.at)
        chosen = []
        for index, branch in enumerate(branches):
            others = [o for k, other in enumerate(branches) if k != index for o in other]
            for own in _product([around, branch]):
                for other in others:
                    if not disjoint(self, own, other):
                        raise refuse_keyword(
                            "oneOf",
                            layer.at,
                            what="branches of oneOf that may share a value",
                            advice="use anyOf, or tell the branches apart by a required const",
                        )
                chosen.append(own)
        return chosen

    def resolve(self, reference: Any, at: str) -> Layer:
        """The subschema that a local reference names."""
        if not isinstance(reference, str):
            raise invalid("$ref", at, "a reference is a string")
        if not reference.startswith("#"):
            raise refuse_keyword(
                "$ref", at, what="a reference outside the schema", advice="copy it into $defs"
            )
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            raise refuse_keyword(
                "$ref", at, what="a reference by name", advice="use a pointer such as #/$defs/name"
            )
        found, place = self.root, ""
        for raw in pointer.split("/")[1:]:
            token = raw.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(token)] if isinstance(found, list) else found[token]
            except (KeyError, IndexError, ValueError, TypeError):
                raise invalid("$ref", at, f"{reference} leads nowhere") from None
            place += f"/{raw}"
        return Layer(found, place)


def _product(factors: Iterable[list[Conjunction]]) -> list[Conjunction]:
    result: list[Conjunction] = [()]
    for options in factors:
        if len(result) * len(options) > MAX_ALTERNATIVES:
            raise _too_many("")
        result = [tuple(dict.fromkeys((*done, *option))) for done in result for option in options]
    return result


def _distinct(options: list[Conjunction]) -> list[Conjunction]:
    return list(dict.fromkeys(options))


def _too_many(at: str) -> SchemaRefused:
    return SchemaRefused(
        SchemaReason.SCHEMA_TOO_LARGE,
        f"over {MAX_ALTERNATIVES} alternatives",
        at=at,
        advice="combine fewer anyOf and allOf",
    )
