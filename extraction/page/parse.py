"""Decoded text to a tree, with guards for pages that are made to be slow or deep.

The parser (Lexbor) is linear for honest pages. Two things in the HTML standard are not: a tag may
look through all open elements, and open formatting elements (`<b>`, `<font>`, ...) are opened
again in each new block. Both are estimated from the tags alone before the parser sees the page.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from ..reason import Reason, Refused
from .limits import PageLimits

_TAG = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9:-]*)")
# An attribute as the HTML standard tokenises it: only after `=` do quotes hold anything.
_ATTRIBUTE_TEXT = (
    r"(?:=[^\s/>=]*+|[^\s/>=]++)"
    r"(?:\s*+=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\s>\"'][^\s>]*+)?+)?+"
)
_ATTRIBUTE = re.compile(_ATTRIBUTE_TEXT)
_TAG_REST = re.compile(rf"<[a-zA-Z](?=([^\s/>]*+(?:[\s/]++|{_ATTRIBUTE_TEXT})*+))")
# Elements that never stay open, or that the next of their kind closes.
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_NEVER_DEEP = _VOID | frozenset(
    "body html head title script style textarea p li dt dd tr td th option optgroup thead tbody "
    "tfoot colgroup caption rt rp image frame keygen nobr a button".split()
)
_FORMATTING = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_MAX_TAG_READS = 2  # of each character; once is what pages need that aren't made for it
_FEW_ATTRIBUTES = 64
_FEW_TAGS = 2000  # fewer can't cost anything noticeable, however they nest


def parse(html: str, limits: PageLimits) -> LexborHTMLParser:
    """Return the parsed page; Refused (page_too_deep) when parsing it would take too long."""
    if html.count("<") > _FEW_TAGS and not _is_cheap(html, limits):
        raise Refused(
            Reason.PAGE_TOO_DEEP,
            "the page's elements are nested too deeply",
            advice="submit the part that holds the record",
        )
    if _has_too_many_attributes(html, limits):
        raise Refused(Reason.PAGE_TOO_DEEP, "an element has too many attributes")
    # `scripting`: what stands in <noscript> is for other browsers, and stays one text node.
    return LexborHTMLParser(html, options=LexborDocumentOptions.WO_EVENTS.value, scripting=True)


def _has_too_many_attributes(html: str, limits: PageLimits) -> bool:
    """Whether one element has more attributes than allowed, many have many, or it is hard to tell.

    The parser compares each attribute with all others of its element. Every `<` before a letter
    is tried, in comments and quotes too: what begins a tag depends on all that stands before it,
    where a tag ends doesn't. Such tries overlap only in pages that are made for it.
    """
    budget = _MAX_TAG_READS * len(html)
    pairs = 0
    for found in _TAG_REST.finditer(html):
        start, end = found.span(1)
        budget -= end - start
        if budget < 0:
            return True
        if end - start > 2 * _FEW_ATTRIBUTES:
            count = len(_ATTRIBUTE.findall(html, start, end))
            pairs += count * count
            if count > limits.max_attributes or pairs > 2 * limits.max_attributes**2:
                return True
    return False


def _is_cheap(html: str, limits: PageLimits) -> bool:
    tags = _TAG.findall(html)
    work, reopened = nesting_work(tags, _NEVER_DEEP)
    if work > limits.max_parse_work or reopened > limits.max_reopened:
        return False
    if "<svg" in html or "<math" in html:
        # Inside of these, list items and table cells nest like any other element.
        work, _ = nesting_work(tags, _VOID)
        return work <= 8 * limits.max_parse_work
    return True


def nesting_work(tags: list[str], never_deep: frozenset[str]) -> tuple[int, int]:
    """Estimate what the parser must do: (open elements summed over tags, elements reopened).

    `tags` are names with a leading slash for end tags; `never_deep` those that don't nest.
    """
    numbers = {tag: number for number, tag in enumerate(dict.fromkeys(tags))}
    steps = np.array([_steps(tag, never_deep) for tag in numbers], np.int64).reshape(-1, 3)
    coded = steps[np.fromiter(map(numbers.__getitem__, tags), np.int64, len(tags))]
    work = int(_running(coded[:, 0]).sum())
    reopened = int((_running(coded[:, 1]) * coded[:, 2]).sum())
    return work, reopened


def _steps(tag: str, never_deep: frozenset[str]) -> tuple[int, int, int]:
    """How a tag changes the depth and the formatting elements, and whether it is a block."""
    name = tag.lstrip("/").lower()
    step = -1 if tag.startswith("/") else 1
    formatting = name in _FORMATTING
    return 0 if name in never_deep else step, step if formatting else 0, int(not formatting)


def _running(deltas: NDArray[np.int64]) -> NDArray[np.int64]:
    """Running sums that never fall below zero: a closing tag without an opening one is nothing."""
    sums = np.cumsum(deltas)
    floor: NDArray[np.int64] = np.minimum.accumulate(np.minimum(sums, 0))
    return sums - floor
