"""Texts that are longer than their room in a prompt, as windows that overlap.

Borders are those of lines where there are any, else of words. A window begins with the last lines
of the one before, so that what stands across a border is whole in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .text_tokens import TextTokens

# The part of a window that the next one repeats, by characters, and at most by tokens.
_OVERLAP_PART, _OVERLAP_TOKENS_PART = 8, 4


@dataclass(frozen=True)
class Window:
    """A part of a text, which begins there at `start`.

    `repeated` is the window's beginning, with which the window before it ends.
    """

    text: str
    repeated: str = ""
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def split(
    tokens: TextTokens, room: int, max_windows: int, *, first: int = 0
) -> tuple[list[Window], bool]:
    """Return windows of at most `room` tokens, and whether something of the text is left over.

    Together the windows hold all of the text from `first` on, unless it takes more than
    `max_windows`.
    """
    text = tokens.text
    windows: list[Window] = []
    start = shown = first
    while len(windows) < max_windows and (shown < len(text) or not windows):
        end = _end(tokens, start, room)
        if windows and end <= shown:
            break
        windows.append(Window(text[start:end], text[start:shown], start))
        shown = end
        start = _overlap(tokens, start, end, room)
    return windows, bool(text[shown:].strip())


def _end(tokens: TextTokens, start: int, room: int) -> int:
    """Return where the longest run of lines from `start` ends that fits into `room` tokens."""
    end = tokens.reach(start, room)
    if end < len(tokens.text):
        end = _border(tokens.text, start, end)
    # Where a part is cut its tokens are others than in the text: mostly one more or less.
    while end > start and tokens.count(start, end) > room:
        end = _border(tokens.text, start, end - 1)
    return end


def _border(text: str, start: int, target: int) -> int:
    """The last border of `text` up to `target`, if it isn't much before that."""
    half = start + (target - start) // 2
    border = text.rfind("\n", start, target + 1)
    # A single line longer than the room is cut between words.
    at = border if border > half else text.rfind(" ", start, target + 1)
    return at if at > half else target


def _overlap(tokens: TextTokens, start: int, end: int, room: int) -> int:
    """Return where the window after text[start:end] begins."""
    text = tokens.text
    at = end - (end - start) // _OVERLAP_PART
    at = min(end, max(at, tokens.back(end, room // _OVERLAP_TOKENS_PART)))
    for border in "\n", " ":
        found = text.find(border, at, end)
        if found >= 0:
            return found + 1
    return at + 1 if text[at : at + 1].isspace() else at
