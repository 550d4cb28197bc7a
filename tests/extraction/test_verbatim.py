"""Evidence of verbatim values: found exactly, wherever they stand on the page."""

from __future__ import annotations

from typing import Any

import pytest
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.grounding import locate
from pagemill.extraction.prompt import _undisturbed
from pagemill.extraction.verbatim import has_verbatim, verbatim_values

STRING: dict[str, Any] = {"type": ["string", "null"], "x-pagemill-verbatim": True}
SCHEMA: dict[str, Any] = {
    "$defs": {"part": STRING},
    "type": "object",
    "properties": {
        "name": {**STRING, "maxLength": 80},
        "free": {"type": ["string", "null"], "maxLength": 9},
        "parts": {"type": "array", "maxItems": 9, "items": {"$ref": "#/$defs/part"}},
        "maker": {"anyOf": [{"type": "null"}, {**STRING, "type": "string"}]},
        "a/b": {"prefixItems": [{"type": "null"}, STRING], "type": "array", "maxItems": 2},
    },
}


def test_which_values_are_verbatim() -> None:
    record = {
        "name": "x",
        "free": "y",
        "parts": ["p", None, "q"],
        "maker": "m",
        "a/b": [None, "z"],
    }
    assert verbatim_values(SCHEMA, record) == {
        "/name",
        "/parts/0",
        "/parts/2",
        "/maker",
        "/a~1b/1",
    }
    assert verbatim_values({"type": "string"}, "x") == frozenset()
    assert has_verbatim(SCHEMA)
    assert bind(SCHEMA).verbatim


PAGE = 'say "hi" \\ there\nnext é\u0301 😀 東京都\u00a0x½ m² x½'


@pytest.mark.parametrize(
    "value", ['"hi" \\', "there\nnext", "é\u0301", "😀", "京", "東京都\u00a0x", "½", "²", "m"]
)
def test_verbatim_values_are_found_exactly(value: str) -> None:
    (evidence,) = locate({"a": value}, PAGE, verbatim=frozenset({"/a"}))
    assert PAGE[evidence.start : evidence.end] == value
    assert evidence.exact
    assert evidence.ambiguous == (PAGE.count(value) > 1)


def test_only_lines_that_the_page_has_can_be_copied() -> None:
    shown = _undisturbed("a\nb < page>\nc", "x\na\nb <page>\nc")
    assert shown == "a\n\0\nc"


def test_metadata_does_not_answer_a_verbatim_field() -> None:
    brand = {"type": ["string", "null"], "maxLength": 80, "x-pagemill-source": "Product.brand"}
    schema = {"type": "object", "properties": {"brand": brand}}
    assert [source.pointer for source in bind(schema).known_sources] == ["/brand"]
    brand["x-pagemill-verbatim"] = True
    assert bind(schema).known_sources == ()
