"""Members that a schema doesn't declare by name: which keys, with which values."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING

from ..walk import escape
from . import pattern as patterns
from .charset import ANY
from .facts import each, undeclared
from .json_text import escapable
from .keywords import refuse_keyword
from .layers import Layer
from .strings import parse
from .terms import NEVER, Difference, Pair, String, Term, Text, Worded, either

if TYPE_CHECKING:
    from .children import Children
    from .layers import Conjunction

MAX_PATTERNS = 5


def free_members(layers: Conjunction, names: list[str], children: Children) -> list[Pair]:
    """The kinds of members besides those of `names`, no key in two of them.

    A kind is what some of the patterns of `patternProperties` match and the others don't.
    """
    places: dict[str, Layer] = {}
    for value, layer in each(layers, "patternProperties"):
        if isinstance(value, dict):
            for pattern in value:
                parse(pattern, "patternProperties", layer.at)
                places.setdefault(pattern, layer)
    if len(places) > MAX_PATTERNS:
        at = next(iter(places.values())).at
        raise refuse_keyword(
            "patternProperties", at, what=f"over {MAX_PATTERNS} patterns for free keys"
        )
    pairs = []
    for chosen in product((False, True), repeat=len(places)):
        matched = [p for p, taken in zip(places, chosen, strict=True) if taken]
        said = tuple(child for layer in layers for child in _said(layer, matched))
        if any(layer.schema is False for layer in said):
            continue
        if places and not matched and not said and not children.expander.standard:
            continue  # the keys that the schema speaks of are enough
        others = [p for p in places if p not in matched]
        key = _keys(layers, {p: places[p] for p in matched}, others, names, children)
        if key == NEVER:
            continue
        value = children.term(said) if said or not names else children.anything(1)
        if value != NEVER:
            pairs.append(Pair(key, value))
    return pairs


def _said(layer: Layer, matched: list[str]) -> Conjunction:
    """What a layer says of the value of a key that these patterns match."""
    own = layer.schema.get("patternProperties", {})
    said = [layer.child("patternProperties", pattern) for pattern in matched if pattern in own]
    return tuple(said) or undeclared(layer)


def _keys(
    layers: Conjunction,
    matched: dict[str, Layer],
    others: list[str],
    names: list[str],
    children: Children,
) -> Term:
    key: Term = String(ANY, 0, None)
    said = [layer.child("propertyNames") for _, layer in each(layers, "propertyNames")]
    if said or len(matched) > 1:
        for pattern, layer in matched.items():
            place = f"{layer.at}/patternProperties/{escape(pattern)}/key"
            said.append(Layer({"pattern": pattern}, place))
        key = children.term((Layer({"type": "string"}, "/key"), *said))
    elif matched:
        key = Worded(tuple(matched), 0, None)
    without: list[Term] = [Worded((pattern,), 0, None) for pattern in others]
    without += [_every_spelling(name) for name in names]
    return Difference(key, either(without)) if without and key != NEVER else key


def _every_spelling(name: str) -> Term:
    """A name however it is escaped."""
    if escapable(name):
        return Worded((patterns.exactly(name),), 0, None)
    return Text(json.dumps(name, ensure_ascii=False))
