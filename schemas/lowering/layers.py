"""Schemas as alternatives of conjunctions: references, combinations and conditions resolved away.

A conjunction is a tuple of layers, each an object schema of which only the keywords that speak
of the value itself are read; a value must satisfy all of them, and must not satisfy those that
are negated. Alternatives are a list of such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ..errors import SchemaReason, SchemaRefused
from ..walk import escape
from .conditions import conditions
from .exclusive import disjoint
from .keywords import CONSTRAINTS, STANDARD, check_keywords, invalid, refuse_keyword
from .values import Values

MAX_ALTERNATIVES = 256


@dataclass(frozen=True, eq=False)
class Layer:
    """A subschema and its place. Compared by place: one place holds one schema.

    One that is `checked` says which values are valid, but nothing of how values are written: which
    members an object has and in which order, or which type is meant where none is stated.
    """

    schema: Any
    at: str
    checked: bool = False
    negated: bool = False

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Layer)
            and other.at == self.at
            and (other.checked, other.negated) == (self.checked, self.negated)
        )

    def __hash__(self) -> int:
        return hash(self.at)

    def child(self, *tokens: str | int) -> Layer:
        schema = self.schema
        for token in tokens:
            schema = schema[token]
        at = self.at + "".join(f"/{escape(str(token))}" for token in tokens)
        return Layer(schema, at, self.checked)

    def said(self, schema: Any, *tokens: str) -> Layer:
        """What a keyword of this layer says, put as a schema of its own."""
        at = self.at + "".join(f"/{escape(token)}" for token in tokens)
        return Layer(schema, at, self.checked)

    def negation(self) -> Layer:
        return Layer(self.schema, self.at, self.checked, negated=True)


Conjunction = tuple[Layer, ...]


class Expander:
    """Expands subschemas of one root into alternatives."""

    def __init__(self, root: Any, values: Values) -> None:
        self.root = root
        self.values = values
        self.standard = isinstance(root, dict) and root.get(STANDARD) is True
        self._alternatives: dict[Conjunction, list[Conjunction]] = {}
        self._expanded: dict[Layer, list[Conjunction]] = {}
        self._disjoint: dict[tuple[Conjunction, Conjunction, int], bool] = {}

    def alternatives(self, layers: Conjunction) -> list[Conjunction]:
        """The alternatives of the conjunction of any subschemas; [] when nothing is valid."""
        known = self._alternatives.get(layers)
        if known is None:
            known = self._alternatives[layers] = _product(self.expand(layer) for layer in layers)
        return known

    def disjoint(self, written: Conjunction, other: Conjunction, depth: int = 0) -> bool:
        """`exclusive.disjoint`, each answer found once."""
        key = (written, other, depth)
        known = self._disjoint.get(key)
        if known is None:
            known = self._disjoint[key] = disjoint(self, written, other, depth)
        return known

    def expand(self, layer: Layer) -> list[Conjunction]:
        """The alternatives of one subschema."""
        return self._expand(layer, frozenset())

    def _expand(self, layer: Layer, seen: frozenset[str]) -> list[Conjunction]:
        known = self._expanded.get(layer)
        if known is None:
            # What expands at all doesn't lead back to itself, so `seen` makes no difference.
            known = self._expanded[layer] = self._expand_new(layer, seen)
        return known

    def _expand_new(self, layer: Layer, seen: frozenset[str]) -> list[Conjunction]:
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
        check_keywords(schema, at, standard=self.standard)
        factors: list[list[Conjunction]] = []
        if any(keyword in CONSTRAINTS for keyword in schema):
            factors.append([(layer,)])
        if "$ref" in schema:
            target = self.resolve(schema["$ref"], at)
            factors.append(self._expand(Layer(target.schema, target.at, layer.checked), seen))
        factors += [self._expand(branch, seen) for branch in self._branches(layer, "allOf")]
        if "anyOf" in schema:
            options = [a for b in self._branches(layer, "anyOf") for a in self._expand(b, seen)]
            factors.append(_distinct(options))
        for condition in conditions(layer):
            options = [
                alternative
                for parts in condition
                for alternative in _product(
                    [(part,)] if part.negated else self._expand(part, seen) for part in parts
                )
            ]
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
        """One branch and no other; the others are left out where they provably share no value."""
        branches = [self._expand(branch, seen) for branch in self._branches(layer, "oneOf")]
        if sum(map(len, branches)) * max(len(around), 1) > MAX_ALTERNATIVES:
            raise _too_many(layer.at)
        negations = [branch.negation() for branch in self._branches(layer, "oneOf")]
        chosen = []
        for index, branch in enumerate(branches):
            for own in _product([around, branch]):
                apart = [all(self.disjoint(own, other) for other in others) for others in branches]
                without = [
                    negation for k, negation in enumerate(negations) if k != index and not apart[k]
                ]
                chosen.append(tuple(dict.fromkeys((*own, *without))))
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
