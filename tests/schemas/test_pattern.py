"""Expressions mean in the linear-time engine what ECMA-262 says."""

from __future__ import annotations

import pytest
from pagemill.schemas.pattern import MAX_PATTERN_CHARS, Pattern


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("b", ["b", "abc"], ["", "ac"]),
        ("^b$", ["b"], ["b\n", "ab"]),
        (r"^\d+$", ["12"], ["١٢", "a"]),
        (r"^\D$", ["é", "١"], ["1"]),
        (r"^\w+$", ["a_1"], ["é"]),
        (r"^\W$", ["é", "-"], ["a", "_"]),
        (r"^\s+$", ["\ufeff \u3000\t"], ["\x85", "a"]),
        (r"^[\S]$", ["a", "\x85"], ["\ufeff", " "]),
        (r"^[\w.]+$", ["a.b"], ["a-b"]),
        (r"^[^\d]$", ["a"], ["7"]),
        ("^.$", ["x", "é"], ["\n", "\r", "\u2028"]),
        ("^[.]$", ["."], ["x"]),
        ("^[[]$", ["["], ["]"]),
        ("^[a&&b]+$", ["a&b"], ["c"]),
        ("^[a~~b]+$", ["a~b"], ["c"]),
        (r"^[+--]+$", ["+,-"], ["."]),
        (r"^a\/b\.c$", ["a/b.c"], ["a/bxc"]),
        (r"^\u00e9$", ["é"], ["e"]),
        (r"^\p{L}$", ["é", "字"], ["1"]),
        (r"^\[\]$", ["[]"], ["["]),
    ],
)
def test_meaning(expression, matching, other):
    pattern = Pattern(expression)
    assert [text for text in matching + other if pattern.search(text)] == matching


@pytest.mark.parametrize(
    "expression", ["(", "[a", "(?=a)", r"(a)\1", "(?!a)b", "a" * (MAX_PATTERN_CHARS + 1), "\\"]
)
def test_refused(expression):
    with pytest.raises(ValueError, match=r"."):
        Pattern(expression)


def test_nested_repetition_is_linear():
    """Takes years when it backtracks."""
    assert not Pattern("^(a+)+$").search("a" * 10_000 + "b")
