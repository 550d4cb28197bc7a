"""Ready-made schemas for common kinds of pages, one JSON file each.

They are written for small models: identifying fields first and long text last, every field
required and nullable where a page may be silent, every string and array bounded.
"""

from __future__ import annotations

import difflib
import functools
import json
from importlib import resources
from typing import Any

from ..errors import SchemaReason, SchemaRefused

__all__ = ["get", "names"]


@functools.cache
def names() -> tuple[str, ...]:
    """The names of the library's schemas, sorted."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


def get(name: str) -> dict[str, Any]:
    """The schema of that name, a copy of the caller's own. Raises SchemaRefused."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        raise SchemaRefused(
            SchemaReason.SCHEMA_UNKNOWN,
            f"the library has no schema {name!r}",
            advice=f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names())}",
        )
    schema: dict[str, Any] = json.loads(_text(name))
    return schema


@functools.cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.json").read_text("utf-8")
