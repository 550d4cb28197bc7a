"""Bytes of a crawled page to what a model and a human can use of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urljoin

from ..reason import Reason, Refused
from .content_type import Kind, kind_of
from .decode import Decoded, decode
from .feed import feed_markup
from .json_text import json_text
from .limits import Deadline, PageLimits
from .lines import PageText
from .metadata import Metadata, MetadataEntry, read_metadata
from .parse import parse
from .source_map import SourceMap, SourcePiece
from .text import visible_text

_DEFAULT_LIMITS = PageLimits()


@dataclass(frozen=True)
class Link:
    """A link of the visible text: its number ("L12"), and the offset where its words end.

    `href` is the address as the page writes it, `url` the absolute one.
    """

    id: str
    offset: int
    url: str
    href: str


@dataclass(frozen=True, eq=False)
class Page:
    """A page as read: its visible text, one block a line, and its metadata.

    Offsets everywhere are code points of `text`. `source` is the decoded body.
    """

    kind: Kind
    url: str | None
    encoding: str
    encoding_evidence: str
    source: str = field(repr=False)
    content: PageText = field(repr=False)
    metadata: Metadata = field(repr=False)

    @property
    def text(self) -> str:
        return self.content.text

    @property
    def title(self) -> str:
        return self.metadata.title

    def links(self) -> list[Link]:
        """Return the links of the text with absolute URLs where the page's own URL is known."""
        try:
            base = urljoin(self.url or "", self.metadata.base_url)
        except ValueError:
            base = self.url or ""
        found: list[Link] = []
        for number, (offset, href) in enumerate(self.content.links, start=1):
            try:
                url = urljoin(base, href.strip())
            except ValueError:
                url = href
            found.append(Link(f"L{number}", offset, url, href))
        return found

    def source_pieces(self, start: int, end: int) -> list[SourcePiece]:
        """Return where text[start:end] stands in `source`; see `source_map`."""
        return SourceMap(self.source, self.content).pieces(start, end)


def read(
    body: bytes,
    *,
    url: str | None = None,
    content_type: str | None = None,
    encoding: str | None = None,
    limits: PageLimits = _DEFAULT_LIMITS,
    menus: bool = False,
    native: bool = True,
) -> Page:
    """Read a crawled page's body. Raises nothing but Refused, whatever the bytes are.

    `content_type` is the HTTP header's value; `encoding`, where given, overrides what header and
    page say. `menus`: whether long menus are part of the visible text.
    `native`: whether the C++ core makes it, or the same in Python.
    """
    if len(body) > limits.max_bytes:
        raise Refused(
            Reason.PAGE_TOO_LARGE,
            f"the page has {len(body)} bytes, {limits.max_bytes} are allowed",
            advice="submit the part that holds the record",
        )
    if not body.strip():
        raise Refused(Reason.PAGE_EMPTY, "the body is empty")
    deadline = Deadline(limits.max_seconds)
    try:
        kind = kind_of(body, content_type)
        decoded = decode(body, content_type=content_type, encoding=encoding)
        page = _read_text(decoded, kind, url, limits, deadline, menus, native)
    except (ValueError, RuntimeError, RecursionError, MemoryError) as error:
        # The parser's own exceptions (SelectolaxError is a RuntimeError or ValueError).
        raise Refused(
            Reason.PAGE_UNREADABLE, f"the page can't be parsed ({type(error).__name__})"
        ) from None
    if not page.text and not page.metadata.entries:
        raise Refused(Reason.PAGE_EMPTY, "the page has no visible text and no metadata")
    return page


def _read_text(
    decoded: Decoded,
    kind: Kind,
    url: str | None,
    limits: PageLimits,
    deadline: Deadline,
    menus: bool,
    native: bool,
) -> Page:
    source = decoded.text
    metadata = Metadata()
    if kind == "json":
        content = json_text(source, deadline)
    elif kind == "text":
        content = PageText.plain(source)
    else:
        markup = feed_markup(source) if kind == "feed" else source
        parsed = parse(markup, limits)
        deadline.check()
        metadata = read_metadata(parsed.tree, limits)
        deadline.check()
        content = visible_text(parsed, limits, deadline, menus=menus, native=native)
    return Page(
        kind=kind,
        url=url,
        encoding=decoded.encoding,
        encoding_evidence=decoded.evidence,
        source=source,
        content=content,
        metadata=metadata,
    )


__all__ = ["Link", "MetadataEntry", "Page", "read"]
