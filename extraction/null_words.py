"""What models write where a page says nothing; null says it better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill.schemas.walk import subschemas

_WORDS = frozenset(
    {
        "",
        "-",
        "--",
        "n/a",
        "na",
        "n.a.",
        "nil",
        "none",
        "not available",
        "not provided",
        "not specified",
        "null",
        "undefined",
        "unknown",
    }
)


def is_null_word(text: str) -> bool:
    """Whether a text only says that there is nothing."""
    return _plain(text) in _WORDS


def null_words(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the words that stand for null in records of a schema: those it doesn't use itself.

    Where "unknown" is one of an enum's choices, it is an answer.
    """
    own: set[str] = set()
    for _, sub in subschemas(schema):
        choices = sub.get("enum")
        stated = [*(choices if isinstance(choices, list) else []), sub.get("const")]
        own.update(_plain(value) for value in stated if isinstance(value, str))
    return _WORDS - own


def without(value: Any, words: frozenset[str]) -> Any:
    """Return a record with null in place of strings that are one of `words`."""
    if isinstance(value, str):
        return None if _plain(value) in words else value
    if isinstance(value, dict):
        return {key: without(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [without(item, words) for item in value]
    return value


def _plain(text: str) -> str:
    return text.strip().lower()
