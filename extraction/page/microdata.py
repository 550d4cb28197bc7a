"""Microdata (itemscope, itemprop) in the shape of JSON-LD objects."""

from __future__ import annotations

from typing import Any

from selectolax.lexbor import LexborNode

_URL_ATTRIBUTES = {
    "a": "href",
    "area": "href",
    "link": "href",
    "img": "src",
    "audio": "src",
    "video": "src",
    "source": "src",
    "iframe": "src",
    "embed": "src",
    "object": "data",
    "data": "value",
    "meter": "value",
    "time": "datetime",
}
_MAX_NODES = 200_000
_MAX_VALUES = 500
_MAX_CHARS = 4000


def read_items(root: LexborNode) -> list[dict[str, Any]]:
    """Return the top-level items below `root`, each like a JSON-LD object with @type.

    An item that stands within another but is no property of it counts as top-level.
    """
    items: list[dict[str, Any]] = []
    # Depth first; each open element carries the item that its properties belong to.
    waiting: list[tuple[LexborNode, dict[str, Any] | None]] = [(root, None)]
    visited = values = 0
    while waiting and visited < _MAX_NODES and values < _MAX_VALUES:
        node, owner = waiting.pop()
        visited += 1
        attributes = node.attributes
        name = attributes.get("itemprop")
        inner = owner
        if "itemscope" in attributes:
            inner = {"@type": _type_name(attributes.get("itemtype"))}
            if name and owner is not None:
                _add(owner, name, inner)
            else:
                items.append(inner)
        elif name and owner is not None:
            values += 1
            _add(owner, name, _value(node, attributes))
        children = [(child, inner) for child in node.iter()]
        waiting.extend(reversed(children))
    return [item for item in items if len(item) > 1]


def _type_name(itemtype: str | None) -> str:
    first = (itemtype or "").split()[:1]
    return first[0].rstrip("/").rpartition("/")[2].rpartition("#")[2] if first else ""


def _value(node: LexborNode, attributes: dict[str, str | None]) -> str:
    content = attributes.get("content")
    if content is not None:
        return content.strip()
    tag = node.tag or ""
    attribute = _URL_ATTRIBUTES.get(tag)
    if attribute is not None:
        stated = attributes.get(attribute)
        # Links around a value's text are common where the vocabulary wants the text.
        if stated and tag not in ("a", "area"):
            return stated.strip()
    text = " ".join(node.text(separator=" ").split())[:_MAX_CHARS]
    return text or (attributes.get(attribute) or "" if attribute else "")


def _add(item: dict[str, Any], names: str, value: Any) -> None:
    if value == "":
        return
    for name in names.split():
        if name in item:
            known = item[name]
            if isinstance(known, list):
                known.append(value)
            else:
                item[name] = [known, value]
        else:
            item[name] = value
