"""Pages that verbatim strings are copied from, sorted before their requests start.

That takes milliseconds (csrc/page_spans.h), which the step loop has better use for.
"""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor

from pagemill._core import PageSpans

from .request_book import Entry, RequestBook


class PageSorter:
    """Sorts the pages of those that wait, on a thread of its own, `most` ahead of their start.

    A sorted page takes ten times its text, so that no more are kept. An entry that starts before
    its turn sorts its page itself. The step loop's alone.
    """

    def __init__(self, book: RequestBook, most: int = 64) -> None:
        self._book = book
        self._most = most
        self._thread = ThreadPoolExecutor(1, "page-sorter")
        self._later: collections.deque[Entry] = collections.deque()
        self._ahead: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Take an entry that is queued, or about to be; one that copies from no page is let go."""
        if not entry.copies or entry.verbatim is not None:
            return
        if not self._later and self._has_room():
            self._sort(entry)
        else:
            self._later.append(entry)

    def fill(self) -> None:
        """Go on where entries have started or ended."""
        while self._later and self._has_room():
            entry = self._later.popleft()
            if self._waits(entry) and entry.verbatim is None:
                self._sort(entry)

    def _sort(self, entry: Entry) -> None:
        entry.verbatim = self._thread.submit(PageSpans, entry.request.verbatim)
        self._ahead.append(entry)

    def _has_room(self) -> bool:
        if len(self._ahead) >= self._most:
            self._ahead = [entry for entry in self._ahead if self._waits(entry)]
        return len(self._ahead) < self._most

    def _waits(self, entry: Entry) -> bool:
        # What an entry found in the prefix cache is known from its start on.
        return entry.cached_tokens is None and self._book.get(entry.number) is entry
