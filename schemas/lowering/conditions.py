"""Conditions as alternatives: `not`, `if`, `dependent...`, `contains`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .keywords import invalid, refuse_keyword

if TYPE_CHECKING:
    from .layers import Layer


def conditions(layer: Layer) -> Iterator[list[list[Layer]]]:
    """Each condition as alternatives of layers that must hold together, some of them negated."""
    schema = layer.schema
    if "not" in schema:
        yield [[layer.child("not").negation()]]
    if "if" in schema and ("then" in schema or "else" in schema):
        holds, fails = [layer.child("if")], [layer.child("if").negation()]
        if "then" in schema:
            holds.append(layer.child("then"))
        if "else" in schema:
            fails.append(layer.child("else"))
        yield [holds, fails]
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, what in _items(layer, keyword):
            absent = layer.said({"properties": {name: False}}, keyword, name, "absent")
            present = layer.said({"required": [name]}, keyword, name, "present")
            if isinstance(what, list) and keyword != "dependentSchemas":
                needed = layer.said({"required": what}, keyword, name, "needed")
            else:
                needed = layer.child(keyword, name)
            yield [[absent], [present, needed]]
    if "contains" in schema and schema.get("minContains", 1) != 0:
        if schema.get("minContains", 1) != 1:
            raise refuse_keyword("minContains", layer.at)
        # Some item is so: not every item is otherwise.
        otherwise = {"type": "array", "items": {"not": schema["contains"]}}
        yield [[layer.said(otherwise, "contains", "none").negation()]]


def _items(layer: Layer, keyword: str) -> Iterator[tuple[str, Any]]:
    value = layer.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise invalid(keyword, layer.at, "needs an object")
    yield from value.items()
