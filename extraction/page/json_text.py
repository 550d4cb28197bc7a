"""JSON documents as lines of `path: value`."""

from __future__ import annotations

from typing import Any

import orjson

from .limits import Deadline
from .lines import PageText, TextWriter


def json_text(source: str, deadline: Deadline) -> PageText:
    """Return the scalars of a JSON document, a line each; plain text when it isn't JSON."""
    try:
        document: Any = orjson.loads(source)
    except (orjson.JSONDecodeError, RecursionError):
        return PageText.plain(source)
    writer = TextWriter()
    waiting: list[tuple[str, Any]] = [("", document)]
    count = 0
    while waiting:
        path, value = waiting.pop()
        count += 1
        if count % 4096 == 0:
            deadline.check()
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            waiting.extend((f"{prefix}{key}"[-200:], item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((path, item) for item in reversed(value))
        elif value is not None and value != "":
            if path:
                writer.made(f"{path}:")
                writer.separate()
            writer.words(value if isinstance(value, str) else orjson.dumps(value).decode())
            writer.end_line()
    return writer.finish()
