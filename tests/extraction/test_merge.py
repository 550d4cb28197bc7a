"""Records of a page's windows become one: nothing twice, no real repeat lost."""

from __future__ import annotations

from typing import Any

import pytest
from pagemill.extraction.merge import merge
from pagemill.extraction.windows import Window
from pagemill.schemas import Validator

LINES = {
    "type": "object",
    "properties": {
        "shop": {"type": ["string", "null"]},
        "paid": {"type": ["boolean", "null"]},
        "lines": {
            "type": "array",
            "maxItems": 6,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "price": {"type": ["number", "null"]},
                },
                "required": ["name", "price"],
            },
        },
    },
    "required": ["shop", "paid", "lines"],
}
COFFEE, TEA = {"name": "Coffee", "price": 5}, {"name": "Tea", "price": 3}


def record(lines: list[Any], shop: str | None = None, paid: bool | None = None) -> dict[str, Any]:
    return {"shop": shop, "paid": paid, "lines": lines}


def merged(records: list[Any], windows: list[Window], schema: Any = LINES) -> Any:
    return merge(records, windows, Validator(schema))


def test_one_window_is_its_record() -> None:
    one = record([COFFEE])
    assert merged([one], [Window("Coffee 5")]) is one


def test_what_both_windows_saw_is_there_once() -> None:
    windows = [
        Window("Corner Shop\nCoffee 5\nCoffee 5"),
        Window("Coffee 5\nTea 3", repeated="Coffee 5\n"),
    ]
    result = merged([record([COFFEE, COFFEE], "Corner Shop"), record([COFFEE, TEA])], windows)
    assert result == record([COFFEE, COFFEE, TEA], "Corner Shop")


def test_real_repeats_stay() -> None:
    windows = [Window("Coffee 5\nCoffee 5"), Window("and\nCoffee 5\nTea 3", repeated="and\n")]
    result = merged([record([COFFEE, COFFEE]), record([COFFEE, TEA])], windows)
    assert result["lines"] == [COFFEE, COFFEE, COFFEE, TEA]


def test_an_item_cut_by_the_border_is_completed() -> None:
    windows = [Window("Coffee 5\nTea"), Window("Tea 3\nCoffee 5", repeated="Tea")]
    cut = {"name": "Tea", "price": None}
    result = merged([record([COFFEE, cut]), record([TEA, COFFEE])], windows)
    assert result["lines"] == [COFFEE, TEA, COFFEE]


def test_of_scalars_the_one_that_stands_on_the_page_wins() -> None:
    windows = [Window("Coffee 5"), Window("Corner Shop"), Window("Other Shop")]
    records = [record([], "Invented"), record([], "Corner Shop"), record([], "Other Shop", True)]
    assert merged(records, windows) == record([], "Corner Shop", True)
    assert merged(records[:1] * 2, windows[:2]) == record([], "Invented")


def test_a_window_without_answer_changes_nothing() -> None:
    windows = [Window("nothing"), Window("Corner Shop Coffee 5")]
    result = merged([record([]), record([COFFEE], "Corner Shop")], windows)
    assert result == record([COFFEE], "Corner Shop")


def test_the_schema_bounds_hold() -> None:
    windows = [Window("Coffee 5"), Window("Tea 3")]
    result = merged([record([COFFEE] * 5), record([TEA] * 5)], windows)
    assert result["lines"] == [COFFEE] * 5 + [TEA]


@pytest.mark.parametrize("nullable", [False, True])
def test_unique_items_stay_unique(nullable: bool) -> None:
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    schema = {
        "type": "object",
        "properties": {"tags": {"anyOf": [tags, {"type": "null"}]} if nullable else tags},
    }
    windows = [Window("tea cup"), Window("cup mug")]
    result = merged([{"tags": ["tea", "cup"]}, {"tags": ["cup", "mug"]}], windows, schema)
    assert result == {"tags": ["tea", "cup", "mug"]}


def test_what_does_not_go_together_is_left_at_the_first_record() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b", None]}, "x": {"type": ["string", "null"]}},
        "if": {"properties": {"kind": {"const": "b"}}},
        "then": {"properties": {"x": {"const": None}}},
    }
    windows = [Window("left"), Window("b")]
    first, second = {"kind": None, "x": "left"}, {"kind": "b", "x": None}
    assert merged([first, second], windows, schema) == first


def test_records_that_are_arrays() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "maxItems": 3}
    windows = [Window("a1 b1"), Window("b1 c1 d1", repeated="b1 ")]
    assert merged([["a1", "b1"], ["b1", "c1", "d1"]], windows, schema) == ["a1", "b1", "c1"]
