"""Differences of schemas, and the promise that a verdict makes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.schemas import Validator, diff, load, verdict

BOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 80, "description": "The title."},
        "price": {"type": ["number", "null"], "minimum": 0},
        "kind": {"enum": ["paper", "audio", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
        "maker": {"$ref": "#/$defs/maker"},
    },
    "required": ["title", "price", "kind"],
    "additionalProperties": False,
    "$defs": {"maker": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def changed(**paths: Any) -> dict[str, Any]:
    new = copy.deepcopy(BOOK)
    for path, value in paths.items():
        *steps, last = path.split("__")
        node = new
        for step in steps:
            node = node[step]
        if value is None:
            del node[last]
        else:
            node[last] = value
    return new


@pytest.mark.parametrize(
    ("new", "effect", "pointer"),
    [
        (changed(properties__title__description="Its name."), "wording", "/properties/title"),
        (changed(properties__pages={"type": "integer"}), "additive", "/properties/pages"),
        (changed(properties__title__maxLength=40), "narrowing", "/properties/title"),
        (changed(properties__title__maxLength=90), "breaking", "/properties/title"),
        (changed(properties__price__type="number"), "narrowing", "/properties/price"),
        (changed(properties__price__type=["string", "null"]), "breaking", "/properties/price"),
        (changed(properties__price__type=["integer", "null"]), "narrowing", "/properties/price"),
        (changed(properties__price__minimum=None), "breaking", "/properties/price"),
        (changed(properties__kind__enum=["paper", None]), "narrowing", "/properties/kind"),
        (changed(properties__kind__enum=["paper", "ebook"]), "breaking", "/properties/kind"),
        (changed(properties__tags__items__maxLength=9), "narrowing", "/properties/tags/items"),
        (changed(properties__tags__uniqueItems=True), "narrowing", "/properties/tags"),
        (
            changed(properties__title=None, required=["price", "kind"]),
            "breaking",
            "/properties/title",
        ),
        (changed(properties__tags=None), "narrowing", "/properties/tags"),
        (changed(required=["title", "price"]), "breaking", "/properties/kind"),
        (changed(required=["title", "price", "kind", "tags"]), "narrowing", "/properties/tags"),
        (changed(additionalProperties=True), "breaking", "/additionalProperties"),
        (changed(properties__title__pattern="^A"), "narrowing", "/properties/title"),
        (
            changed(**{"$defs__maker__properties__name__maxLength": 9}),
            "narrowing",
            "/properties/maker/properties/name",
        ),
    ],
)
def test_effects(new: dict[str, Any], effect: str, pointer: str) -> None:
    changes = diff(BOOK, new)
    assert verdict(changes) == effect
    assert pointer in {change.pointer for change in changes if change.effect == effect}


def test_no_difference() -> None:
    assert diff(BOOK, copy.deepcopy(BOOK)) == []
    assert verdict([]) == "identical"


def test_order_is_told_to_the_model() -> None:
    new = changed()
    new["properties"] = dict(reversed(new["properties"].items()))
    assert [change.effect for change in diff(BOOK, new)] == ["wording"]


def test_references_that_turn_in_circles_end() -> None:
    tree = {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#"}}}}}
    assert diff(tree, copy.deepcopy(tree)) == []


_SCALARS = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(
        lambda types, low: {"type": types, "minimum": low},
        st.sampled_from(["integer", "number", ["integer", "null"], ["number", "null"]]),
        st.integers(-2, 2),
    ),
    st.builds(
        lambda most, types: {"type": types, "maxLength": most},
        st.integers(0, 3),
        st.sampled_from(["string", ["string", "null"]]),
    ),
    st.lists(st.sampled_from(["a", "bb", None, 1, True]), min_size=1, max_size=3).map(
        lambda values: {"enum": [v for i, v in enumerate(values) if v not in values[:i]]}
    ),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required, closed: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
            **({"additionalProperties": False} if closed else {}),
        },
        st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
        st.sets(st.sampled_from("pqr")),
        st.booleans(),
    )


_SCHEMAS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(
            lambda items, most: {"type": "array", "items": items, "maxItems": most},
            inner,
            st.integers(0, 2),
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"anyOf": branches}),
        st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"oneOf": branches}),
    ),
    max_leaves=5,
)
_VALUES = st.recursive(
    st.sampled_from([None, True, False, -1, 0, 1, 1.5, "", "a", "bb", "ccc"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(old=_SCHEMAS, new=_SCHEMAS, values=st.lists(_VALUES, max_size=30))
def test_what_is_not_breaking_stays_readable(old: Any, new: Any, values: list[Any]) -> None:
    if verdict(diff(old, new)) in ("breaking", "additive"):
        return
    before, after = Validator(load(old)), Validator(load(new))
    for value in values:
        if not after.errors(value):
            assert not before.errors(value), diff(old, new)
