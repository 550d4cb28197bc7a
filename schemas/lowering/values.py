"""Finite sets of values: `enum` and `const`, filtered by everything else that is said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jsonschema
import referencing
from jsonschema.validators import validator_for

from .keywords import IN_PLACE, invalid

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
        for layer in layers:
            own = {k: v for k, v in layer.schema.items() if k not in IN_PLACE}
            if not self._validator.evolve(schema=own).is_valid(value):
                return False
        return True

    def listed(self, layers: Iterable[Layer]) -> list[Any] | None:
        """The values that `enum` and `const` leave; None when neither is there."""
        layers = list(layers)
        candidates: list[Any] | None = None
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
                    candidates = schema["enum"]
        if candidates is None:
            return None
        if len(layers) == 1 and set(layers[0].schema) <= {"enum", "type", "description", "title"}:
            # The usual case without a validator: thousands of strings.
            kinds = layers[0].schema.get("type", "string")
            if kinds == "string" and all(isinstance(value, str) for value in candidates):
                return candidates
        return [value for value in candidates if self.satisfies(value, layers)]


def json_text(value: Any) -> str:
    """The compact JSON text of a value, keys in its order. ValueError when there is none."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text.encode()  # refuses lone surrogates (UnicodeEncodeError is a ValueError)
    return text
