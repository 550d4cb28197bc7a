"""Which fields of a schema metadata can answer, and where (`x-pagemill-source`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagemill import schemas
from pagemill.schemas.walk import escape

from ..verbatim import has_verbatim

_MAX_DEPTH = 4
_PATH = re.compile(r"[A-Z]\w*(?:\.\w+)+")


@dataclass(frozen=True, eq=False)
class KnownSource:
    """A field at `pointer`, outside of arrays: its schema, and its sources by preference.

    `paths` are schema.org paths with their type first ("Product.offers.price") split at the dots;
    `tags` names of meta tags, `labels` what stands before such a code in the visible text.
    `days`: a day below the heading answers; `heading`: the heading that the title repeats.
    `validator` checks a value of the field.
    """

    pointer: str
    schema: Mapping[str, Any]
    paths: tuple[tuple[str, ...], ...]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    days: bool
    heading: bool
    validator: schemas.Validator = field(repr=False)


def known_sources(schema: Mapping[str, Any]) -> tuple[KnownSource, ...]:
    """The fields of a loaded schema that say where metadata tells of them."""
    return tuple(_sources(schema, schema, "", 0))


def _sources(
    root: Mapping[str, Any], owner: Mapping[str, Any], at: str, depth: int
) -> Iterator[KnownSource]:
    properties = owner.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, sub in properties.items():
        if not isinstance(sub, Mapping):
            continue
        pointer = f"{at}/{escape(name)}"
        stated = sub.get("x-pagemill-source")
        listed = stated if isinstance(stated, list) else [stated]
        texts = [text for text in listed if isinstance(text, str)]
        tags = [text[5:] for text in texts if text.startswith("meta:")]
        paths = [text.split(".") for text in texts if _PATH.fullmatch(text)]
        labels = [text[6:] for text in texts if text.startswith("label:")]
        # A verbatim field is copied from the page's text; what metadata says may not stand there.
        if (paths or tags or labels) and not has_verbatim(sub):
            alone = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
            yield KnownSource(
                pointer,
                sub,
                tuple(tuple(path) for path in paths),
                tuple(tags),
                tuple(labels),
                "text:day" in texts,
                "text:heading" in texts,
                schemas.Validator({**alone, **sub}),
            )
        if depth < _MAX_DEPTH and sub.get("type") == "object":
            yield from _sources(root, sub, pointer, depth + 1)
