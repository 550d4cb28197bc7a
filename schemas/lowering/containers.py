"""Terms for objects and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .charset import ANY
from .facts import counts, declared, each, required, undeclared
from .keywords import invalid, refuse_keyword
from .strings import parse
from .terms import (
    NEVER,
    Array,
    Mapping,
    Member,
    Object,
    String,
    Term,
    Worded,
    either,
    first_character,
)

if TYPE_CHECKING:
    from .layers import Conjunction, Expander, Layer

MAX_PREFIX = 1000


class Children(Protocol):
    """Makes the terms of subschemas."""

    expander: Expander

    def term(self, layers: Conjunction) -> Term: ...


def object_term(layers: Conjunction, children: Children) -> Term:
    """Objects with the declared members in their order, or with free keys where none is declared.

    Undeclared members are never written, whatever `additionalProperties` allows.
    """
    low, high = counts(layers, "minProperties", "maxProperties")
    if high is not None and low > high:
        return NEVER
    members = declared(layers)
    if not members:
        return _mapping(layers, low, high, children)
    needed = set(required(layers))
    written: list[Member] = []
    for name, said in members.items():
        value = children.term(said) if _name_allowed(name, layers, children) else NEVER
        if value != NEVER:
            written.append(Member(name, value, name in needed))
        elif name in needed:
            return NEVER
    return _within_counts(written, low, high, layers)


def _name_allowed(name: str, layers: Conjunction, children: Children) -> bool:
    said = [layer.child("propertyNames") for _, layer in each(layers, "propertyNames")]
    return children.expander.values.satisfies(name, said)


def _within_counts(members: list[Member], low: int, high: int | None, layers: Conjunction) -> Term:
    """The choices of optional members that keep minProperties and maxProperties."""
    must = sum(member.required for member in members)
    if low > len(members) or (high is not None and high < must):
        return NEVER
    if low <= must and (high is None or high >= len(members)):
        return Object(tuple(members))
    if high == must:
        return Object(tuple(member for member in members if member.required))
    if low == len(members):
        return Object(tuple(Member(m.key, m.value, required=True) for m in members))
    if low == must + 1 and (high is None or high >= len(members)):
        # Each option: one optional member stands, the optional ones before it don't.
        options: list[Term] = []
        for index, chosen in enumerate(members):
            if chosen.required:
                continue
            kept = [m for m in members[:index] if m.required]
            kept += [Member(chosen.key, chosen.value, required=True), *members[index + 1 :]]
            options.append(Object(tuple(kept)))
        return either(options)
    keyword = "minProperties" if low > must else "maxProperties"
    at = next(layer.at for value, layer in each(layers, keyword))
    raise refuse_keyword(keyword, at, what=f"{keyword} over optional members")


def _mapping(layers: Conjunction, low: int, high: int | None, children: Children) -> Term:
    patterned = [
        (pattern, layer)
        for value, layer in each(layers, "patternProperties")
        if isinstance(value, dict)
        for pattern in value
    ]
    rest = tuple(said for layer in layers for said in undeclared(layer))
    if not patterned and any(said.schema is False for said in rest):
        return Object(()) if low == 0 else NEVER
    if low > 1 or (high == 0 and low == 0):
        if high == 0:
            return Object(())
        # Equal keys count once, so only "at least one" is certain.
        at = next(layer.at for value, layer in each(layers, "minProperties"))
        raise refuse_keyword("minProperties", at, what="minProperties over free keys")
    key: Term = String(ANY, 0, None)
    names = [layer for _, layer in each(layers, "propertyNames")]
    if names:
        if patterned or len(names) > 1:
            raise refuse_keyword("propertyNames", names[0].at, what="propertyNames of free keys")
        key = children.term((names[0].child("propertyNames"),))
        if any(kind != '"' for kind in first_character(key)):
            raise refuse_keyword("propertyNames", names[0].at, what="propertyNames of free keys")
    if not patterned:
        return Mapping(key, children.term(rest), low, high)
    if len(patterned) > 1 or len({layer.at for layer in layers if _speaks_of_members(layer)}) > 1:
        raise refuse_keyword(
            "patternProperties", patterned[0][1].at, what="several patterns for free keys"
        )
    pattern, layer = patterned[0]
    parse(pattern, "patternProperties", layer.at)
    key = Worded((pattern,), 0, None)
    return Mapping(key, children.term((layer.child("patternProperties", pattern),)), low, high)


def _speaks_of_members(layer: Layer) -> bool:
    return bool(undeclared(layer)) or "patternProperties" in layer.schema


def array_term(layers: Conjunction, children: Children) -> Term:
    """Arrays: a fixed beginning, then items of one kind."""
    low, high = counts(layers, "minItems", "maxItems")
    for value, layer in each(layers, "uniqueItems"):
        if value is True and (high is None or high > 1):
            raise refuse_keyword(
                "uniqueItems", layer.at, advice="drop it, and remove duplicates after extraction"
            )
    fixed = max((len(_prefix(layer)) for layer in layers), default=0)
    if fixed > MAX_PREFIX:
        raise invalid("prefixItems", layers[0].at, f"over {MAX_PREFIX} items")
    limit = fixed if high is None else min(fixed, high)
    prefix: list[Term] = []
    for index in range(limit):
        value = children.term(_item(layers, index))
        if value == NEVER:
            high = index
            break
        prefix.append(value)
    item = (
        NEVER if high is not None and high <= len(prefix) else children.term(_item(layers, fixed))
    )
    if item == NEVER:
        high = len(prefix)
    if high is not None and low > high:
        return NEVER
    return Array(tuple(prefix), item, low, high)


def _prefix(layer: Layer) -> list[object]:
    items = layer.schema.get("items")
    value = layer.schema.get("prefixItems", items if isinstance(items, list) else [])
    if not isinstance(value, list):
        raise invalid("prefixItems", layer.at, "needs a list of schemas")
    return value


def _item(layers: Conjunction, index: int) -> Conjunction:
    """All that the layers say of the item at `index`."""
    said = []
    for layer in layers:
        keyword = "prefixItems" if "prefixItems" in layer.schema else "items"
        rest = "additionalItems" if isinstance(layer.schema.get("items"), list) else "items"
        if index < len(_prefix(layer)):
            said.append(layer.child(keyword, index))
        elif rest in layer.schema and (rest == "items" or keyword == "items"):
            said.append(layer.child(rest))
        elif layer.schema.get("unevaluatedItems", True) is not True:
            said.append(layer.child("unevaluatedItems"))
    return tuple(said)
