"""Addresses in records: the model answers with a link's id, never with an address.

Where a schema asks for URLs, the prompt shows an id after each link ("Shop [L3]") and in place of
addresses in the metadata. Such a field is decoded as an id, by a grammar that all pages share, and
becomes the absolute address afterwards. So no address is made up, and long ones cost few tokens.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from pagemill.schemas.lowering.keywords import VERBATIM
from pagemill.schemas.walk import escape, subschemas

from .page import Page
from .record import Evidence
from .verbatim import strings_where

_FORMATS = frozenset({"uri", "uri-reference", "iri", "iri-reference"})
# A string that is bound in another way has to be written out.
_OTHER_BOUNDS = frozenset({"const", "enum", "not", "pattern", VERBATIM})
_CONDITION = re.compile(r"/(?:not|if)(?:/|$)")
_ID_PATTERN = "^L[1-9][0-9]{0,3}$"
_MAX_LINKS = 9999
_MARK = re.compile(r" \[L[1-9][0-9]{0,3}\]")
_ADDRESS = re.compile(r"https?://[^\s<>\"]+[^\s<>\".,;]", re.IGNORECASE)
_UNTOUCHED = "%/:=&?~#+!$,;'@()*[]"


def is_link_field(schema: Mapping[str, Any]) -> bool:
    """Whether a subschema is a string whose value is one of the page's addresses."""
    stated = schema.get("type")
    types = stated if isinstance(stated, list) else [stated]
    return (
        "string" in types and schema.get("format") in _FORMATS and not _OTHER_BOUNDS & schema.keys()
    )


def with_link_ids(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that is decoded: ids for addresses; `schema` itself if it has none."""
    found: Mapping[str, Any] = copy.deepcopy(schema)
    fields = [
        sub for at, sub in subschemas(found) if is_link_field(sub) and not _CONDITION.search(at)
    ]
    for field in fields:
        assert isinstance(field, dict)
        for keyword in ("format", "minLength", "maxLength"):
            field.pop(keyword, None)
        field["pattern"] = _ID_PATTERN
    return found if fields else schema


@dataclass(frozen=True)
class _Target:
    """An address, and where it stands: `written` is the value there."""

    url: str
    source: Literal["link", "metadata"]
    path: str
    written: str


class PageLinks:
    """The addresses of one page by their ids."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._ids: dict[str, str] = {}
        self._targets: dict[str, _Target] = {}
        self._marks: list[tuple[int, str]] = []
        for link in page.links():
            target = _Target(link.url, "link", link.id, link.href)
            if (link_id := self._id(target)) is not None:
                self._marks.append((link.offset, link_id))

    def _id(self, target: _Target) -> str | None:
        url = quote(target.url, safe=_UNTOUCHED)
        if not _ADDRESS.fullmatch(url):
            return None
        known = self._ids.get(url)
        if known is None and len(self._ids) < _MAX_LINKS:
            known = self._ids[url] = f"L{len(self._ids) + 1}"
            self._targets[known] = _Target(url, target.source, target.path, target.written)
        return known

    def marked(self, text: str) -> str:
        """Return lines of the page's visible text with the ids of their links."""
        whole = self._page.text
        parts: list[str] = []
        end = 0
        for offset, link_id in self._marks:
            parts += whole[end:offset], f" [{link_id}]"
            end = offset
        parts.append(whole[end:])
        shown: list[str] = []
        wanted = iter(text.split("\n"))
        line = next(wanted, None)
        for plain, marked in zip(whole.split("\n"), "".join(parts).split("\n"), strict=True):
            if plain == line:
                shown.append(marked)
                line = next(wanted, None)
        return "\n".join(shown)

    @staticmethod
    def unmarked(text: str) -> str:
        """Return marked text as the page has it."""
        return _MARK.sub("", text)

    def named(self, lines: Iterable[str]) -> list[str]:
        """Return the metadata block's lines with ids in place of addresses."""
        stated = {"url": self._page.url or ""}
        stated |= {entry.path: entry.value for entry in self._page.metadata.entries}

        def name(found: re.Match[str]) -> str:
            # The block shortens what is long.
            for path, value in stated.items():
                if value.startswith(found[0]):
                    link_id = self._id(_Target(value, "metadata", path, value))
                    return f"[{link_id}]" if link_id else found[0]
            return found[0]

        return [_ADDRESS.sub(name, line) for line in lines]

    def resolved(self, schema: Mapping[str, Any], record: Any) -> Any:
        """Return the record with addresses for ids, null for ids that the page doesn't have."""
        pointers = strings_where(schema, record, is_link_field)
        return self._resolved(record, "", pointers) if pointers else record

    def _resolved(self, value: Any, at: str, pointers: frozenset[str]) -> Any:
        if isinstance(value, dict):
            return {
                key: self._resolved(item, f"{at}/{escape(key)}", pointers)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._resolved(item, f"{at}/{i}", pointers) for i, item in enumerate(value)]
        if at in pointers and re.fullmatch(_ID_PATTERN, value):
            target = self._targets.get(value)
            return None if target is None else target.url
        return value

    def evidence(
        self, schema: Mapping[str, Any], record: Any, known: Collection[str] = ()
    ) -> list[Evidence]:
        """Return where the record's addresses stand on the page, but those at pointers `known`."""
        found: list[Evidence] = []
        for pointer in sorted(strings_where(schema, record, is_link_field).difference(known)):
            url = str(_value_at(record, pointer))
            target = self._targets.get(self._ids.get(url, ""))
            if target is not None:
                written = target.written
                found.append(
                    Evidence(
                        pointer=pointer,
                        source=target.source,
                        path=target.path,
                        start=0,
                        end=len(written),
                        exact=written == url,
                    )
                )
        return found


def _value_at(record: Any, pointer: str) -> Any:
    value = record
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
