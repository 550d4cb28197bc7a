"""Which elements a reader sees, told by their tag and their own attributes."""

from __future__ import annotations

import re

# Never text for a reader, whatever their attributes.
UNSEEN_TAGS = frozenset(
    "script style template noscript head svg canvas iframe object audio video datalist map "
    "frameset textarea".split()
)
_HIDING_STYLE = re.compile(
    r"(?:^|[;\s])(?:"
    r"display\s*:\s*none"
    r"|visibility\s*:\s*(?:hidden|collapse)"
    r"|(?:font-size|opacity|max-height)\s*:\s*0(?:\.0+)?(?:px|em|rem|pt|%)?\s*(?:[;!]|$)"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}"
    r"|clip\s*:\s*rect\(\s*0"
    r")",
    re.IGNORECASE,
)
_PHRASING = frozenset("a abbr b bdi em i label small span strong sub sup time".split())
_PANEL_NAME = re.compile(
    r"(?:^|[\s_-])(?:tab|accordion|collaps(?:e|ible|ed)|expandable|drawer|toggle)"
    r"[_-]?(?:content|panel|pane|body|item|box|container)?[_-]?\d*(?:[\s_-]|$)",
    re.IGNORECASE,
)
_STRUCK_STYLE = re.compile(r"text-decoration[a-z-]*\s*:[^;]*line-through", re.IGNORECASE)
_SPOKEN_CLASS = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-?reader(?:-text|-only)?|a-offscreen|u-hiddenVisually)"
    r"(?:\s|$)",
    re.IGNORECASE,
)


def is_hidden(tag: str, attributes: dict[str, str | None]) -> bool:
    """Whether the attributes take the element, and all that it holds, out of sight.

    Panels that a click on their tab opens count as seen. `aria-hidden` hides icons and doubles
    of spoken text; on containers it only says that a dialog was open when the page was stored.
    """
    if attributes.get("aria-hidden") == "true" and tag in _PHRASING:
        return True
    style = attributes.get("style")
    out_of_sight = "hidden" in attributes or (
        style is not None and _HIDING_STYLE.search(style) is not None
    )
    return out_of_sight and not _is_panel(attributes)


def _is_panel(attributes: dict[str, str | None]) -> bool:
    if attributes.get("role") == "tabpanel":
        return True
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    return _PANEL_NAME.search(names) is not None


def is_struck(attributes: dict[str, str | None]) -> bool:
    """Whether the element's own style draws a line through its text."""
    style = attributes.get("style")
    return style is not None and _STRUCK_STYLE.search(style) is not None


def is_spoken_only(attributes: dict[str, str | None]) -> bool:
    """Whether the text is for screen readers: kept, but never glued to its neighbours."""
    names = attributes.get("class")
    return names is not None and _SPOKEN_CLASS.search(names) is not None
