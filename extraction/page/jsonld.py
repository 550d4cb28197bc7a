"""JSON-LD as pages really write it: read what can be read, drop the rest, never fail."""

from __future__ import annotations

import html
import json
import re
from typing import Any

_WRAPPING = re.compile(
    r"<!--|-->|/\*\s*<!\[CDATA\[\s*\*/|/\*\s*\]\]>\s*\*/|(?://\s*)?<!\[CDATA\[|(?://\s*)?\]\]>"
)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
# Strings come first, so that no address in one is taken for a comment.
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
_START = re.compile(r"[{\[]")
_NEXT_PUSH = re.compile(r"__next_s\s*\|\|\s*\[\]\)\.push\(|__next_s\.push\(")
_MAX_TRIES = 32
_MAX_OBJECTS = 256
_MAX_DEPTH = 64

_decoder = json.JSONDecoder(strict=False)  # raw control characters stand in strings


def read_script(text: str) -> list[dict[str, Any]]:
    """Return the JSON-LD objects of one script element; [] when nothing in it can be read.

    Takes trailing semicolons, comments, CDATA and comment wrapping, trailing commas, several
    documents in one script, and @graph; entities in strings are decoded.
    """
    found: list[dict[str, Any]] = []
    for document in _documents(text):
        found.extend(_objects(document))
        if len(found) >= _MAX_OBJECTS:
            break
    return [_unescape(thing) for thing in found[:_MAX_OBJECTS]]


def read_pushes(text: str) -> list[dict[str, Any]]:
    """Return the JSON-LD that a Next.js script element pushes for later insertion."""
    found: list[dict[str, Any]] = []
    for push in list(_NEXT_PUSH.finditer(text))[:_MAX_TRIES]:
        call = _decode(text, push.end())
        if call is None or not isinstance(call[0], list):
            continue
        for argument in call[0]:
            if isinstance(argument, dict) and argument.get("type") == "application/ld+json":
                children = argument.get("children")
                if isinstance(children, str):
                    found.extend(read_script(children))
    return found


def _documents(text: str) -> list[Any]:
    text = text.strip().removesuffix(";")
    if not text:
        return []
    whole = _decode(text, 0)
    if whole is not None and not text[whole[1] :].strip(" \t\r\n;"):
        return [whole[0]]
    text = _WRAPPING.sub("", text)
    documents = _series(text)
    if not documents:
        documents = _series(
            _TRAILING_COMMA.sub(r"\1", _COMMENT.sub(lambda found: found[1] or "", text))
        )
    return documents


def _series(text: str) -> list[Any]:
    """Decode one document after the other, stepping over what stands between them."""
    documents: list[Any] = []
    position = 0
    for _ in range(_MAX_TRIES):
        start = _START.search(text, position)
        if start is None:
            break
        decoded = _decode(text, start.start())
        if decoded is None:
            # A broken object: what is inside of it is no document of its own.
            break
        document, position = decoded
        documents.append(document)
    return documents


def _decode(text: str, position: int) -> tuple[Any, int] | None:
    try:
        return _decoder.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None


def _objects(document: Any) -> list[dict[str, Any]]:
    """The things of a document in order: lists and @graph are opened."""
    found: list[dict[str, Any]] = []
    waiting = [document]
    while waiting and len(found) < _MAX_OBJECTS:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            graph = value.get("@graph")
            if isinstance(graph, list):
                waiting.extend(reversed(graph))
            if any(not key.startswith("@") for key in value):
                found.append(value)
    return found


def _unescape(value: Any, depth: int = 0) -> Any:
    """Decode entities in all strings; what lies deeper than any vocabulary goes is dropped."""
    if isinstance(value, str):
        return html.unescape(value) if "&" in value else value
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: _unescape(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_unescape(item, depth + 1) for item in value]
    return value
