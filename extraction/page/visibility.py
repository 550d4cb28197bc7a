"""Which elements a reader sees, told by their tag and their own attributes.

`csrc/page_sight.cc` has the same rules by hand; of an attribute both look at the beginning.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
    r"|clip-path\s*:\s*inset\(\s*(?:50|100)%"
    r"|color\s*:\s*transparent"
    r")",
    re.IGNORECASE | re.ASCII,
)
# Of a style all declarations of these, the last of which counts.
_DECLARATION = re.compile(
    r"(?:^|[;\s])(color|background|background-color|width|height|overflow)\s*:\s*([^;]*)",
    re.IGNORECASE | re.ASCII,
)
_COLOURS = {
    "#fff": "white",
    "#ffffff": "white",
    "rgb(255,255,255)": "white",
    "#000": "black",
    "#000000": "black",
    "rgb(0,0,0)": "black",
}
# What rotating displays write on slides that wait for their turn.
_SLIDE_STYLE = re.compile(
    r"position\s*:\s*absolute;(?=.*\b(?:top|left)\s*:\s*0(?:px)?\s*;)(?=.*(?:z-index|width)\s*:)",
    re.I | re.S | re.A,
)
_PHRASING = frozenset("a abbr b bdi em i label small span strong sub sup time".split())
_PANEL_NAME = re.compile(
    r"(?:^|[\s_-])(?:tab|accordion|collaps(?:e|ible|ed)|expandable|drawer|toggle)"
    r"[_-]?(?:content|panel|pane|body|item|box|container)?[_-]?\d*(?:[\s_-]|$)",
    re.IGNORECASE | re.ASCII,
)
# What stands around the id of an element that a click on something else shows: a script that
# toggles it, a control or a link that names it.
_TOGGLES = re.compile(
    r"""["']\s*\)\s*\.\s*(?:toggle|slideToggle|fadeToggle|slideDown)\s*\(""", re.ASCII
)
_CONTROLS = re.compile(r"""\saria-controls\s*=\s*["']\Z""", re.ASCII)
_LINKS = re.compile(r"""<a\s[^<>]*href\s*=\s*["']#\Z""", re.ASCII)
_MAX_MENTIONS = 24
_DIALOG_NAME = re.compile(
    r"modal|popup|pop-up|overlay|dialog|lightbox|cookie|consent|menu|nav|search|login|cart",
    re.IGNORECASE | re.ASCII,
)
_STRUCK_STYLE = re.compile(r"text-decoration[a-z-]*\s*:[^;]*line-through", re.IGNORECASE | re.ASCII)
_SPOKEN_CLASS = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-?reader(?:-text|-only)?|a-offscreen|u-hiddenVisually)"
    r"(?:\s|$)",
    re.IGNORECASE | re.ASCII,
)
_MENU_NAME = re.compile(
    r"(?:^|[\s_-])(?:(?:top|main|sub|side|left|right|global|site|mega|foot(?:er)?)?_?"
    r"(?:nav|navi|navbar|navigation|menu|menubar)s?|sitemap|footer)\d?(?:[\s_-]|$)"
    r"|[a-z](?:Nav|Menu|Navigation)(?:[A-Z\s_-]|$)|^(?:Nav|Menu)(?:[A-Z]|\Z)",
    re.ASCII,
)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
# Of an attribute so many characters are looked at.
_MAX_RULED = 2000


class Sight:
    """Tells which elements of one page are out of sight; `source` is the page's markup."""

    def __init__(self, source: str) -> None:
        self._source = source

    def is_hidden(self, tag: str, attributes: dict[str, str | None]) -> bool:
        """Whether the attributes take the element, and all that it holds, out of sight.

        Panels that a click opens count as seen. `aria-hidden` hides icons and doubles of spoken
        text; on containers it only says that a dialog was open when the page was stored.
        """
        if attributes.get("aria-hidden") == "true" and tag in _PHRASING:
            return True
        style = _beginning(attributes, "style")
        out_of_sight = "hidden" in attributes or (style is not None and _hides(style))
        if not out_of_sight or self._is_panel(attributes):
            return False
        return style is None or not _SLIDE_STYLE.search(style)

    def _is_panel(self, attributes: dict[str, str | None]) -> bool:
        if attributes.get("role") == "tabpanel":
            return True
        own_id = _beginning(attributes, "id") or ""
        names = f"{_beginning(attributes, 'class') or ''} {own_id}"
        if _PANEL_NAME.search(names):
            return True
        if not own_id or attributes.get("role") == "dialog" or _DIALOG_NAME.search(names):
            return False
        return self._is_opened(own_id)

    def _is_opened(self, own_id: str) -> bool:
        """Whether something on the page opens the element of this id."""
        source = self._source
        at = -1
        for _ in range(_MAX_MENTIONS):
            at = source.find(own_id, at + 1)
            if at < 0:
                return False
            end = at + len(own_id)
            if source[at - 1 : at] == "#":
                if source[at - 2 : at - 1] in ("'", '"') and _TOGGLES.match(source, end):
                    return True
                if source[end : end + 1] in ("'", '"') and _LINKS.search(
                    source[max(0, at - 220) : at]
                ):
                    return True
            elif source[end : end + 1] in ("'", '"') and _CONTROLS.search(
                source[max(0, at - 40) : at]
            ):
                return True
        return False


def _beginning(attributes: dict[str, str | None], name: str) -> str | None:
    value = attributes.get(name)
    return value if value is None or len(value) <= _MAX_RULED else value[:_MAX_RULED]


@lru_cache(maxsize=4096)
def _hides(style: str) -> bool:
    return _HIDING_STYLE.search(style) is not None or _is_unseen(style)


def _is_unseen(style: str) -> bool:
    """Whether text has the colour of what is behind it, or no room at all."""
    declared: dict[str, str] = {}
    for found in _DECLARATION.finditer(style):
        value = "".join(char for char in found[2] if char not in " \t\n\r\f\v")
        value = _ascii_lower(value).removesuffix("!important")
        declared[_ascii_lower(found[1])] = value
    behind = declared.get("background-color", declared.get("background"))
    colour = declared.get("color")
    if colour and behind and _COLOURS.get(colour, colour) == _COLOURS.get(behind, behind):
        return True
    sizes = [declared.get(name) in ("0", "0px") for name in ("width", "height")]
    return all(sizes) and declared.get("overflow") == "hidden"


def _ascii_lower(text: str) -> str:
    return text.translate(_LOWER)


def is_struck(attributes: dict[str, str | None]) -> bool:
    """Whether the element's own style draws a line through its text."""
    style = _beginning(attributes, "style")
    return style is not None and "line-through" in style and bool(_STRUCK_STYLE.search(style))


def is_menu(attributes: dict[str, str | None]) -> bool:
    """Whether an element's role, name or class says that it is for navigation."""
    role = attributes.get("role")
    if role is not None and role in ("navigation", "menu", "menubar"):
        return True
    return _names_menu(_beginning(attributes, "class") or "", _beginning(attributes, "id") or "")


@lru_cache(maxsize=8192)
def _names_menu(names: str, own_id: str) -> bool:
    return bool(_MENU_NAME.search(names) or _MENU_NAME.search(own_id))


def is_spoken_only(attributes: dict[str, str | None]) -> bool:
    """Whether the text is for screen readers: kept, but never glued to its neighbours."""
    names = _beginning(attributes, "class")
    return names is not None and _names_spoken(names)


@lru_cache(maxsize=8192)
def _names_spoken(names: str) -> bool:
    return _SPOKEN_CLASS.search(names) is not None
