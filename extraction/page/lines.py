"""Text under construction: words become lines, lines a text whose pieces know their source.

White space is normalised: words of a source text are joined by single spaces, so that a value can
be found in the text as a reader would write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# Marks that print nothing: they would split words and hide equal strings from each other.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)
# A row longer than this is layout, not data: its cells' blocks stand one below the other.
_MAX_ROW_CHARS = 600
_MAX_CELL_LINES = 4

# A menu has at least so many links. Of its lines those without a digit and no longer than this are
# left out, if what remains of the page is more than that.
_MENU_LINKS = 6
_MAX_MENU_LINE = 60
_MIN_PAGE_CHARS = 200
_MIN_REPEAT = 60  # characters of a line that isn't said twice
# A longer text of an image describes what is on it.
_MAX_NAME_WORDS = 6
_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")

Part = tuple[str, int]  # text, index of its source text (-1: made by us; -2 - k: end of link k)
_MADE = -1
_CELL: Part = (" | ", _MADE)  # between cells of a row
# The last part of lines that stand in an element for navigation; compared by identity.
_IN_MENU: Part = ("", _MADE)


@dataclass(frozen=True)
class PageText:
    """The text, its pieces and links.

    Piece i is text[piece_starts[i]:piece_ends[i]]; it shows the words of
    `sources[piece_sources[i]]`, a text node or attribute value in document order.
    """

    text: str
    piece_starts: list[int] = field(default_factory=list)
    piece_ends: list[int] = field(default_factory=list)
    piece_sources: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)  # offset of the end, href

    @classmethod
    def plain(cls, source: str) -> PageText:
        """The text of a document without markup: its lines, each with its words."""
        writer = TextWriter()
        for line in source.splitlines():
            writer.words(line)
            writer.end_line()
        return writer.finish()


class _Frame:
    """Lines under construction: the page's, or those of one table cell."""

    __slots__ = ("cells", "glue", "line", "lines", "only_link", "prefix", "space")

    def __init__(self, cells: list[list[list[Part]]] | None = None) -> None:
        self.lines: list[list[Part]] = []
        self.line: list[Part] = []
        self.prefix = ""  # stands before the line's first word
        self.glue = ""  # joins what follows to the line that seems to have ended
        self.space = False
        self.only_link = 0  # parts of the line, when these are an item's mark and a link
        self.cells = cells  # a row's frame: the cells that have ended


def _is_data_row(cells: list[list[list[Part]]]) -> bool:
    if len(cells) == 1 or max(len(cell) for cell in cells) > _MAX_CELL_LINES:
        return False
    chars = sum(len(part[0]) for cell in cells for line in cell for part in line)
    return chars <= _MAX_ROW_CHARS


