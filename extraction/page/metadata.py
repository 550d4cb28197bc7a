"""What a page says of itself in markup: JSON-LD, microdata, OpenGraph, meta tags.

All of it is reduced to short `key: value` entries, the same for every syntax. Each entry keeps
the path of the value it shows, so that a record's value can be traced to it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from . import jsonld, microdata, state
from .limits import PageLimits

_MAX_ENTRIES = 160
_MAX_VALUE = 600
_MAX_PER_KEY = 60
_MAX_THINGS = 8
_MAX_DEPTH = 6
_MAX_STATES = 8
# Where a state is assigned near a script's beginning.
_STATE = re.compile(r"__[A-Z]|State\b|JSON\.parse|dataLayer")
_STATE_HEAD = 2000

# Things that describe the site and its furniture, not what the page is about.
_FURNITURE = frozenset(
    "WebSite WebPage BreadcrumbList SearchAction ImageObject SiteNavigationElement WPHeader "
    "WPFooter WPSideBar ListItem ItemList CollectionPage SearchResultsPage ReadAction ViewAction "
    "Comment Review VideoObject Table SpeakableSpecification UserComments Blog".split()
)
# The page's own subject goes before who publishes it.
_PUBLISHERS = frozenset("Organization Person Corporation NewsMediaOrganization OnlineStore".split())
_SKIPPED_KEYS = frozenset(
    "@context @id @type potentialAction review reviews mainEntityOfPage mainEntity isPartOf "
    "breadcrumb logo interactionStatistic comment articleBody reviewBody video thumbnail "
    "thumbnailUrl speakable hasMerchantReturnPolicy shippingDetails copyrightHolder "
    "subjectOf image.width image.height isRelatedTo isSimilarTo relatedLink "
    "itemListElement".split()
)
_META_KEYS = {
    "og:title": "title",
    "og:description": "description",
    "og:site_name": "site",
    "og:type": "type",
    "og:url": "url",
    "og:image": "image",
    "og:locale": "locale",
    "og:price:amount": "price",
    "og:price:currency": "currency",
    "product:price:amount": "price",
    "product:price:currency": "currency",
    "product:sale_price:amount": "sale price",
    "product:sale_price:currency": "currency",
    "product:brand": "brand",
    "product:availability": "availability",
    "product:condition": "condition",
    "product:retailer_item_id": "sku",
    "article:published_time": "published",
    "article:modified_time": "modified",
    "article:author": "author",
    "article:section": "section",
    "article:tag": "tag",
    "book:author": "author",
    "book:isbn": "isbn",
    "book:release_date": "published",
    "twitter:title": "title",
    "twitter:description": "description",
    "description": "description",
    "author": "author",
    "keywords": "keywords",
    "date": "published",
    "pubdate": "published",
    "publish-date": "published",
    "dc.title": "title",
    "dc.creator": "author",
    "dc.date": "published",
    "dcterms.created": "published",
    "dc.date.issued": "published",
    "citation_author": "author",
    "citation_publication_date": "published",
    "parsely-author": "author",
    "parsely-pub-date": "published",
    "sailthru.author": "author",
    "sailthru.date": "published",
}
_SCHEMA_ORG = re.compile(r"^https?://(?:www\.)?schema\.org/(\w+)$")
_DURATION = re.compile(
    r"^P(?:(\d{1,4})D)?(?:T(?:(\d{1,4}(?:\.\d+)?)H)?(?:(\d{1,5}(?:\.\d+)?)M)?(?:\d{1,6}(?:\.\d+)?S)?)?$"
)
_TAGS = re.compile(r"<[^<>]{1,200}>")


@dataclass(frozen=True)
class MetadataEntry:
    """One fact: `path` is where it stands, e.g. "jsonld/0/offers/price" or "meta/og:title".

    `thing` is the schema.org type that the fact belongs to, "" for meta tags.
    """

    key: str
    value: str
    path: str
    thing: str = ""


@dataclass(frozen=True)
class Metadata:
    """A page's metadata."""

    entries: list[MetadataEntry] = field(default_factory=list)
    title: str = ""
    base_url: str = ""
    # All objects of JSON-LD and microdata as they stand, by the start of their paths, and the meta
    # tags by their names in lower case.
    things: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    tags: dict[str, str] = field(default_factory=dict, repr=False)

    def lines(self) -> list[str]:
        """Return the block as `key: value` lines; values of one key share a line."""
        return grouped_lines((entry.key, entry.value) for entry in self.entries)

    def value_at(self, path: str) -> str | None:
        """Return the text in which evidence of a path counts its offsets; None for no value."""
        kind, _, rest = path.partition("/")
        if kind == "meta" and rest in self.tags:
            return clean_text(self.tags[rest])
        if kind not in ("jsonld", "microdata"):
            return next((entry.value for entry in self.entries if entry.path == path), None)
        number, _, inner = rest.partition("/")
        value: Any = self.things.get(f"{kind}/{number}")
        for part in inner.split("/"):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return (
            None
            if value is None or isinstance(value, dict | list)
            else clean_text(scalar_text(value))
        )


