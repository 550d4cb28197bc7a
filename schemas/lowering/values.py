"""Finite sets of values: `enum` and `const`, filtered by everything else that is said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jsonschema
import referencing
from jsonschema.validators import validator_for

from .keywords import IN_PLACE, invalid
from .terms import NEVER, Array, Member, Object, Term, Text, either

if TYPE_CHECKING:
    from .layers import Layer

MAX_VALUES = 200_000


class Values:
    """Decides single values under subschemas of one root, without ever fetching anything."""

    def __init__(self, root: Any) -> None:
        known = root if isinstance(root, dict) else {}
        cls = validator_for(known, default=jsonschema.Draft202012Validator)
        self._validator = cls(
            root, registry=referencing.Registry(), format_checker=cls.FORMAT_CHECKER
        )

    def is_valid(self, value: Any, layer: Layer) -> bool:
        return bool(self._validator.evolve(schema=layer.schema).is_valid(value))

    def satisfies(self, value: Any, layers: Iterable[Layer]) -> bool:
        """Whether a value is valid under the layers of a conjunction.

        What references, combinations and conditions say is in layers of its own.
        """
        return bool(self._satisfying([value], layers))

    def _satisfying(
        self, values: list[Any], layers: Iterable[Layer], source: dict[str, Any] | None = None
    ) -> list[Any]:
        """The values that are valid under the layers; those of the `enum` of `source` are in it."""
        for layer in layers:
            own = {k: v for k, v in layer.schema.items() if k not in IN_PLACE}
            if layer.schema is source:
                own.pop("enum", None)
            is_valid = self._validator.evolve(schema=own).is_valid
            values = [value for value in values if is_valid(value)]
        return values

    def listed(self, layers: Iterable[Layer]) -> list[Any] | None:
        """The values that `enum` and `const` leave; None when neither is there."""
        layers = list(layers)
        candidates: list[Any] | None = None
        source: dict[str, Any] | None = None
        for layer in layers:
            schema = layer.schema
            if "const" in schema and candidates is None:
                candidates = [schema["const"]]
            if "enum" in schema:
                if not isinstance(schema["enum"], list):
                    raise invalid("enum", layer.at, "needs a list")
                if len(schema["enum"]) > MAX_VALUES:
                    raise invalid("enum", layer.at, f"over {MAX_VALUES} values")
                if candidates is None:
                    candidates, source = schema["enum"], schema
        if candidates is None:
            return None
        if len(layers) == 1 and set(layers[0].schema) <= {"enum", "type", "description", "title"}:
            # The usual case without a validator: thousands of strings.
            kinds = layers[0].schema.get("type", "string")
            if kinds == "string" and all(isinstance(value, str) for value in candidates):
                return candidates
        return self._satisfying(candidates, layers, source)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_text(value: Any) -> str:
    """The compact JSON text of a value, keys in its order. ValueError when there is none."""
    text = _ENCODER.encode(value)
    text.encode()  # refuses lone surrogates (UnicodeEncodeError is a ValueError)
    return text


# Whole numbers beyond have fewer digits than a float's integer has.
_MAX_WHOLE = 2**53


def constant(value: Any) -> Term:
    """The compact texts of a value, keys in its order; a whole number with and without a fraction.

    ValueError when there is no such text.
    """
    text = json_text(value)
    if not _has_whole_float(value):
        return Text(text)
    if isinstance(value, list):
        items = tuple(map(constant, value))
        return Array(items, NEVER, len(items), len(items))
    if isinstance(value, dict):
        members = ((key, constant(inner)) for key, inner in value.items())
        return Object(tuple(Member(key, inner, required=True) for key, inner in members))
    return either([Text(text), Text(json_text(int(value)))])


def _has_whole_float(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_whole_float, value))
    if isinstance(value, dict):
        return any(map(_has_whole_float, value.values()))
    return isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_WHOLE
