"""How large, deep and slow a page may be before it is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..reason import Reason, Refused


@dataclass(frozen=True)
class PageLimits:
    """Bounds of one page. `max_parse_work` and `max_reopened` bound `_core.PageCost`'s
    `open_elements` and `reopened`; `max_seconds` is processor time, so that a page's fate doesn't
    depend on what else the machine does.
    """

    max_bytes: int = 10 * 1024 * 1024
    max_parse_work: int = 40_000_000
    max_reopened: int = 1_000_000
    max_attributes: int = 4000
    max_nodes: int = 1_000_000
    max_seconds: float = 10.0
    max_metadata_chars: int = 200_000


class Deadline:
    """The processor time of this thread by which a page must have been read."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends = time.thread_time() + seconds

    def left(self) -> float:
        """Seconds of processor time until then; negative afterwards."""
        return self._ends - time.thread_time()

    def check(self) -> None:
        """Raise Refused when the time is over."""
        if self.left() < 0:
            raise Refused(
                Reason.PAGE_UNREADABLE,
                f"reading the page took over {self._seconds:g} seconds",
                advice="submit a smaller part of it",
            )
