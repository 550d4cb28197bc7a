"""Samples of one request: the first computes the prompt, the others are forked from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .request_book import Entry, RequestBook

if TYPE_CHECKING:
    from .stepper import Stepper


class SampleForks:
    """Samples that wait for their first one's prompt. They share its K/V and draw on their own."""

    def __init__(self, book: RequestBook) -> None:
        self._book = book
        self._waiting: list[tuple[Entry, Entry]] = []  # (first, other)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, first: Entry, other: Entry) -> None:
        self._waiting.append((first, other))

    def fork(self, stepper: Stepper) -> None:
        """Start those whose first one's prompt is computed."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for first, other in waiting:
            if self._book.get(other.number) is None:
                continue  # It has been cancelled.
            if self._book.get(first.number) is not None and not first.output_ids:
                self._waiting.append((first, other))
            else:
                stepper.fork(first, other)