def grouped_lines(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Return (key, value) pairs as `key: value` lines, the values of a key on one line."""
    grouped: dict[str, list[str]] = {}
    for key, value in facts:
        grouped.setdefault(key, []).append(value)
    return [f"{key}: {'; '.join(values)}" for key, values in grouped.items()]


def is_publisher(thing: str) -> bool:
    """Whether things of this type are who publishes a page rather than what it is about."""
    return thing in _PUBLISHERS


def read_metadata(tree: LexborHTMLParser, limits: PageLimits) -> Metadata:
    """Return the metadata of a parsed page; what can't be read is left out."""
    things: list[tuple[str, dict[str, Any]]] = []
    states: list[tuple[str, bool]] = []
    chars = 0
    for script in tree.css("script"):
        script_type = (script.attributes.get("type") or "").strip().lower()
        text = script.text()
        if not text or chars + len(text) > 10 * limits.max_metadata_chars:
            continue
        if _STATE.search(text[:_STATE_HEAD]) or script.attributes.get("id") == "__NEXT_DATA__":
            states.append((text, script_type == "application/json"))
        if script_type.startswith("application/ld+json"):
            read = jsonld.read_script(text)
        elif "__next_s" in text and "ld+json" in text:
            read = jsonld.read_pushes(text)
        else:
            continue
        chars += len(text)
        things.extend((f"jsonld/{len(things) + i}", thing) for i, thing in enumerate(read))
    items = microdata.read_items(tree)
    things.extend((f"microdata/{i}", thing) for i, thing in enumerate(items))
    collector = _Collector()
    title = _head(tree, collector)
    for path, thing in _ordered(things):
        collector.thing(thing, path)
    if not things:  # else they tell the same, in fewer words and a known vocabulary
        documents = [
            document
            for text, is_json in states[:_MAX_STATES]
            for document in state.read_script(text, is_json=is_json)
        ]
        for number, document in enumerate(documents):
            for key, value, at in state.facts(document):
                collector.add(key, value, f"state/{number}{at}")
    base = tree.css_first("base[href]")
    return Metadata(
        entries=collector.entries,
        title=title,
        base_url=(base.attributes.get("href") or "").strip() if base else "",
        things=dict(things),
        tags=collector.tags,
    )


def _head(tree: LexborHTMLParser, collector: _Collector) -> str:
    element = tree.css_first("head > title") or tree.css_first("title")
    title = _one_line(element.text()) if element is not None else ""
    collector.add("title", title, "title")
    for meta in tree.css("meta"):
        attributes = meta.attributes
        name = (attributes.get("property") or attributes.get("name") or "").strip().lower()
        content = _one_line(attributes.get("content") or "")
        if name and content and len(collector.tags) < _MAX_ENTRIES:
            collector.tags.setdefault(name, content)
        key = _META_KEYS.get(name)
        if key is not None:
            collector.add(key, content, f"meta/{name}")
    times = (element.attributes.get("datetime") for element in tree.css("time[datetime]"))
    if stated := next((_one_line(time) for time in times if time and time.strip()), ""):
        collector.tags.setdefault("time", stated)
    canonical = tree.css_first("link[rel~=canonical]")
    if canonical is not None:
        collector.add("url", canonical.attributes.get("href") or "", "link/canonical")
    return title


def _ordered(things: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    wanted = [entry for entry in things if not types_of(entry[1]) & _FURNITURE]
    wanted.sort(key=lambda entry: bool(types_of(entry[1]) & _PUBLISHERS))
    return wanted[:_MAX_THINGS]


def types_of(thing: dict[str, Any]) -> set[str]:
    """The schema.org types of a JSON-LD object, without their address."""
    stated = thing.get("@type")
    names = stated if isinstance(stated, list) else [stated]
    return {str(name).rpartition("/")[2] for name in names if name}


class _Collector:
    """Gathers entries, each value once for its key, within bounds."""

    def __init__(self) -> None:
        self.entries: list[MetadataEntry] = []
        self.tags: dict[str, str] = {}
        self._values: dict[str, set[str]] = {}

    def add(self, key: str, value: str, path: str, thing: str = "") -> None:
        value = clean_text(value)
        if schema_org := _SCHEMA_ORG.match(value):
            value = schema_org[1]
        if duration := _DURATION.match(value):
            value = _minutes(duration) or value
        if len(value) > _MAX_VALUE:
            value = value[:_MAX_VALUE].rpartition(" ")[0] + " ..."
        known = self._values.setdefault(key, set())
        if (
            value
            and value not in known
            and len(known) < _MAX_PER_KEY
            and len(self.entries) < _MAX_ENTRIES
        ):
            known.add(value)
            self.entries.append(MetadataEntry(key, value, path, thing))

    def thing(self, thing: dict[str, Any], path: str) -> None:
        """Add all facts of a JSON-LD object."""
        kind = min(types_of(thing), default="")
        self.add("type", kind, f"{path}/@type", kind)
        for key, value, at in _facts(thing, path):
            if len(self.entries) >= _MAX_ENTRIES:
                break
            self.add(key, value, at, kind)


def _facts(thing: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Yield (key, value, path) of each scalar of a thing, in document order."""
    waiting: list[tuple[str, Any, str, int]] = [("", thing, path, 0)]
    while waiting:
        key, value, at, depth = waiting.pop()
        if isinstance(value, dict):
            inner = _inner(value, key)
            if depth < _MAX_DEPTH:
                waiting.extend(
                    (name, item, f"{at}/{part}", depth + 1) for part, name, item in reversed(inner)
                )
        elif isinstance(value, list):
            items = value[:1] if key.endswith("image") else value[:_MAX_PER_KEY]
            if depth < _MAX_DEPTH:
                waiting.extend(
                    (key, item, f"{at}/{i}", depth + 1)
                    for i, item in reversed(list(enumerate(items)))
                )
        elif value is not None and key:
            yield key, scalar_text(value), at


def _inner(value: dict[str, Any], key: str) -> list[tuple[str, str, Any]]:
    """The facts of an object as (part of the path, key, value).

    An object that is little more than a name or a text stands for it.
    """
    if "@value" in value:
        return [("@value", key, value["@value"])]
    kinds = types_of(value)
    if key and "PropertyValue" in kinds and "name" in value and "value" in value:
        name = value["name"]
        if key.endswith("ngredient"):
            return [("value", key, f"{scalar_text(value['value'])} {scalar_text(name)}")]
        return [("value", f"{scalar_text(name)}"[:60], value["value"])]
    if kinds & {"HowToStep", "HowToDirection", "HowToTip"} and value.get("text"):
        return [("text", key, value["text"])]
    if "HowToSection" in kinds:
        return [("itemListElement", key, value.get("itemListElement"))]
    if key.endswith("image") and (url := value.get("url") or value.get("contentUrl")):
        return [("url", key, url)]
    prefix = f"{key}." if key else ""
    facts: list[tuple[str, str, Any]] = []
    for part, item in value.items():
        if part in _SKIPPED_KEYS:
            continue
        name = key if key and part == "name" else prefix + part
        facts.append((str(part), name, item))
    return facts


def _minutes(duration: re.Match[str]) -> str:
    """An ISO 8601 duration as people write it."""
    days, hours, minutes = (float(part or 0) for part in duration.groups())
    total = round(days * 1440 + hours * 60 + minutes)
    return f"{total} minutes" if total else ""


def clean_text(value: str) -> str:
    """A value without markup, entities and doubled white space: what evidence counts in."""
    if "&" in value:
        value = html.unescape(value)
    if "<" in value:
        value = _TAGS.sub(" ", value)
    return _one_line(value)


def scalar_text(value: Any) -> str:
    """A JSON scalar as people write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())
