"""Terms for objects and arrays."""

from __future__ import annotations

import json
from itertools import permutations
from typing import TYPE_CHECKING, TypeGuard

from .facts import counts, declared, each, required
from .free_keys import free_members
from .keywords import BY_TYPE, invalid, refuse_keyword
from .terms import (
    NEVER,
    Array,
    Either,
    Mapping,
    Member,
    Object,
    Pair,
    Term,
    Text,
    either,
)

if TYPE_CHECKING:
    from .children import Children
    from .layers import Conjunction, Layer

MAX_PREFIX = 1000
# All orders of so many values are 1,957 arrays.
MAX_UNIQUE = 6


def object_term(layers: Conjunction, children: Children) -> Term:
    """Objects with the declared members in their order, or with free keys where none is declared.

    Read as the standard has it (`keywords.STANDARD`), undeclared members may follow the declared
    ones; else they are never written, whatever `additionalProperties` allows.
    """
    low, high = counts(layers, "minProperties", "maxProperties")
    if high is not None and low > high:
        return NEVER
    members = declared(layers)
    needed = set(required(layers))
    if not members:
        _refuse_conditions(layers)
    elif not needed <= members.keys():
        return NEVER  # a condition asks for a member that is never written
    written: list[Member] = []
    for name, said in members.items():
        value = children.term(said) if _name_allowed(name, layers, children) else NEVER
        if value != NEVER:
            written.append(Member(name, value, name in needed))
        elif name in needed:
            return NEVER
    rest: tuple[Pair, ...] = ()
    if not members or children.open:
        rest = tuple(free_members(layers, list(members), children))
    if rest and low > len(written) + 1:
        # Equal keys count once, so only one more is certain.
        at = next(layer.at for value, layer in each(layers, "minProperties"))
        raise refuse_keyword("minProperties", at, what="minProperties over free keys")
    if not members and len(rest) == 1:
        return Object(()) if high == 0 else Mapping(rest[0].key, rest[0].value, low, high)
    return _within_counts(written, rest, low, high)


def _refuse_conditions(layers: Conjunction) -> None:
    """SchemaRefused where a condition asks for something of free keys."""
    for layer in layers:
        for keyword in sorted(BY_TYPE["object"] & layer.schema.keys()):
            if layer.checked and layer.schema[keyword] not in (True, [], {}):
                raise refuse_keyword(
                    keyword, layer.at, what=f"a condition on free keys ({keyword})"
                )


def _name_allowed(name: str, layers: Conjunction, children: Children) -> bool:
    said = [layer.child("propertyNames") for _, layer in each(layers, "propertyNames")]
    return all(children.expander.values.is_valid(name, layer) for layer in said)


def _within_counts(
    members: list[Member], rest: tuple[Pair, ...], low: int, high: int | None
) -> Term:
    """An object with its bounds left out where they say nothing, or say it of single members."""
    must = sum(member.required for member in members)
    if high is not None and high < must:
        return NEVER
    if high is not None and high == must:
        members, rest = [member for member in members if member.required], ()
    if high is not None and not rest and high >= len(members):
        high = None
    if not rest and low > len(members):
        return NEVER
    if not rest and low == len(members):
        members = [Member(m.key, m.value, required=True) for m in members]
    if low <= sum(member.required for member in members):
        low = 0
    return Object(tuple(members), rest, low, high)


def array_term(layers: Conjunction, children: Children) -> Term:
    """Arrays: a fixed beginning, then items of one kind."""
    low, high = counts(layers, "minItems", "maxItems")
    unique = [layer for value, layer in each(layers, "uniqueItems") if value is True]
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
    if unique and (high is None or high > 1):
        return _unique(prefix, item, low, high, unique[0])
    return Array(tuple(prefix), item, low, high)


def _unique(prefix: list[Term], item: Term, low: int, high: int | None, layer: Layer) -> Term:
    """Arrays without equal items: each order of each choice of a few values."""
    options = item.options if isinstance(item, Either) else (item,)
    values = {_value(option.text): option.text for option in options if _single(option)}
    most = len(values)
    if prefix or not all(map(_single, options)) or most > MAX_UNIQUE or layer.checked:
        raise refuse_keyword(
            "uniqueItems",
            layer.at,
            what="uniqueItems over many values",
            advice="drop it, and remove duplicates after extraction",
        )
    sizes = range(low, min(most, most if high is None else high) + 1)
    orders = [order for count in sizes for order in permutations(values.values(), count)]
    return either([Text(f"[{','.join(order)}]") for order in orders])


def _value(text: str) -> object:
    """What two texts of equal values share: numbers may be written in two ways."""
    value = json.loads(text)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


def _single(term: Term) -> TypeGuard[Text]:
    return isinstance(term, Text)


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
