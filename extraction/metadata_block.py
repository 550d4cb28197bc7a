"""What a page's metadata adds to its text in the prompt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from .page import MetadataEntry, Page
from .page.metadata import grouped_lines, is_publisher
from .schema_prompt import SchemaPrompt

_MAX_TAG_CHARS = 120
# So much of a meta tag's beginning tells whether the text says the same.
_TELLING_CHARS = 80
# Meta tags that only some schemas ask for, and words by which their fields would speak of them.
_ASKED_BY = {
    "description": ("description", "summary", "about", "teaser"),
    "image": ("image", "picture", "photo"),
    "keywords": ("keyword", "tag"),
    "locale": ("language", "locale"),
    "modified": ("modif", "updat", "date"),
    "published": ("publish", "date", "posted", "year"),
    "section": ("section", "categor"),
    "tag": ("keyword", "tag"),
    "type": ("kind of page", "page type"),
    "url": ("url", "link", "website", "web site"),
}


def metadata_lines(page: Page, schema: SchemaPrompt, known: Collection[str] = ()) -> list[str]:
    """The metadata block, the most telling lines last.

    What the schema's fields are found in stands under the fields' names, but for the fields `known`
    ("outer.inner"); meta tags as they are, shortened, where the text doesn't say the same. A schema
    that names no sources gets all things that the page describes.
    """
    asked = schema.system.lower()
    lines = [f"url: {page.url}"] if page.url and _speaks_of(asked, "url") else []
    if schema.sources:
        told = list(_told(page, schema, known))
        fields = {field for field, _ in told}.union(known)
    else:
        told = [(entry.key, entry.value) for entry in page.metadata.entries if entry.thing]
        fields = set(known)
    tags = [entry for entry in _tags(page, asked) if entry.key not in fields]
    lines += grouped_lines((entry.key, entry.value[:_MAX_TAG_CHARS]) for entry in tags)
    return lines + grouped_lines(told)


def _told(page: Page, schema: SchemaPrompt, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """(field, value) of what the schema's sources say."""
    for field, thing, keys in schema.sources:
        for key in keys if field not in known else ():
            found = [
                entry.value
                for entry in page.metadata.entries
                if entry.key == key and (entry.thing == thing or not is_publisher(entry.thing))
                if entry.thing
            ]
            if found:
                yield from ((field, value) for value in found)
                break


def _tags(page: Page, asked: str) -> Iterator[MetadataEntry]:
    """Meta tags that say something which neither the text nor a tag before them says."""
    said: dict[str, list[str]] = {}
    for entry in page.metadata.entries:
        if entry.thing or (entry.key == "url" and page.url):
            continue
        if entry.path.startswith("state/") and not _is_asked(entry, asked):
            continue
        if not _speaks_of(asked, entry.key):
            continue
        before = said.setdefault(entry.key, [])
        if any(entry.value in value for value in before):
            continue
        if entry.key not in ("title", "url") and entry.value[:_TELLING_CHARS] in page.text:
            continue
        before.append(entry.value)
        yield entry


def _speaks_of(asked: str, key: str) -> bool:
    words = _ASKED_BY.get(key)
    return words is None or any(word in asked for word in words)


def _is_asked(entry: MetadataEntry, asked: str) -> bool:
    """Whether the schema speaks of a key of the page's scripts: "product.datePublished"."""
    words = re.findall(r"[a-z]+", re.sub(r"(?=[A-Z])", " ", entry.key.rpartition(".")[2]).lower())
    return any(word in asked for word in words)
