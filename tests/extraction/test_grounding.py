"""Evidence: where a record's values stand, in code points of the page's text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.extraction.grounding import locate
from pagemill.extraction.page import MetadataEntry


def quotes(record: Any, text: str) -> dict[str, tuple[str, bool, bool]]:
    """pointer -> (the text at the evidence, exact, ambiguous)"""
    return {
        found.pointer: (text[found.start : found.end], found.exact, found.ambiguous)
        for found in locate(record, text)
    }


@pytest.mark.parametrize(
    ("value", "text", "quoted", "exact"),
    [
        ("Kettle", "# Kettle\nby Oak", "Kettle", True),
        ('5" "wide"', 'Lamp 5" "wide" tall', '5" "wide"', True),
        ("two\nlines", "a two\nlines b", "two\nlines", True),
        ("two lines", "a two\nlines b", "two\nlines", False),
        ("🙂 fine", "価格 🙂🙂 fine 🙂", "🙂 fine", True),
        ("こんにちは", "価格 $99.99 と こんにちは 🙂", "こんにちは", True),
        ("$99.99", "価格 $99.99 と こんにちは 🙂", "$99.99", True),
        ("café", "Un cafe\u0301 noir", "cafe\u0301", False),
        ("cafe\u0301", "Un café noir", "café", False),
        ("10 €", "for 10\u00a0€ only", "10\u00a0€", False),
        ("RED kettle", "a red Kettle", "red Kettle", False),
        ("Strasse", "Die STRASSE hier", "STRASSE", False),
        ("straße", "Die STRASSE hier", "STRASSE", False),
        ("it's", "yes it’s so", "it’s", False),
        ("1,280円", "１，２８０円 です", "１，２８０円", False),
        ("a - b", "x a – b y", "a – b", False),
        (12.5, "now 12.50 EUR", "12.50", False),
        (12.5, "jetzt 12,50 EUR", "12,50", False),
        (1299, "was 1.299 €", "1.299", False),
        (1049.95, "CHF 1’049.95", "1’049.95", False),
        (1770, "à 1 770 €", "1 770", False),
        (5, "rated 5 stars", "5", True),
        (5.0, "rated 5 stars", "5", False),
        (2024, "in 2024, or", "2024", True),
        (-3, "at 3 below", "3", False),
    ],
)
def test_one_value(value: Any, text: str, quoted: str, exact: bool) -> None:
    assert quotes({"v": value}, text) == {"/v": (quoted, exact, False)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Kettle", "a pan"),
        ("5", "in 1995"),
        ("oak", "soaked"),
        (7, "in 1978"),
        ("", "text"),
        ("  ", "a  b"),
        (True, "True true"),
        (None, "null None"),
        ("kettle", ""),
    ],
)
def test_no_evidence(value: Any, text: str) -> None:
    assert locate({"v": value}, text) == []


def test_a_long_value_inside_of_a_word_counts() -> None:
    assert quotes({"v": "AB-1234"}, "xAB-1234y") == {"/v": ("AB-1234", True, False)}


def test_of_several_places_the_one_near_the_neighbours_is_taken() -> None:
    text = "Sale 10 EUR\nOther: Cup\n" + "-" * 80 + "\nPan\nPrice 10 EUR\nBrand Oak"
    [name, price, brand] = locate({"name": "Pan", "price": 10, "brand": "Oak"}, text)
    assert price.ambiguous
    assert not name.ambiguous
    assert name.end < price.start < brand.start


def test_pointers_of_nested_values() -> None:
    record = {"a/b": {"~": ["x1", {"c": "y2"}]}, "n": None}
    assert set(quotes(record, "x1 y2")) == {"/a~1b/~0/0", "/a~1b/~0/1/c"}


def test_a_record_that_is_one_value() -> None:
    assert set(quotes("x1", "x1")) == {""}


def test_values_that_only_metadata_holds() -> None:
    metadata = [
        MetadataEntry("title", "Blue Cup", "title"),
        MetadataEntry("sku", "SKU 77-A", "jsonld/0/sku"),
        MetadataEntry("sku", "77-a", "jsonld/1/sku"),
    ]
    [found] = locate({"sku": "77-A"}, "A cup", metadata)
    assert (found.source, found.path, found.exact) == ("metadata", "jsonld/0/sku", True)
    assert "SKU 77-A"[found.start : found.end] == "77-A"
    [found] = locate({"name": "Blue Cup"}, "The Blue Cup", metadata)
    assert found.source == "text"


ALPHABET = "ab1 .,\"\\\n\u00a0é\u0301ß'’🙂価İﬁ"
TEXT = st.text(alphabet=st.sampled_from(ALPHABET), min_size=1, max_size=60)


@given(TEXT, st.data())
def test_a_piece_of_the_text_is_found(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    value = text[start : data.draw(st.integers(start + 1, len(text)))]
    for found in locate([value], text):
        assert found.exact == (text[found.start : found.end] == value)
        assert 0 <= found.start < found.end <= len(text)
    if len(value.strip()) >= 5:
        assert len(locate([value], text)) == 1


@given(TEXT, st.lists(st.one_of(TEXT, st.integers(), st.floats(allow_nan=False)), max_size=5))
def test_evidence_lies_in_the_text(text: str, values: list[Any]) -> None:
    for found in locate(values, text):
        assert 0 <= found.start < found.end <= len(text)


def test_many_repeats_stay_quick() -> None:
    assert len(locate(["ab"] * 500, "ab " * 20_000)) == 500
