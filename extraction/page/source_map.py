"""From the visible text back to the page's source.

The parser keeps no positions. Each piece of text knows the text node that it shows, though, and
text nodes stand in the source in document order, nearly always: one pass over the source's
character data finds them again. It is made when somebody asks, not for each page.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from dataclasses import dataclass

from .lines import PageText

# What the parser changes on its way: entities, and line ends.
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});?|\r\n?")
_LOOK_AHEAD = 200_000


@dataclass(frozen=True)
class SourcePiece:
    """Half-open code point offsets of a piece of the decoded page.

    Pieces, with their entities decoded and white space normalised, make up the asked text.
    """

    start: int
    end: int


class SourceMap:
    """Finds places of the visible text in the decoded page it was read from."""

    def __init__(self, source: str, content: PageText) -> None:
        self._content = content
        # The source with entities decoded, and for each of its characters where it came from.
        self._plain, self._origin = _decode_entities(source)
        self._places: dict[int, int] = {}
        self._cursor = 0
        self._done = 0

    def pieces(self, start: int, end: int) -> list[SourcePiece]:
        """Return the source pieces of text[start:end], in order; what can't be found is absent."""
        content = self._content
        found: list[SourcePiece] = []
        first = max(0, bisect_right(content.piece_starts, start) - 1)
        for i in range(first, len(content.piece_starts)):
            low, high = content.piece_starts[i], content.piece_ends[i]
            if low >= end:
                break
            if high <= start:
                continue
            place = self._place(i)
            if place is None:
                continue
            node = content.sources[content.piece_sources[i]]
            shown = content.text[low:high]
            offsets = _word_offsets(node, shown)
            if offsets is None:
                continue
            inner = offsets[max(start, low) - low], offsets[min(end, high) - low - 1]
            found.append(
                SourcePiece(
                    self._origin[place + inner[0]],
                    self._origin[place + inner[1] + 1],
                )
            )
        return found

    def _place(self, piece: int) -> int | None:
        """Where the piece's text node starts in the decoded source; nodes are placed in order."""
        source_of = self._content.piece_sources
        while self._done <= piece:
            node = self._content.sources[source_of[self._done]].strip()
            at = self._plain.find(node, self._cursor, self._cursor + len(node) + _LOOK_AHEAD)
            if at < 0:
                at = self._plain.find(node)
            if at >= 0:
                self._places[self._done] = at
                self._cursor = max(self._cursor, at + len(node))
            self._done += 1
        place = self._places.get(piece)
        if place is None:
            return None
        node = self._content.sources[source_of[piece]]
        return place - (len(node) - len(node.lstrip()))


def _decode_entities(source: str) -> tuple[str, list[int]]:
    """Return the source with entities decoded, markup kept, and each character's origin.

    The list has one more entry than characters: the end.
    """
    out: list[str] = []
    origin: list[int] = []
    position = 0
    for entity in _ENTITY.finditer(source):
        decoded = "\n" if entity[0][0] == "\r" else html.unescape(entity[0])
        if decoded == entity[0]:
            continue
        out.append(source[position : entity.start()])
        origin.extend(range(position, entity.start()))
        out.append(decoded)
        origin.extend([entity.start()] * len(decoded))
        position = entity.end()
    out.append(source[position:])
    origin.extend(range(position, len(source) + 1))
    return "".join(out), origin


def _word_offsets(node: str, shown: str) -> list[int] | None:
    """For each character of the normalised words, its offset in the text node."""
    offsets: list[int] = []
    at = 0
    for char in shown:
        if char == " ":
            while at < len(node) and not node[at].isspace():
                at += 1
            offsets.append(at)
            while at < len(node) and node[at].isspace():
                at += 1
            continue
        while at < len(node) and node[at] != char:
            at += 1
        if at == len(node):
            return None
        offsets.append(at)
        at += 1
    return offsets
