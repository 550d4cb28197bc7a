"""The visible text of a parsed page, one block a line.

# Heading            - list item            cell | cell            term: definition
~~struck out~~       [alternative text of an image]
"""

from __future__ import annotations

import re

from pagemill import _core
from selectolax.lexbor import LexborNode

from ..reason import Reason, Refused
from .limits import Deadline, PageLimits
from .lines import PageText, TextWriter
from .parse import ParsedPage
from .visibility import UNSEEN_TAGS, Sight, is_menu, is_spoken_only, is_struck

_BLOCKS = frozenset(
    "address article aside blockquote body caption center details dialog dir div dl fieldset "
    "figcaption figure footer form header hgroup hr html legend main menu nav ol optgroup p pre "
    "search section summary table tbody tfoot thead ul title item entry channel".split()
)
_MAY_NAVIGATE = frozenset("nav div ul ol dl table tbody tr section header footer aside".split())
_HEADINGS = {f"h{n}": "#" * min(n, 3) + " " for n in range(1, 7)}
# Most elements of most pages: their words flow on.
_INLINE = frozenset("span strong b i em u small font abbr time code mark picture".split())
_STRUCK = frozenset({"del", "s", "strike"})
_SEPARATE = frozenset({"button", "label", "option", "rt"})
_FILE_NAME = re.compile(r"\.(?:jpe?g|png|gif|webp|svg|avif)$", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_MAX_ALT = 80
_MAX_OPTIONS = 12


def visible_text(
    page: ParsedPage,
    limits: PageLimits,
    deadline: Deadline,
    *,
    menus: bool = False,
    native: bool = True,
) -> PageText:
    """Return the text that a reader of the page sees; `menus`: whether long menus are kept.

    `native` takes the C++ core, which reads the tree as Lexbor writes it out and gives the same
    text, else `walked_text`. Refused when the tree has too many nodes, or the time is over.
    """
    root = page.tree.body or page.tree.root
    if root is None:
        raise Refused(Reason.PAGE_EMPTY, "the page has no content")
    if native:
        found = _core.page_text(
            root.html or "",
            page.utf8,
            max_nodes=limits.max_nodes,
            max_seconds=max(0.0, deadline.left()),
            menus=menus,
        )
        if isinstance(found, tuple):
            return PageText(*found)
        if found == _core.PageTextOutcome.TOO_MANY_NODES:
            raise _too_many_nodes(limits)
        deadline.check()
    source = page.utf8.decode()
    return walked_text(root, source, limits, deadline, menus=menus)


def walked_text(
    root: LexborNode,
    source: str,
    limits: PageLimits,
    deadline: Deadline,
    *,
    menus: bool = False,
) -> PageText:
    """`visible_text` in Python, by a walk over the tree without recursion.

    `source` is the markup that the tree was read from.
    """
    writer = TextWriter(menus=menus)
    sight = Sight(source)
    open_nodes: list[tuple[LexborNode, str]] = []
    node: LexborNode | None = root
    count = 0
    while node is not None:
        count += 1
        if count % 4096 == 0:
            deadline.check()
            if count > limits.max_nodes:
                raise _too_many_nodes(limits)
        following = None
        if node.is_text_node:
            text = node.text_content or ""
            while (beside := node.next) is not None and beside.is_text_node:
                # Text that was moved out of a table, say: written out, it is one.
                node = beside
                text += node.text_content or ""
            writer.words(text)
        elif node.is_element_node:
            close = _enter(writer, sight, node)
            if close is not None:
                following = node.first_child
                if following is not None:
                    open_nodes.append((node, close))
                else:
                    _leave(writer, node, close)
        while following is None:
            following = node.next if node is not root else None
            if following is None:
                if not open_nodes:
                    return writer.finish()
                node, close = open_nodes.pop()
                if close:
                    _leave(writer, node, close)
        node = following
    return writer.finish()


def _too_many_nodes(limits: PageLimits) -> Refused:
    return Refused(Reason.PAGE_TOO_LARGE, f"the page has over {limits.max_nodes} nodes")


def _enter(writer: TextWriter, sight: Sight, node: LexborNode) -> str | None:
    """Start an element; returns what `_leave` must do, or None when its inside is skipped."""
    tag = node.tag or ""
    if tag in UNSEEN_TAGS:
        return None
    attributes = node.attributes
    if tag == "dialog" and "open" not in attributes:
        return None
    if attributes:
        styled = "style" in attributes
        if styled or "hidden" in attributes or "aria-hidden" in attributes:
            if sight.is_hidden(tag, attributes):
                return None
            if styled and tag not in _STRUCK and is_struck(attributes):
                tag = "s"
        if tag != "s" and "class" in attributes and is_spoken_only(attributes):
            writer.separate()
            return "separate"
    if tag in _INLINE:
        return ""
    if tag == "br":
        writer.end_line()
        return None
    if tag == "img":
        _image(writer, attributes)
        return None
    if tag == "input":
        _input(writer, attributes)
        return None
    if tag == "select":
        _select(writer, node)
        return None
    if tag in _MAY_NAVIGATE and (tag == "nav" or (attributes and is_menu(attributes))):
        writer.end_line()
        writer.start_menu()
        return "menu"
    return _start(writer, tag)


def _start(writer: TextWriter, tag: str) -> str:
    if tag in _BLOCKS:
        writer.end_line()
        return "line"
    if tag in _HEADINGS:
        writer.start_block(_HEADINGS[tag])
    elif tag == "li":
        writer.start_block("- ")
    elif tag == "tr":
        writer.start_row()
        return "row"
    elif tag in ("td", "th"):
        writer.start_cell()
        return "cell"
    elif tag == "dt":
        writer.start_block()
        return "term"
    elif tag == "dd":
        writer.end_line()
    elif tag in _STRUCK:
        writer.start_struck()
        return "struck"
    elif tag == "sup" and writer.ends_with_digit():
        writer.separate()
        return ""
    elif tag in _SEPARATE:
        writer.separate()
        return "separate"
    elif tag == "a":
        writer.start_link()
        return "link"
    else:
        return ""
    return "block"


def _leave(writer: TextWriter, node: LexborNode, close: str) -> None:
    if close == "line":
        writer.end_line()
    elif close == "block":
        writer.start_block()
    elif close == "cell":
        writer.end_cell()
    elif close == "row":
        writer.end_row()
    elif close == "term":
        writer.join_next(": ")
    elif close == "struck":
        writer.end_struck()
    elif close == "separate":
        writer.separate()
    elif close == "menu":
        writer.end_line()
        writer.end_menu()
    elif close == "link":
        href = node.attributes.get("href")
        if href and not href.startswith(("#", "javascript:")):
            writer.end_link(href)


def _image(writer: TextWriter, attributes: dict[str, str | None]) -> None:
    alt = " ".join((attributes.get("alt") or "").split())
    if alt and len(alt) <= _MAX_ALT and not _FILE_NAME.search(alt) and _LETTER.search(alt):
        writer.alternative(alt)


def _input(writer: TextWriter, attributes: dict[str, str | None]) -> None:
    if (attributes.get("type") or "text").lower() in ("submit", "button", "reset"):
        writer.separate()
        writer.words(attributes.get("value") or "")
        writer.separate()


def _select(writer: TextWriter, node: LexborNode) -> None:
    """A short list of choices is shown whole; of a long one, what is chosen."""
    options = node.css("option")
    if len(options) > _MAX_OPTIONS:
        options = [option for option in options if "selected" in option.attributes][:1]
    for i, option in enumerate(options):
        if i:
            writer.made("/")
        writer.separate()
        writer.words(option.text())
    writer.separate()