class TextWriter:
    """Collects words into lines; knows lists, rows and definitions, but no tree."""

    def __init__(self, *, menus: bool = True) -> None:
        """`menus`: whether long menus are kept."""
        self._keeps_menus = menus
        self._menus = 0  # elements for navigation that are open
        self._frames = [_Frame()]
        self._sources: list[str] = []
        self._links: list[str] = []
        self._seen: set[str] = set()
        self._alternatives: dict[int, str] = {}  # sources that are images' texts
        self._pictured: set[str] = set()
        self._link_start = 0
        self._mark = ""

    def words(self, text: str) -> None:
        """Add text as it stands in the source; its white space is normalised."""
        frame = self._frames[-1]
        if text.isspace():  # most texts are the source's indentation
            frame.space = True
            return
        joined = " ".join(text.split())
        clean = text
        if not joined.isprintable():
            clean = _INVISIBLE.sub("", text)
            joined = " ".join(clean.split())
        if not joined:
            frame.space = frame.space or bool(clean)
            return
        self._open(frame, spaced=clean[0].isspace())
        self._sources.append(text)
        frame.line.append((joined, len(self._sources) - 1))
        self._seen.add(joined)
        frame.space = clean[-1].isspace()

    def made(self, text: str, *, spaced: bool = True) -> None:
        """Add text of ours, with no source."""
        frame = self._frames[-1]
        self._open(frame, spaced=spaced)
        frame.line.append((text, _MADE))

    def _open(self, frame: _Frame, *, spaced: bool) -> None:
        line = frame.line
        if line:
            if frame.glue:
                line.append((frame.glue, _MADE))
            elif spaced or frame.space:
                line.append((" ", _MADE))
        elif frame.prefix:
            line.append((frame.prefix, _MADE))
        frame.glue, frame.prefix, frame.space = "", "", False
        if self._mark:
            line.append((self._mark, _MADE))
            self._mark = ""

    def separate(self) -> None:
        """What follows is a word of its own."""
        self._frames[-1].space = True

    def end_line(self) -> None:
        """End the line, unless it waits for what follows (a term for its definition)."""
        frame = self._frames[-1]
        if frame.line and not frame.glue:
            if frame.only_link == len(frame.line):
                del frame.line[0]
            frame.only_link = 0
            if self._menus:
                frame.line.append(_IN_MENU)
            frame.lines.append(frame.line)
            frame.line = []
            frame.space = False

    def start_block(self, prefix: str = "") -> None:
        """Start a line; `prefix` stands before its first word."""
        self._frames[-1].glue = ""
        self.end_line()
        self._frames[-1].prefix = prefix

    def join_next(self, glue: str) -> None:
        """Let the next words follow on this line, after `glue`."""
        frame = self._frames[-1]
        if frame.line:
            frame.glue = " " if frame.line[-1][0].endswith(":") else glue

    def start_struck(self) -> None:
        self._frames[-1].space = True
        self._mark = "~~"

    def end_struck(self) -> None:
        if self._mark:
            self._mark = ""  # nothing was written
        elif self._frames[-1].line:
            self._frames[-1].line.append(("~~", _MADE))
        self.separate()

    def ends_with_digit(self) -> bool:
        line = self._frames[-1].line
        return bool(line) and line[-1][0][-1:].isdigit()

    def alternative(self, text: str) -> None:
        """Add an image's text in brackets; it is left out where the page says the same."""
        several = text.split()
        words = " ".join(several)
        if len(several) > _MAX_NAME_WORDS and not _DIGIT.search(words):
            return
        if words in self._seen or words in self._pictured:
            return
        self._pictured.add(words)
        self.made("[")
        self._sources.append(text)
        self._alternatives[len(self._sources) - 1] = words
        self._frames[-1].line.append((words, len(self._sources) - 1))
        self.made("]", spaced=False)
        self.separate()

    def start_menu(self) -> None:
        """What follows is navigation."""
        self._menus += 1

    def end_menu(self) -> None:
        self._menus -= 1

    def start_link(self) -> None:
        """What follows is a link's."""
        self._link_start = len(self._frames[-1].line)

    def end_link(self, href: str) -> None:
        """The words since `start_link` are a link's."""
        frame = self._frames[-1]
        if not frame.line:
            return
        self._links.append(href)
        frame.line.append(("", -1 - len(self._links)))
        # An item that is nothing but a link needs no mark; in front of more text it gets one.
        only = self._link_start == 0 and frame.line[0] == ("- ", _MADE)
        frame.only_link = len(frame.line) if only else 0

    def start_row(self) -> None:
        self.start_block()
        self._frames.append(_Frame(cells=[]))

    def start_cell(self) -> None:
        self._frames.append(_Frame())

    def end_cell(self) -> None:
        lines = self._close_frame()
        cells = self._frames[-1].cells
        if cells is not None:
            cells.append(lines)
        else:
            self._frames[-1].lines.extend(lines)

    def end_row(self) -> None:
        row = self._frames[-1]
        stray = self._close_frame()
        cells = [cell for cell in row.cells or [] if cell]
        frame = self._frames[-1]
        frame.lines.extend(stray)
        if not cells:
            return
        if not _is_data_row(cells):
            for cell in cells:
                if frame.lines:
                    frame.lines.extend(cell)
                else:
                    frame.lines = cell  # nested layout tables hand their lines up uncopied
            return
        joined: list[Part] = []
        for cell in cells:
            if joined:
                joined.append(_CELL)
            for i, line in enumerate(cell):
                if i:
                    joined.append((" ", _MADE))
                joined.extend(line)
        frame.lines.append(joined)

    def _close_frame(self) -> list[list[Part]]:
        self._frames[-1].glue = ""
        self.end_line()
        return self._frames.pop().lines

    def finish(self) -> PageText:
        """Return the text of all lines."""
        while len(self._frames) > 1:
            self.end_cell() if self._frames[-1].cells is None else self.end_row()
        lines = self._close_frame()
        self._frames = [_Frame()]
        if not self._keeps_menus:
            lines = _without_menus(lines)
        out: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        sources: list[int] = []
        links: list[tuple[int, str]] = []
        offset = 0
        menus: set[str] = set()
        told = _words_of(self._seen) if self._alternatives else frozenset()
        for line in lines:
            if self._alternatives and any(part[0] == "[" for part in line):
                line = self._without_doubles(line, told)
            if line[-1:] == [_IN_MENU]:
                del line[-1]
            if _says_nothing_new(line, menus):
                continue
            if out:
                out.append("\n")
                offset += 1
            for text, source in line:
                if source >= 0:
                    starts.append(offset)
                    ends.append(offset + len(text))
                    sources.append(source)
                elif source < _MADE:
                    links.append((offset, self._links[-2 - source]))
                out.append(text)
                offset += len(text)
        return PageText("".join(out), starts, ends, sources, self._sources, links)

    def _without_doubles(self, line: list[Part], told: frozenset[str]) -> list[Part]:
        """The line without images' texts of which the page's text has each word."""
        kept: list[Part] = []
        at = 0
        while at < len(line):
            words = self._alternatives.get(line[at + 1][1]) if at + 2 < len(line) else None
            if words is None or line[at][0] != "[" or not _words_of([words]) <= told:
                if line[at][0] != " " or (kept and kept[-1][0] != " "):
                    kept.append(line[at])
                at += 1
                continue
            at += 3
        while kept and kept[-1] == (" ", _MADE):
            kept.pop()
        return kept


