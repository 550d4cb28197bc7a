"""Microdata (itemscope, itemprop) in the shape of JSON-LD objects."""

from __future__ import annotations

from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

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


def read_items(tree: LexborHTMLParser) -> list[dict[str, Any]]:
    """Return the top-level items of a page, each like a JSON-LD object with @type.

    An item that stands within another but is no property of it counts as top-level.
    """
    items: list[dict[str, Any]] = []
    # The item that the properties within an element belong to, by the element's address.
    owners: dict[int, dict[str, Any] | None] = {}
    values = 0
    done: set[int] = set()
    for node in tree.css("[itemscope], [itemprop]"):
        if node.mem_id in done:
            continue
        done.add(node.mem_id)
        if len(owners) > _MAX_NODES or values >= _MAX_VALUES:
            break
        owner = _owner(node.parent, owners)
        attributes = node.attributes
        name = attributes.get("itemprop")
        if "itemscope" in attributes:
            inner = owners[node.mem_id] = {"@type": _type_name(attributes.get("itemtype"))}
            if name and owner is not None:
                _add(owner, name, inner)
            else:
                items.append(inner)
        elif name and owner is not None:
            values += 1
            _add(owner, name, _value(node, attributes))
    return [item for item in items if len(item) > 1]


def _owner(
    node: LexborNode | None, owners: dict[int, dict[str, Any] | None]
) -> dict[str, Any] | None:
    """The item that what stands in an element belongs to; each element is asked once."""
    asked: list[int] = []
    while node is not None and node.mem_id not in owners:
        asked.append(node.mem_id)
        node = node.parent
    owner = owners[node.mem_id] if node is not None else None
    owners.update(dict.fromkeys(asked, owner))
    return owner


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
