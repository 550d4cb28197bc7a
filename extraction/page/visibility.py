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
_STRUCK_STYLE = re.compile(r"text-decoration[a-z-]*\s*:[^;]*line-through", re.IGNORECASE)
_SPOKEN_CLASS = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-?reader(?:-text|-only)?|a-offscreen|u-hiddenVisually)"
    r"(?:\s|$)",
    re.IGNORECASE,
)


def is_hidden(attributes: dict[str, str | None]) -> bool:
    """Whether the attributes take the element, and all that it holds, out of sight."""
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    style = attributes.get("style")
    return style is not None and _HIDING_STYLE.search(style) is not None


def is_struck(attributes: dict[str, str | None]) -> bool:
    """Whether the element's own style draws a line through its text."""
    style = attributes.get("style")
    return style is not None and _STRUCK_STYLE.search(style) is not None


def is_spoken_only(attributes: dict[str, str | None]) -> bool:
    """Whether the text is for screen readers: kept, but never glued to its neighbours."""
    names = attributes.get("class")
    return names is not None and _SPOKEN_CLASS.search(names) is not None
