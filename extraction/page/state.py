"""Data that a page's scripts start from: `__NEXT_DATA__`, `window.__STATE__ = {...}`.

Pages that scripts fill may have their values nowhere else. Such states are large and have no common
vocabulary: what is taken are scalars under keys that records ask for, each with its parent's key.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

_ASSIGNMENT = re.compile(
    r"""(?:\b(?:window|self|globalThis|var|let|const)\s*(?:\.|\[\s*["']|\s))\s*"""
    r"""(?:__?[A-Z][A-Z0-9_]*|[a-z]\w*State|dataLayer)(?:["']\s*\])?\s*=\s*"""
    r"""(?:JSON\.parse\(\s*(?=["'])|(?=[{\[]))"""
)
# What JavaScript writes and JSON doesn't: single quotes, bare keys, its own constants, commas
# before a closing bracket. Strings come first, so that nothing within one is touched.
_LITERAL = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|'(?P<single>(?:[^'\\]|\\.)*)'"
    r"|(?<=[{,\s])(?P<key>[A-Za-z_$][\w$]*)(?=\s*:)"
    r"|\b(?P<nothing>undefined|void 0|NaN)\b"
    r"|!(?P<truth>[01])\b"
    r"|(?P<comma>,)(?=\s*[}\]])",
    re.DOTALL,
)
_KEYS = frozenset(
    "name title headline price saleprice currency pricecurrency sku mpn gtin gtin13 ean isbn brand "
    "manufacturer model availability instock rating ratingvalue reviewcount author publisher date "
    "datepublished publishedat company jobtitle location city street postalcode phone telephone "
    "email startdate enddate salary description".split()
)
_MAX_TRIES = 16
_MAX_CHARS = 1_000_000
_MAX_NODES = 50_000
_MAX_FACTS = 40
_MAX_VALUE = 300

_decoder = json.JSONDecoder(strict=False)


def read_script(text: str, *, is_json: bool = False) -> list[Any]:
    """Return the states that a script element holds; `is_json`: it is one as a whole."""
    if len(text) > _MAX_CHARS:
        return []
    if is_json:
        return [document for document in (_json(text.strip()),) if document is not None]
    found: list[Any] = []
    for _, start in zip(range(_MAX_TRIES), _ASSIGNMENT.finditer(text), strict=False):
        value = _json(text[start.end() :])
        if isinstance(value, str):
            value = _json(value)
        if isinstance(value, dict | list):
            found.append(value)
    return found


def _json(text: str) -> Any:
    for source in (text, None):
        try:
            # A second try, as the first is much faster and mostly enough.
            return _decoder.raw_decode(_LITERAL.sub(_as_json, text) if source is None else source)[
                0
            ]
        except (ValueError, RecursionError):
            continue
    return None


def _as_json(found: re.Match[str]) -> str:
    if found["single"] is not None:
        inner = found["single"].replace("\\'", "'")
        return '"' + re.sub(r'(\\.)|"', lambda quote: quote[1] or '\\"', inner) + '"'
    if found["key"] is not None:
        return f'"{found["key"]}"'
    if found["nothing"] is not None:
        return "null"
    if found["truth"] is not None:
        return "true" if found["truth"] == "0" else "false"
    return "" if found["comma"] else found[0]


def facts(state: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (parent's key and key, value, path) of what records ask for, the outermost first."""
    waiting: deque[tuple[str, str, Any]] = deque([("", "", state)])
    count = nodes = 0
    while waiting and count < _MAX_FACTS and nodes < _MAX_NODES:
        parent, at, value = waiting.popleft()
        nodes += 1
        if isinstance(value, list):
            waiting.extend((parent, f"{at}/{i}", item) for i, item in enumerate(value[:50]))
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, dict | list):
                    waiting.append((str(key), f"{at}/{key}", item))
                    continue
                is_asked = re.sub(r"[\W_]", "", key).lower() in _KEYS
                text = str(item).strip()[:_MAX_VALUE] if item is not None else ""
                if is_asked and text and not isinstance(item, bool):
                    count += 1
                    yield (f"{parent}.{key}" if parent else key), text, f"{at}/{key}"
