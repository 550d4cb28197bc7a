"""XML feeds and other XML documents, read as markup that an HTML parser understands."""

from __future__ import annotations

import html
import re

_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_PROLOGUE = re.compile(
    r"^\s*<\?xml[^>]*\?>|<\?xml-stylesheet[^>]*\?>|<!DOCTYPE[^>\[]*(?:\[[^\]]*\])?>"
)
_EMPTY = re.compile(r"<([a-zA-Z][\w:.-]*)(\s[^<>]*)?/>")
# Elements whose content is markup in text form.
_MARKED_UP = re.compile(
    r"<(description|summary|content(?::encoded)?)(\s[^<>]*)?>([^<]*)</\1>", re.IGNORECASE
)
_LINK = re.compile(r"<(/?)link\b", re.IGNORECASE)


def feed_markup(source: str) -> str:
    """Return the document as HTML: CDATA and escaped markup opened, void names renamed."""
    text = _PROLOGUE.sub("", source)
    text = _CDATA.sub(lambda found: html.escape(found[1], quote=False), text)
    text = _MARKED_UP.sub(
        lambda found: f"<section><div>{html.unescape(found[3])}</div></section>", text
    )
    text = _EMPTY.sub(r"<\1\2></\1>", text)
    # <link> holds its text in feeds and is void in HTML; <title> would end an HTML head.
    text = _LINK.sub(r"<\1div", text)
    return re.sub(r"<(/?)title\b", r"<\1h3", text, flags=re.IGNORECASE)