def _words_of(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def _without_menus(lines: list[list[Part]]) -> list[list[Part]]:
    """The lines without the links of long menus, unless these are nearly all that the page has.

    A heading ends a menu: what stands under headings is content.
    """
    kept: list[list[Part]] = []
    run: list[list[Part]] = []
    for line in [*lines, []]:
        if line and line[-1] is _IN_MENU and not line[0][0].startswith("#"):
            run.append(line)
            continue
        if sum(map(_is_link, run)) >= _MENU_LINKS:
            run = [line for line in run if not (_is_link(line) and _is_of_menu(line))]
        kept += run
        run = []
        if line:
            kept.append(line)
    left = sum(len(text) for line in kept for text, source in line if source >= 0)
    return kept if left >= _MIN_PAGE_CHARS else lines


def _is_link(line: list[Part]) -> bool:
    """Whether the line of a menu is one link."""
    return len(line) > 1 and line[-2][1] < _MADE and sum(part[1] < _MADE for part in line) == 1


def _is_of_menu(line: list[Part]) -> bool:
    words = "".join(text for text, _ in line)
    return len(words) <= _MAX_MENU_LINE and not _DIGIT.search(words)


def _says_nothing_new(line: list[Part], menus: set[str]) -> bool:
    """Whether the line holds no word, or stood before: a link's alone, or a long one.

    Short lines and rows of tables are repeated where there are several equal things.
    """
    words = "".join(text for text, source in line if source >= 0)
    if not words:
        return True
    is_link = line[-1][1] < _MADE and len(line) <= 2
    if not is_link and (len(words) < _MIN_REPEAT or _CELL in line):
        return False
    known = words in menus
    menus.add(words)
    return known
