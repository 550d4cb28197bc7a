"""What a conjunction says, keyword by keyword, over all its layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import SchemaReason, SchemaRefused
from .keywords import BY_TYPE, TYPES, invalid
from .numbers import MAX_DIGITS, Bound

if TYPE_CHECKING:
    from .layers import Conjunction, Layer


def each(layers: Conjunction, keyword: str) -> Iterator[tuple[Any, Layer]]:
    """The keyword's values in layer order, each with its layer."""
    for layer in layers:
        if keyword in layer.schema:
            yield layer.schema[keyword], layer


def types(layers: Conjunction, *, infer: bool) -> frozenset[str]:
    """The JSON types that may stand here.

    Where no layer has a `type`, `infer` takes keywords that speak of one type to mean that type:
    stricter than the standard, under which they don't bind other types, and never looser.
    """
    allowed = set(TYPES)
    stated = False
    for value, layer in each(layers, "type"):
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not set(names) <= set(TYPES):
            raise invalid("type", layer.at, "not a JSON type or a list of them")
        wider = {*names, "integer"} if "number" in names else set(names)
        allowed &= wider
        stated = True
    if infer and not stated:
        said = {
            kind
            for layer in layers
            for kind, keywords in BY_TYPE.items()
            if not layer.checked and any(keyword in keywords for keyword in layer.schema)
        }
        if said:
            allowed = said
    if "number" in allowed:
        allowed.discard("integer") if not infer else allowed.add("integer")
    return frozenset(allowed)


def count(value: Any, keyword: str, layer: Layer) -> int:
    """A length or count: a non-negative integer, 2.0 included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
        raise invalid(keyword, layer.at, "needs a non-negative integer")
    return int(value)


def counts(layers: Conjunction, low: str, high: str) -> tuple[int, int | None]:
    """The tightest of a pair of keywords such as minLength and maxLength."""
    least = max((count(value, low, layer) for value, layer in each(layers, low)), default=0)
    most = min((count(value, high, layer) for value, layer in each(layers, high)), default=None)
    return least, most


def decimal(value: Any, keyword: str, layer: Layer) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(keyword, layer.at, "needs a number")
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite() or abs(exact.adjusted()) > MAX_DIGITS:
        raise invalid(keyword, layer.at, f"needs a number of at most {MAX_DIGITS} digits")
    return exact


def number_bounds(layers: Conjunction) -> tuple[Bound | None, Bound | None]:
    """The tightest lower and upper bound."""
    lowers: list[Bound] = []
    uppers: list[Bound] = []
    for name, exclusive, found in (
        ("minimum", "exclusiveMinimum", lowers),
        ("maximum", "exclusiveMaximum", uppers),
    ):
        for value, layer in each(layers, name):
            # Draft 4 has a boolean beside the bound.
            inclusive = layer.schema.get(exclusive) is not True
            found.append(Bound(decimal(value, name, layer), inclusive))
        for value, layer in each(layers, exclusive):
            if not isinstance(value, bool):
                found.append(Bound(decimal(value, exclusive, layer), inclusive=False))
            elif name not in layer.schema and value:
                raise invalid(exclusive, layer.at, f"needs {name} beside it")
    lower = max(lowers, key=lambda b: (b.value, not b.inclusive), default=None)
    upper = min(uppers, key=lambda b: (b.value, b.inclusive), default=None)
    return lower, upper


def required(layers: Conjunction) -> list[str]:
    names: dict[str, None] = {}
    for value, layer in each(layers, "required"):
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise invalid("required", layer.at, "needs a list of names")
        names.update(dict.fromkeys(value))
    return list(names)


def closed(layers: Conjunction) -> bool:
    """True when some layer forbids every member that it doesn't declare."""
    return any(
        value is False and "patternProperties" not in layer.schema
        for value, layer in each(layers, "additionalProperties")
    )


def _subschemas(layer: Layer, keyword: str) -> dict[str, Any]:
    value = layer.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise invalid(keyword, layer.at, "needs an object of schemas")
    return value


def member(layers: Conjunction, key: str) -> Conjunction:
    """All that the layers say of the value of a member."""
    said: list[Layer] = []
    for layer in layers:
        evaluated = False
        if key in _subschemas(layer, "properties"):
            said.append(layer.child("properties", key))
            evaluated = True
        for pattern in _subschemas(layer, "patternProperties"):
            if matches(pattern, key, layer):
                said.append(layer.child("patternProperties", pattern))
                evaluated = True
        if not evaluated:
            said += undeclared(layer)
    return tuple(said)


def undeclared(layer: Layer) -> Conjunction:
    """What a layer says of members that it doesn't declare."""
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in layer.schema:
            return (layer.child(keyword),)
    return ()


def matches(pattern: str, key: str, layer: Layer) -> bool:
    try:
        return re.search(pattern, key) is not None
    except re.error as error:
        raise SchemaRefused(
            SchemaReason.KEYWORD_UNSUPPORTED,
            f"pattern that can't be read ({error})",
            at=f"{layer.at}/patternProperties",
            advice="simplify the pattern",
        ) from None


def declared(layers: Conjunction) -> dict[str, Conjunction]:
    """The members that are written, in declared order, with all that is said of each.

    Names that are only required come last.
    """
    writing = tuple(layer for layer in layers if not layer.checked)
    names = dict.fromkeys(name for layer in writing for name in _subschemas(layer, "properties"))
    names.update(dict.fromkeys(required(writing)))
    return {name: member(layers, name) for name in names}
