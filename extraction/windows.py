"""Texts that are longer than their room in a prompt, as windows that overlap.

Borders are those of lines where there are any, else of words. A window begins with the last lines
of the one before, so that what stands across a border is whole in one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# The part of a window that the next one repeats, by characters, and at most by tokens.
_OVERLAP_PART, _OVERLAP_TOKENS_PART = 8, 4
# Encoding a whole long text for every window would be quadratic; few tokens are longer than this.
_MAX_TOKEN_CHARS = 16


@dataclass(frozen=True)
class Window:
    """A part of a text, which begins there at `start`.

    `repeated` is the window's beginning, with which the window before it ends.
    """

    text: str
    repeated: str = ""
    start: int = 0


def split(
    count: Callable[[str], int], text: str, room: int, max_windows: int
) -> tuple[list[Window], bool]:
    """Return windows of at most `room` tokens, and whether something of the text is left over.

    `count` gives the number of tokens of a text. Together the windows hold all of the text, from
    its start, unless it takes more than `max_windows`.
    """
    windows: list[Window] = []
    start = shown = 0
    while len(windows) < max_windows and (shown < len(text) or not windows):
        most = text[start : start + room * _MAX_TOKEN_CHARS]
        piece = leading(count, most, room)
        if piece == most and start + len(most) < len(text):
            piece = _to_border(most, len(most) - 1)
        end = start + len(piece)
        if windows and end <= shown:
            break
        windows.append(Window(piece, text[start:shown], start))
        shown = end
        start = _overlap(count, text, start, end, room)
    return windows, bool(text[shown:].strip())


def leading(count: Callable[[str], int], text: str, room: int) -> str:
    """Return the leading lines of `text` that fit into `room` tokens."""
    while text and (tokens := count(text)) > room:
        # Tokens per character vary little within a page; a few rounds suffice.
        target = max(0, int(len(text) * room / tokens * 0.98) - 1)
        text = _to_border(text, target)
    return text


def _to_border(text: str, target: int) -> str:
    """The beginning of `text`, of `target` characters or some fewer."""
    border = text.rfind("\n", 0, target + 1)
    # A single line longer than the room is cut between words.
    at = border if border > target // 2 else text.rfind(" ", 0, target + 1)
    return text[: at if at > target // 2 else target]


def _overlap(count: Callable[[str], int], text: str, start: int, end: int, room: int) -> int:
    """Return where the window after text[start:end] begins."""
    at = end - (end - start) // _OVERLAP_PART
    while at < end and count(text[at:end]) > room // _OVERLAP_TOKENS_PART:
        at += (end - at + 1) // 2
    for border in "\n", " ":
        found = text.find(border, at, end)
        if found >= 0:
            return found + 1
    return at + 1 if text[at : at + 1].isspace() else at
