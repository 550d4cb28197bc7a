"""Decoded text to a tree, with guards for pages that are made to be slow or deep.

The parser (Lexbor) is linear for honest pages. Three things in the HTML standard are not: a tag may
look through all open elements, open formatting elements (`<b>`, `<font>`, ...) are opened again in
each new block, and each attribute is compared with all others of its element. All are estimated
from the tags alone, in one pass of the C++ core, before the parser sees the page.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagemill import _core
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from ..reason import Reason, Refused
from .limits import PageLimits

_FEW_TAGS = 2000  # fewer can't cost anything noticeable, however they nest


@dataclass(frozen=True, eq=False)
class ParsedPage:
    """A page's tree, and the markup it was read from in UTF-8."""

    tree: LexborHTMLParser
    utf8: bytes


def parse(html: str, limits: PageLimits) -> ParsedPage:
    """Return the parsed page; Refused (page_too_deep) when parsing it would take too long."""
    # Half of a pair of surrogates is no character, and the parser's own encoding drops it too.
    utf8 = html.encode("utf-8", "ignore")
    cost = _core.page_cost(utf8)
    if _is_deep(html, cost, limits) and html.count("<") > _FEW_TAGS:
        raise Refused(
            Reason.PAGE_TOO_DEEP,
            "the page's elements are nested too deeply",
            advice="submit the part that holds the record",
        )
    if (
        cost.is_overlapping
        or cost.max_attributes > limits.max_attributes
        or cost.attribute_pairs > 2 * limits.max_attributes**2
    ):
        raise Refused(Reason.PAGE_TOO_DEEP, "an element has too many attributes")
    # `scripting`: what stands in <noscript> is for other browsers, and stays one text node.
    tree = LexborHTMLParser(utf8, options=LexborDocumentOptions.WO_EVENTS.value, scripting=True)
    return ParsedPage(tree, utf8)


def _is_deep(html: str, cost: _core.PageCost, limits: PageLimits) -> bool:
    if cost.open_elements > limits.max_parse_work or cost.reopened > limits.max_reopened:
        return True
    # Inside of these, list items and table cells nest like any other element.
    is_foreign_deep = cost.open_elements_foreign > 8 * limits.max_parse_work
    return is_foreign_deep and ("<svg" in html or "<math" in html)
