"""The lines that a site's pages share, and a page's text without them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

# So many pages are seen before anything is cut, and a line is the site's if it stood on this
# share of them.
MIN_PAGES = 3
SHARE = 0.6
# A line of the site that isn't longer names what follows it: "Publisher:", then the publisher.
_MAX_LABEL = 24


def line_digest(line: str) -> bytes:
    """Return the 8 bytes that stand for a line."""
    return hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(frozen=True)
class Template:
    """The digests of a site's own lines."""

    lines: frozenset[bytes] = frozenset()

    def cut(self, text: str) -> str:
        """Return the text without the site's lines; the whole text if nothing else is there.

        Main headings stay, and so do labels and headings right above a line that is the page's own.
        """
        if not self.lines:
            return text
        lines = text.split("\n")
        kept: list[str] = []
        is_above_own = False
        for line in reversed(lines):
            is_own = line.startswith("# ") or line_digest(line) not in self.lines
            if is_own or (is_above_own and len(line) <= _MAX_LABEL):
                kept.append(line)
            is_above_own = is_own
        return "\n".join(reversed(kept)) or text


NOTHING = Template()


def held_lines(text: str, spans: Iterable[tuple[int, int]]) -> set[str]:
    """Return the lines that the spans of a text touch."""
    found: set[str] = set()
    for start, end in spans:
        begin = text.rfind("\n", 0, start) + 1
        stop = text.find("\n", max(start, end - 1))
        found.update(text[begin : stop if stop >= 0 else len(text)].split("\n"))
    return found
