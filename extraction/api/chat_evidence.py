"""Where in a conversation's page the values of its answers stand."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from .. import grounding
from ..record import Evidence
from ..verbatim import verbatim_values
from .constraints import Bounds


def add_evidence(choices: list[dict[str, Any]], bounds: Bounds | None, page: str) -> None:
    """Give each choice of a chat completion its `evidence`."""
    for choice in choices:
        message = choice["message"]
        calls = message.get("tool_calls")
        content = calls[0]["function"]["arguments"] if calls else message["content"]
        found = _evidence(content, bounds, page)
        choice["evidence"] = [msgspec.to_builtins(place) for place in found]


def _evidence(content: str, bounds: Bounds | None, page: str) -> list[Evidence]:
    """The places of an answer's values; nothing for one that is no JSON."""
    if bounds is None or bounds.schema is None or not page:
        return []
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return []
    copied = verbatim_values(bounds.schema.schema, record)
    return grounding.locate(record, page, verbatim=copied)
